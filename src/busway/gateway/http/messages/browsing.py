"""Looking at messages without taking them, and handling one that was chosen; for people and their tools.

    GET     E/$messages                    messages of all states by number, without taking them
              ?from=NUMBER                 the first number that is looked at
              &since=INSTANT               the first enqueued at or after then; not of partitioned entities
              &count=COUNT                 at most so many, 100
              &filter=SQL                  only those that the expression selects, in the language of rules
              &session=ID                  only those of a session
              &state=active|deferred|scheduled
    GET     E/$messages/NUMBER             one message with its whole body
    POST    E/$messages/delete             {numbers: […]}: deletes these, active, deferred or scheduled
    POST    E/$messages/locked/TOKEN/VERB  defer or deadletter, {reason, description}: a message that was locked
    GET     E/$sessions?skip=&top=         sessions with messages or state: [{id, isLocked, state}]

E is an address as in `messages`; all of it asks for Listen there. A list is answered with `next`, the number to go on
from, or null at the end; with a filter it may be shorter than asked for, because a request looks at so many messages
and for so long: whoever wants more asks on from `next`. A filter that cannot be read is 400 with the place in it.
Numbers of partitioned entities may be larger than JavaScript can count: `Number` and `next` are texts.

Deleting looks at what is there in the moment of deletion: what somebody has locked, or a stream has claimed, stays.
The answer names what is gone: {deleted: […]}.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from starlette.responses import JSONResponse, Response

from busway.broker.fragment.outlet import Outlet
from busway.broker.namespace.namespace import Namespace
from busway.event_loop import LOOP
from busway.gateway.http.call import Call
from busway.gateway.http.messages.http_message import told_message
from busway.gateway.http.messages.messages import (
    MessageEntities,
    WireCodec,
    lock_of,
    refused_as_bad_request,
    settled,
)
from busway.gateway.http.untrusted_input import integer_of, parse_json
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED, Message
from busway.message.message_subject import MessageSubject
from busway.model.authorization import path_segments
from busway.model.descriptions import LISTEN
from busway.model.entity_path import EntityAddress, check_path
from busway.model.errors import BadArgument, InvalidOperation, MessageLockLost, MessageNotFound
from busway.model.settlement import Settlement, Verb
from busway.rules.compiled_rule import CompiledFilter, compiled_filter
from busway.rules.rule import FilterError, RuleSyntaxError, SqlFilter

COUNT_MAX: Final = 100
#: Messages that one request looks at, and for how long it does.
LOOKED_MAX: Final = 2_000
LOOK_S: Final = 0.1
#: Of the body of a message in a list.
LIST_BODY_BYTES_MAX: Final = 1024
#: Of the body of one message that is asked for.
BODY_BYTES_MAX: Final = 1024 * 1024
FILTER_CHARACTERS_MAX: Final = 1024
SESSIONS_MAX: Final = 100
NUMBERS_MAX: Final = 500
_STATES: Final = {"active": PLACE_ACTIVE, "deferred": PLACE_DEFERRED, "scheduled": PLACE_SCHEDULED}
_VERBS: Final = {"defer": Verb.DEFER, "deadletter": Verb.DEAD_LETTER}
_SLICE: Final = 20
_NO_STORE: Final = {"Cache-Control": "no-store"}
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")

Wanted = Callable[[Message], bool]


class Browsing:
    """The routes."""

    def __init__(self, namespace: Namespace, codec: WireCodec) -> None:
        self._limits = namespace.limits
        self._entities = MessageEntities(namespace)
        self._codec = codec

    def require(self, call: Call, entity: str, *_: str) -> None:
        if path_segments(entity) is None:
            # No token can be for such a path; everybody is told what is wrong with it (E-6).
            check_path(EntityAddress.parse(entity).path, self._limits.path_characters_max)
        call.require_for(entity, entity, LISTEN)

    # -- looking

    async def list(self, call: Call, entity: str) -> Response:
        query = call.request.query_params
        count = _bounded(query.get("count", "50"), "count", 1, COUNT_MAX)
        first = _bounded(query.get("from", "0"), "from", 0, (1 << 63) - 1)
        wanted = _wanted(query.get("filter", ""), query.get("state", ""))
        with refused_as_bad_request():
            outlet = self._entities.receive_point(entity, with_sessions=True).outlet
            if outlet is None:
                return _json({"messages": [], "next": None, "looked": 0})
            if since := query.get("since", ""):
                first = max(first, await _first_since(outlet, _instant_ms(since)))
            look = _Look(outlet, wanted, query.get("session"))
            await look.go(first, count)
        told = [self._told(message, LIST_BODY_BYTES_MAX) for message in look.found]
        next_number = None if look.next is None else str(look.next)
        return _json({"messages": told, "next": next_number, "looked": look.looked})

    async def message(self, _: Call, entity: str, number: str) -> Response:
        wanted = _bounded(number, "The number", 0, (1 << 63) - 1)
        with refused_as_bad_request():
            outlet = self._entities.receive_point(entity, with_sessions=True).outlet
            found = [] if outlet is None else await outlet.peek(wanted, 1)
        if not found or found[0].sequence_number != wanted:
            raise MessageNotFound(f"There is no message with the number {wanted} any more.")
        return _json(self._told(found[0], BODY_BYTES_MAX))

    def _told(self, message: Message, body_bytes_max: int) -> dict[str, object]:
        return told_message(message, self._codec.payload(message, b"", 0), body_bytes_max)

    async def sessions(self, call: Call, entity: str) -> Response:
        query = call.request.query_params
        skip = _bounded(query.get("skip", "0"), "skip", 0, 1_000_000)
        top = _bounded(query.get("top", "50"), "top", 1, SESSIONS_MAX)
        with refused_as_bad_request():
            outlet = self._entities.receive_point(entity, with_sessions=True).outlet
            if outlet is None or not outlet.requires_session:
                raise InvalidOperation(f"'{entity}' has no sessions.")
            ids = await outlet.list_sessions(None, skip, top)
            told = [await _told_session(outlet, session_id) for session_id in ids]
        return _json(told)

    # -- handling

    async def delete(self, call: Call, entity: str) -> Response:
        said = parse_json(await call.body(), "The body")
        wanted = said.get("numbers") if isinstance(said, dict) else None
        if not isinstance(wanted, list) or not all(type(number) in (int, str) for number in wanted):
            raise BadArgument("The body must be an object with numbers, a list of sequence numbers.")
        numbers = [integer_of("numbers", str(number)) for number in wanted]
        if not 1 <= len(numbers) <= NUMBERS_MAX or not all(0 <= number < 1 << 63 for number in numbers):
            raise BadArgument(f"One to {NUMBERS_MAX} sequence numbers can be deleted at a time.")
        with refused_as_bad_request():
            outlet = self._entities.receive_point(entity, with_sessions=True).outlet
            deleted = [] if outlet is None else await outlet.delete_by_number(numbers)
        return _json({"deleted": sorted(deleted)})

    async def settle(self, call: Call, entity: str, token: str, verb: str) -> Response:
        said = parse_json(await call.body() or b"{}", "The body")
        if not isinstance(said, dict) or not said.keys() <= {"reason", "description"}:
            raise BadArgument("The body must be an object with reason and description.")
        if not all(isinstance(value, str) for value in said.values()):
            raise BadArgument("reason and description must be texts.")
        reason, description = said.get("reason"), said.get("description")
        settlement = Settlement(_VERBS[verb.lower()], None, reason, description)
        with refused_as_bad_request():
            outlet = self._entities.receive_point(entity).outlet
            lock = lock_of(token)
            if outlet is None or lock is None or outlet.locked_number(lock) is None:
                raise MessageLockLost
            await settled(lambda done: outlet.settle([lock], settlement, done))
        return Response(status_code=200)


class _Look:
    """One walk over messages by number."""

    def __init__(self, outlet: Outlet, wanted: Wanted, session_id: str | None) -> None:
        self._outlet = outlet
        self._wanted = wanted
        self._session_id = session_id
        self.found: list[Message] = []
        self.looked = 0
        #: Where to go on; None at the end.
        self.next: int | None = 0

    async def go(self, first: int, count: int) -> None:
        until_s = LOOP.now() + LOOK_S
        self.next = first
        while self.next is not None and len(self.found) < count:
            if self.looked >= LOOKED_MAX or LOOP.now() > until_s:
                return
            page = await self._outlet.peek(self.next, min(COUNT_MAX, count * 2), self._session_id)
            if not page:
                self.next = None
                return
            for at, message in enumerate(page):
                if at % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                self.looked += 1
                self.next = message.sequence_number + 1
                if self._wanted(message):
                    self.found.append(message)
                if len(self.found) == count or LOOP.now() > until_s:
                    break


def _wanted(text: str, state: str) -> Wanted:
    """Raises BadArgument with the place in the filter."""
    if state and state.lower() not in _STATES:
        raise BadArgument(f"state: {state[:40]!r} is not active, deferred or scheduled.")
    place = _STATES.get(state.lower())
    compiled: CompiledFilter | None = None
    if text.strip():
        if len(text) > FILTER_CHARACTERS_MAX:
            raise BadArgument(f"filter: at most {FILTER_CHARACTERS_MAX} characters can be read.")
        try:
            compiled = compiled_filter(SqlFilter(text), uuid4)
        except RuleSyntaxError as error:
            raise BadArgument(f"filter: {error.sentence}") from error

    def wanted(message: Message) -> bool:
        if place is not None and message.state != place:
            return False
        if compiled is None:
            return True
        try:
            return compiled.matches(MessageSubject(message))
        except FilterError:  # a rule would make a dead letter of it; here it is not selected
            return False

    return wanted


async def _first_since(outlet: Outlet, at_ms: int) -> int:
    """Numbers and times grow together in a fragment, so the place is found by halving."""
    fragments = outlet.fragments()
    if len(fragments) != 1:
        raise InvalidOperation(
            "since is not possible here: the messages of each fragment have their own order."
        )
    low, high = 0, fragments[0].counters.last_counter + 1
    while low < high:
        middle = (low + high) // 2
        found = await outlet.peek(middle, 1)
        if not found or found[0].enqueued_at_ms >= at_ms:
            high = middle
        else:
            low = found[0].sequence_number + 1
    return low


async def _told_session(outlet: Outlet, session_id: str) -> dict[str, object]:
    state = None
    for fragment in outlet.fragments():
        state = state or await fragment.sessions.seen_state(session_id)
    is_locked = any(fragment.sessions.is_held(session_id) for fragment in outlet.fragments())
    return {
        "id": session_id,
        "isLocked": is_locked,
        "stateBytes": None if state is None else len(state),
        "state": None if state is None else state[:LIST_BODY_BYTES_MAX].decode("utf-8", "replace"),
    }


def _bounded(text: str, name: str, least: int, most: int) -> int:
    number = integer_of(name, text)
    if not least <= number <= most:
        raise BadArgument(f"{name} must be between {least} and {most}, not {number}.")
    return number


def _instant_ms(text: str) -> int:
    if _INSTANT.fullmatch(text) is None:
        raise BadArgument(f"since: {text[:40]!r} is not a time such as 2030-01-01T08:00:00Z.")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadArgument(f"since: {text[:40]!r} is no time.") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _json(content: object) -> Response:
    return JSONResponse(content, 200, _NO_STORE)
