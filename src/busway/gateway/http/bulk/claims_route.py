"""Claims over HTTP (`busway.broker.bulk.claims`): how Spark takes, reads and settles messages by the thousand.

    GET   E/$claims                         which claims hold messages: {"claims": [{"stamp": …, "messages": …}],
                                            "last": […]}, the last being the newest number of each fragment
    POST  E/$claims/STAMP/take?count=&wait= locks messages: {"held": RUNS, "oldest_ms": …, "locked_until_ms": …,
                                            "available": …}, the last being how many nobody has taken yet
    POST  E/$claims/STAMP/renew             keeps locks and sessions: {"locked_until_ms": …}
    POST  E/$claims/STAMP/hold      RUNS    defers what is locked: {"held": RUNS}; ?sessions=true tells them there
    POST  E/$claims/STAMP/read      RUNS    what is held, in frames (`message.claimed_run`), as long as there is more
    POST  E/$claims/STAMP/settle    RUNS    deletes what is held: {"settled": …, "locked": …}
    POST  E/$claims/STAMP/release           gives up what is held or locked: {"released": …, "locked": …}

E is an entity as everywhere, also one with sessions. STAMP is the client's name for the claim. RUNS are ascending
runs of sequence numbers, [[first, count], …], as a body {"held": RUNS}; answers of `take` on an entity with sessions
have the session's id as a third item of each run. Each request may be repeated after a lost answer. All need Listen.

`count` is at most 100,000. `wait` are seconds for the first message. While messages are read one page of them is in
memory; an answer that the store cannot finish is cut off, and its client notices. What moves many messages waits for
its turn (`bulk_admission`); taking, which mostly waits for messages, does not.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from starlette.responses import JSONResponse, Response

from busway.broker.bulk.claims import COUNT_MAX, Claims, available, stamped, unstamped
from busway.broker.fragment.outlet import Outlet
from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.gateway.http.bulk.admission import BulkAdmission, BulkPlace
from busway.gateway.http.bulk.answer import BulkAnswer, Page
from busway.gateway.http.call import SOON_S, Call
from busway.gateway.http.messages.messages import MessageEntities, ReceivePoint
from busway.gateway.http.presence import presence_of
from busway.gateway.http.statuses import HttpRefusal
from busway.gateway.http.untrusted_input import parse_json
from busway.message.bare import changed_bare
from busway.message.claimed_run import claimed_frame
from busway.message.message import Message
from busway.model.authorization import path_segments
from busway.model.descriptions import LISTEN
from busway.model.entity_path import EntityAddress, check_path, shown
from busway.model.errors import BadArgument

CLAIMS_KEYWORD: Final = "$claims"
FRAMES_TYPE: Final = "application/vnd.busway.claimed"
WAIT_S_MAX: Final = 30.0
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
_STAMP: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SECONDS: Final = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,6})?")
_COUNT: Final = re.compile(r"[0-9]{1,7}")
_SWITCH: Final = re.compile(r"true|false")
_NUMBER_MAX: Final = (1 << 63) - 1
_RUNS_AT_ONCE: Final = 5_000
#: What a page of messages counts before it was read.
_PAGE_BYTES: Final = 1024 * 1024
VERBS: Final = ("take", "renew", "hold", "read", "settle", "release")


class ClaimsRoute:
    def __init__(self, namespace: Namespace, clock: Clock, admission: BulkAdmission) -> None:
        self._admission = admission
        self._limits = namespace.limits
        self._entities = MessageEntities(namespace)
        self._claims = Claims(clock)

    def require(self, call: Call, entity: str, *_: str) -> None:
        """Also that the entity is there. Raises BrokerError."""
        if path_segments(entity) is None:
            # No token can be for such a path; everybody is told what is wrong with it (E-6).
            check_path(EntityAddress.parse(entity).path, self._limits.path_characters_max)
        call.require_for(entity, f"{entity}/{CLAIMS_KEYWORD}", LISTEN)
        call.retry_after_s = SOON_S
        self._point(entity)

    async def unknown(self, _: Call, __: str, ___: str, verb: str) -> Response:
        raise HttpRefusal(404, f"A claim knows {', '.join(VERBS)}, not {shown(verb.lower())}.")

    def _point(self, entity: str) -> ReceivePoint:
        return self._entities.receive_point(entity, with_sessions=True)

    def _outlet(self, entity: str) -> Outlet | None:
        """None where nothing can ever be."""
        return self._point(entity).outlet

    def _enter(self, call: Call, stamp: str) -> BulkPlace:
        _check_stamp(stamp)
        return self._admission.enter(call.caller, presence_of(call.request))

    async def claims(self, _: Call, entity: str) -> Response:
        point = self._point(entity)
        if point.outlet is None:
            return JSONResponse({"claims": [], "last": []})
        # Dead letters are numbered by the entity that they were in.
        last = [fragment.counters.last_counter for fragment in point.entity.inlet.fragments()]
        found = await self._claims.stamps(point.outlet)
        claims = [{"stamp": stamp, "messages": found[stamp]} for stamp in sorted(found)]
        return JSONResponse({"claims": claims, "last": last})

    async def take(self, call: Call, entity: str, stamp: str) -> Response:
        _check_stamp(stamp)
        count = int(_query(call, "count", _COUNT, "1000"))
        wait_s = min(float(_query(call, "wait", _SECONDS, "0")), WAIT_S_MAX)
        if not 1 <= count <= COUNT_MAX:
            raise BadArgument(f"count: {count} is not a number from 1 to {COUNT_MAX}.")
        await call.body()
        point = self._point(entity)
        if point.outlet is None:
            return JSONResponse({"held": [], "oldest_ms": 0, "locked_until_ms": 0, "available": 0})
        claim = await self._claims.take(point.entity, point.outlet, stamp, count, wait_s)
        return JSONResponse(
            {
                "held": [run for part in claim.parts for run in _shown_runs(part.session_id, part.numbers)],
                "oldest_ms": claim.oldest_ms(),
                "locked_until_ms": claim.locked_until_ms,
                "available": available(point.outlet),
            }
        )

    async def renew(self, call: Call, entity: str, stamp: str) -> Response:
        _check_stamp(stamp)
        await call.body()
        outlet = self._outlet(entity)
        until_ms = 0 if outlet is None else await self._claims.renew(outlet, stamp)
        return JSONResponse({"locked_until_ms": until_ms})

    async def hold(self, call: Call, entity: str, stamp: str) -> Response:
        with self._enter(call, stamp) as place:
            wants_sessions = _query(call, "sessions", _SWITCH, "false") == "true"
            numbers = await _numbers(call, place)
            outlet = self._outlet(entity)
            held = [] if outlet is None else await self._claims.hold(outlet, stamp, numbers, place.pace)
            if outlet is None or not wants_sessions:
                return JSONResponse({"held": _shown_runs(None, held)})
            sessions: dict[str | None, list[int]] = {}
            pages = self._claims.read(outlet, stamp, sorted(held))
            async with aclosing(_held_pages(pages, entity, place)) as held_pages:
                async for page in held_pages:
                    for message in page:
                        sessions.setdefault(message.session_id, []).append(message.sequence_number)
        return JSONResponse({"held": [run for each in sessions.items() for run in _shown_runs(*each)]})

    async def read(self, call: Call, entity: str, stamp: str) -> Response:
        place = self._enter(call, stamp)
        response: Response | None = None
        try:
            response = await self._reading(call, entity, stamp, place)
        finally:
            if not isinstance(response, BulkAnswer):  # which closes it itself
                place.close()
        return response

    async def _reading(self, call: Call, entity: str, stamp: str, place: BulkPlace) -> Response:
        numbers = await _numbers(call, place)
        outlet = self._outlet(entity)
        if outlet is None:
            return Response(b"", media_type=FRAMES_TYPE)
        frames = _frames(self._claims.read(outlet, stamp, numbers), entity, stamp, place)
        # The first one now, so that what is wrong can still be said.
        first = await anext(frames, None)
        return BulkAnswer(place, _begun(first, frames), FRAMES_TYPE)

    async def settle(self, call: Call, entity: str, stamp: str) -> Response:
        count = locked = 0
        with self._enter(call, stamp) as place:
            numbers = await _numbers(call, place)
            outlet = self._outlet(entity)
            if outlet is not None:
                count, locked = await self._claims.settle(outlet, stamp, numbers, place.pace)
        return JSONResponse({"settled": count, "locked": locked})

    async def release(self, call: Call, entity: str, stamp: str) -> Response:
        count = locked = 0
        with self._enter(call, stamp) as place:
            await call.body()
            outlet = self._outlet(entity)
            if outlet is not None:
                count, locked = await self._claims.release(outlet, stamp, place.pace)
        return JSONResponse({"released": count, "locked": locked})


def _check_stamp(stamp: str) -> None:
    if _STAMP.fullmatch(stamp) is None:
        raise BadArgument(
            f"The claim {shown(stamp)} cannot be used: letters, digits, '-' and '_', at most 64 of them."
        )


async def _numbers(call: Call, place: BulkPlace) -> list[int]:
    """Of the body. Raises BadArgument."""
    await place.hold(call.body_bytes(BODY_BYTES_MAX))
    body = await call.body(BODY_BYTES_MAX)
    await place.turn()
    numbers = await numbers_of(body)
    place.holds(0)
    return numbers


async def _frames(
    pages: AsyncIterator[list[Message]], entity: str, stamp: str, place: BulkPlace
) -> AsyncGenerator[Page, None]:
    fresh = stamped(stamp)
    async with aclosing(_held_pages(pages, entity, place)) as held_pages:
        async for page in held_pages:
            frame = claimed_frame(page, [_shown_bare(message, fresh) for message in page])
            place.holds(len(frame))
            yield (frame,)


async def _held_pages(
    pages: AsyncIterator[list[Message]], entity: str, place: BulkPlace
) -> AsyncGenerator[list[Message], None]:
    """Each page is held from before it is read until the next one is asked for; it comes in a turn of its own."""
    while True:
        place.holds(0)
        await place.hold(_PAGE_BYTES)
        async with place.working(entity):
            page = await anext(pages, None)
        if page is None:
            return
        if page:
            await place.turn()
            yield page


def _shown_bare(message: Message, fresh: bytes) -> bytes:
    if message.changes == fresh:
        return message.bare
    return changed_bare(message.bare, unstamped(message.changes))


async def _begun(first: Page | None, rest: AsyncGenerator[Page, None]) -> AsyncGenerator[Page, None]:
    async with aclosing(rest):
        if first is not None:
            yield first
            async for page in rest:
                yield page


async def numbers_of(body: bytes) -> list[int]:
    """The numbers of a body {"held": [[first, count], …]}. Raises BadArgument. Others have their turn meanwhile."""
    given = parse_json(body, "The body")
    runs = given.get("held") if isinstance(given, dict) else None
    if not isinstance(runs, list):
        raise BadArgument('The body must be {"held": [[first, count], …]}.')
    numbers: list[int] = []
    last = 0
    for index, run in enumerate(runs):
        if index % _RUNS_AT_ONCE == _RUNS_AT_ONCE - 1:
            await asyncio.sleep(0)
        first, count = _run(run)
        if first <= last or first + count - 1 > _NUMBER_MAX:
            raise BadArgument("The runs of numbers must ascend and must not overlap.")
        if len(numbers) + count > COUNT_MAX:
            raise BadArgument(f"A claim has at most {COUNT_MAX} messages.")
        numbers.extend(range(first, first + count))
        last = first + count - 1
    return numbers


def _run(run: object) -> tuple[int, int]:
    match run:
        case [int(first), int(count)] if not isinstance(first, bool) and not isinstance(count, bool):
            if first >= 1 and count >= 1:
                return first, count
    raise BadArgument("A run is [first, count], two whole numbers of at least 1.")


def _shown_runs(session_id: str | None, numbers: list[int]) -> list[list[object]]:
    tail = [] if session_id is None else [session_id]
    return [[first, count, *tail] for first, count in runs_of(sorted(numbers))]


def runs_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, count)."""
    found: list[tuple[int, int]] = []
    first = last = -1
    for number in numbers:
        if number != last + 1 or first < 0:
            if first >= 0:
                found.append((first, last - first + 1))
            first = number
        last = number
    if first >= 0:
        found.append((first, last - first + 1))
    return found


def _query(call: Call, name: str, form: re.Pattern[str], default: str) -> str:
    found = call.request.query_params.getlist(name)
    if not found:
        return default
    if len(found) > 1 or form.fullmatch(found[0]) is None:
        kind = "true or false" if form is _SWITCH else "a number"
        raise BadArgument(f"{name}: {shown(found[-1][:32])} is not {kind}.")
    return found[0]
