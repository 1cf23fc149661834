"""Management operations: on messages, on what is locked, on rules.

An operation works on one entity or sub-queue, and on the links of the connection that asks (`ManagedEntity`).

Messages: peek, schedule, cancel, fetch by number, delete in batches. Whoever looks at many large messages may peek
without their bodies (R-60).

What is locked: messages, renewed and settled away from their link (R-18, R-30), and sessions, with their state
(X-9, X-15, X-17).

Rules of a subscription: add, remove, enumerate (T-11, T-12). JavaScript, Go and .NET use these. A request carries a
rule as a map of maps, an answer as nested described lists; the descriptors are the service's own, in two magnitudes
(wire facts E).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from busway.amqp.decode import DecodeError
from busway.amqp.encode import append_map, encode_value
from busway.amqp.errors import Condition
from busway.amqp.sections import scan
from busway.amqp.types import Described, Int, Long, Symbol, Timestamp, ULong
from busway.broker.transaction.transactions import RuleStep
from busway.gateway.amqp.message_mapping import fetched_payload, message_of, peeked_payload
from busway.gateway.amqp.nodes.request_and_answer import (
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    NO_CONTENT,
    Answer,
    RequestBody,
    done,
    long_array,
    nothing,
    string_array,
    timestamp_array,
    uuid_of_token,
)
from busway.message.bare import ensure_message_id
from busway.message.message import Message
from busway.message.message_subject import amqp_value, value_of_amqp
from busway.model.description_checks import RULE_CHARACTERS_MAX, check_rule_text, rule_characters
from busway.model.descriptions import SubscriptionDescription
from busway.model.errors import (
    ArgumentOutOfRange,
    BadArgument,
    BrokerError,
    EntityNotFound,
    InvalidOperation,
    MessageTooLarge,
    SessionLockLost,
)
from busway.model.settlement import Settlement, Verb
from busway.rules.rule import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    RuleSyntaxError,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from busway.rules.subject import Instant, Span, value_of

if TYPE_CHECKING:
    from busway.broker.fragment.outlet import Outlet
    from busway.broker.namespace.namespace import Namespace, Queue, Topic
    from busway.broker.transaction.transactions import Transaction
    from busway.clock import Entropy
    from busway.gateway.amqp.links.link_host import LinkLookup
    from busway.model.limits import Limits


class ManagedEntity:
    """Made for each request, because the entity behind an address may be another one the next time (E-86)."""

    __slots__ = (
        "_outlet",
        "_sender",
        "detects_duplicates",
        "entropy",
        "limits",
        "link_name",
        "links",
        "namespace",
        "path",
        "transaction",
    )

    def __init__(
        self,
        path: str,
        sender: Queue | Topic | None,
        outlet: Outlet | None,
        namespace: Namespace,
        links: LinkLookup,
        link_name: str | None,
        detects_duplicates: bool,
        entropy: Entropy,
    ) -> None:
        self.path = path
        self._sender = sender
        self._outlet = outlet
        self.namespace = namespace
        self.limits: Limits = namespace.limits
        self.links = links
        #: `associated-link-name` of the request.
        self.link_name = link_name
        self.detects_duplicates = detects_duplicates
        self.entropy = entropy
        #: In which the request takes place.
        self.transaction: Transaction | None = None

    @property
    def outlet(self) -> Outlet:
        """What is received from; a topic is not (E-9)."""
        if self._outlet is None:
            raise InvalidOperation(
                f"The topic '{self.path}' has no messages of its own: ask one of its subscriptions."
            )
        return self._outlet

    def sendable(self) -> Queue | Topic:
        if self._sender is None:
            raise InvalidOperation(f"Nobody can send to '{self.path}': send to its queue or topic.")
        return self._sender

    def session_of_request(self, session_id: str | None) -> str | None:
        """The session a request is about: the one it names, else the one its link holds."""
        if session_id is not None or self.link_name is None:
            return session_id
        return self.links.session_of_link(self.link_name)

    def check_holds(self, session_id: str) -> None:
        """X-15, R-54: reading and writing a session's inside needs its lock, held by this client."""
        if not self.outlet.requires_session:
            raise InvalidOperation(f"The entity '{self.path}' does not require sessions.")
        if not self.is_holder(session_id):
            raise SessionLockLost

    def is_holder(self, session_id: str) -> bool:
        """Whether a link of this client holds the session."""
        return self.links.holds_session(self.path, session_id)


_RECEIVE_AND_DELETE: Final = 0
_PEEK_LOCK: Final = 1
#: What is built of an answer in one turn of the loop.
_BUILD_BYTES: Final = 1 << 20
_BUILD_MESSAGES: Final = 200
_OMITTED_KEY: Final = encode_value(Symbol("omitted-message-body-size"))
_SECTION: Final = b"\x00Sq"
_SMALL_MAP: Final = 0xC1


async def peek_message(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-60…R-66. More than the limit is asked for at times; the answer is simply shorter (L-15)."""
    first = max(0, body.integer("from-sequence-number", LONG_MIN, LONG_MAX))
    count = min(body.integer("message-count", 1, INT_MAX), entity.limits.peek_messages_max)
    omits_bodies = body.flag("omit-message-body")
    found = await entity.outlet.peek(first, count, body.optional_text("session-id"))
    if not found:
        return nothing()
    is_partitioned = entity.outlet.settings.is_partitioned
    payloads = [peeked_payload(message, is_partitioned) for message in found]
    if omits_bodies:
        payloads = [without_body(payload) for payload in payloads]
    return Answer({"messages": [{"message": payload} for payload in payloads]})


async def schedule_message(entity: ManagedEntity, body: RequestBody) -> Answer:
    """S-30: the time is an annotation inside each message."""
    queue = entity.sendable()
    messages = [_message(entity, item) for item in body.items("messages")]
    if entity.transaction is not None:
        return Answer({"sequence-numbers": long_array(entity.transaction.schedule(queue.inlet, messages))})
    return Answer({"sequence-numbers": long_array(await queue.schedule(messages))})


async def cancel_scheduled_message(entity: ManagedEntity, body: RequestBody) -> Answer:
    """S-33: one missing number fails the whole request."""
    numbers = body.numbers("sequence-numbers")
    if entity.transaction is not None:
        await entity.transaction.cancel(entity.sendable().inlet, numbers)
    else:
        await entity.sendable().cancel_scheduled(numbers)
    return done()


async def receive_by_sequence_number(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-51, R-52, R-54: deferred messages, all of them or none."""
    numbers = body.numbers("sequence-numbers")
    mode = _PEEK_LOCK
    if body.get("receiver-settle-mode") is not None:
        mode = body.integer("receiver-settle-mode", _RECEIVE_AND_DELETE, _PEEK_LOCK)
    session_id = _session_of_fetch(entity, body)
    found = await entity.outlet.receive_by_number(
        numbers, deletes=mode == _RECEIVE_AND_DELETE, session_id=session_id
    )
    if not found:
        return nothing()
    entries: list[object] = []
    built_bytes = 0
    for delivery in found:
        if built_bytes > _BUILD_BYTES or len(entries) % _BUILD_MESSAGES == _BUILD_MESSAGES - 1:
            built_bytes = 0
            await asyncio.sleep(0)  # others have their turn
        payload = fetched_payload(
            delivery.message, delivery.token, delivery.locked_until_ms, entity.outlet.settings.is_partitioned
        )
        built_bytes += len(payload)
        entry: dict[str, object] = {"message": payload}
        if delivery.token:
            entry["lock-token"] = uuid_of_token(delivery.token)
        entries.append(entry)
    return Answer({"messages": entries})


async def batch_delete_messages(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-80…R-84: messages enqueued before a time, oldest first, locked ones skipped; those of a session that somebody
    else holds are locked (X-13)."""
    count = body.integer("message-count", 1, entity.limits.batch_delete_messages_max)
    before_ms = body.instant_ms("enqueued-time-utc")
    deleted = await entity.outlet.delete_messages(
        count, before_ms, body.optional_text("session-id"), entity.is_holder
    )
    if deleted == 0:
        return nothing()
    return Answer({"message-count": Int(deleted)})


def _message(entity: ManagedEntity, item: object) -> Message:
    payload = item.get("message") if isinstance(item, dict) else None
    if not isinstance(payload, bytes):
        raise BadArgument("Each item of 'messages' must be a map with a binary 'message'.")
    if len(payload) > entity.limits.message_bytes_max:
        raise MessageTooLarge(
            f"The message has {len(payload)} bytes; at most {entity.limits.message_bytes_max} are allowed."
        )
    try:
        message = message_of(payload, entity.detects_duplicates, entity.limits)
    except DecodeError as error:
        raise BadArgument(f"A 'message' of 'messages' is not an encoded AMQP message: {error}.") from error
    ensure_message_id(message, entity.entropy)
    return message


def _session_of_fetch(entity: ManagedEntity, body: RequestBody) -> str | None:
    session_id = entity.session_of_request(body.optional_text("session-id"))
    if not entity.outlet.requires_session:
        return None
    if session_id is None:
        raise InvalidOperation(
            f"The entity '{entity.path}' requires sessions: deferred messages are received with 'session-id'."
        )
    entity.check_holds(session_id)
    return session_id


def without_body(payload: bytes) -> bytes:
    """How many bytes the body's sections had is told in the delivery annotations, as the service does. `payload` is a
    message of our writing."""
    found = scan(payload)
    if found.body_kind == 0:
        return payload
    size = found.body_end - found.body_start
    count, entries = 0, b""
    start, end = found.header_end, found.header_end
    if found.delivery_annotations_at >= 0:
        start, end = found.delivery_annotations_start, found.delivery_annotations_end
        count, entries = _entries(payload, found.delivery_annotations_at, end)
    start, end = max(start, 0), max(end, 0)
    out = bytearray(payload[:start])
    out += _SECTION
    append_map(out, entries + _OMITTED_KEY + encode_value(Long(size)), count + 2)
    out += payload[end : found.body_start]
    out += payload[found.body_end :]
    return bytes(out)


def _entries(payload: bytes, at: int, end: int) -> tuple[int, bytes]:
    """Of an encoded map: how many keys and values, and their bytes as they are."""
    if payload[at] == _SMALL_MAP:
        return payload[at + 2], payload[at + 3 : end]
    return int.from_bytes(payload[at + 5 : at + 9], "big"), payload[at + 9 : end]


#: `defered` is how the clients spell it (R-18).
_VERBS: Final = {
    "completed": Verb.COMPLETE,
    "abandoned": Verb.ABANDON,
    "released": Verb.RELEASE,
    "defered": Verb.DEFER,
    "deferred": Verb.DEFER,
    "suspended": Verb.DEAD_LETTER,
}
#: The first millisecond of the year 9999: from here on a date means "whatever the date" (X-17).
_ANY_DATE_MS: Final = 253_370_764_800_000
#: Sessions in one answer; clients ask again with `skip`.
_PAGE_MAX: Final = 1_000


async def renew_lock(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-30; all of them or none."""
    tokens = body.lock_tokens("lock-tokens")
    return Answer({"expirations": timestamp_array(await entity.outlet.renew(tokens))})


async def update_disposition(entity: ManagedEntity, body: RequestBody) -> Answer:
    """Settles in one run; the first refusal is the answer, what succeeded beside it stays settled."""
    tokens = body.lock_tokens("lock-tokens")
    settlement = _settlement(body)
    session_id = entity.session_of_request(body.optional_text("session-id"))
    if entity.transaction is not None:
        return _answer_to(entity.transaction.settle(entity.outlet, tokens, settlement, session_id))
    settled: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def report(refused: list[tuple[int, BrokerError]]) -> None:
        if not settled.done():  # the asking connection may be gone meanwhile
            settled.set_result(refused)

    entity.outlet.settle(tokens, settlement, report, session_id)
    return _answer_to(await settled)


def _answer_to(refused: list[tuple[int, BrokerError]]) -> Answer:
    if refused:
        raise refused[0][1]
    return done()


def _settlement(body: RequestBody) -> Settlement:
    status = body.text("disposition-status")
    verb = _VERBS.get(status.lower())
    if verb is None:
        raise BadArgument(
            f"The value of 'disposition-status' must be one of {', '.join(_VERBS)}; it is '{status[:40]}'."
        )
    is_dead_letter = verb is Verb.DEAD_LETTER
    return Settlement(
        verb,
        properties=body.optional_map("properties-to-modify"),
        dead_letter_reason=body.optional_text("deadletter-reason") if is_dead_letter else None,
        dead_letter_description=body.optional_text("deadletter-description") if is_dead_letter else None,
    )


async def renew_session_lock(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    entity.check_holds(session_id)
    return Answer({"expiration": Timestamp(await entity.outlet.renew_session(session_id))})


async def get_session_state(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    entity.check_holds(session_id)
    return Answer({"session-state": await entity.outlet.session_state(session_id)})


async def set_session_state(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    state = body.optional_binary("session-state")
    entity.check_holds(session_id)
    await entity.outlet.set_session_state(session_id, state)
    return done()


async def get_message_sessions(entity: ManagedEntity, body: RequestBody) -> Answer:
    """X-17: with a date from the year 9999 on, sessions with messages or state; else by the state's date."""
    updated_after_ms = body.instant_ms("last-updated-time")
    skip = body.integer("skip", 0, INT_MAX)
    top = min(body.integer("top", 1, INT_MAX), _PAGE_MAX)
    if not entity.outlet.requires_session:
        raise BadArgument(f"The entity '{entity.path}' does not require sessions: it has none to list.")
    after_ms = None if updated_after_ms >= _ANY_DATE_MS else updated_after_ms
    found = await entity.outlet.list_sessions(after_ms, skip, top)
    if not found:
        return nothing(Condition.SESSION_NOT_FOUND)
    return Answer({"skip": Int(skip + len(found)), "sessions-ids": string_array(found)})


_RULE: Final = ULong(0x1370_0000_004)
_SQL_FILTER: Final = ULong(0x137_0000_006)
_TRUE_FILTER: Final = ULong(0x137_0000_007)
_FALSE_FILTER: Final = ULong(0x137_0000_008)
_CORRELATION_FILTER: Final = ULong(0x137_0000_009)
_EMPTY_ACTION: Final = ULong(0x1370_0000_005)
_SQL_ACTION: Final = ULong(0x1370_0000_006)

#: Key in the request's map → field of a correlation filter, in the order of the answer's list.
_CORRELATION_FIELDS: Final = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "label",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}
_RULES_PER_ANSWER_MAX: Final = 1_000
#: A hundred rules always fit, as large as they may be.
_ANSWER_CHARACTERS_MAX: Final = 100 * RULE_CHARACTERS_MAX
#: Built in one turn of the loop.
_BUILD_RULES: Final = 50
_INT32_MAX: Final = (1 << 31) - 1


async def add_rule(entity: ManagedEntity, body: RequestBody) -> Answer:
    path = _subscription(entity)
    rule = _rule_of(body.text("rule-name"), body.optional_map("rule-description"))
    if entity.transaction is None:
        await entity.namespace.rules.add(path, rule)
    else:
        check_rule_text(rule, entity.namespace.limits)
        work = entity.namespace.rules.work
        entity.transaction.change_rules(entity.outlet, work, RuleStep(path, rule.name, rule))
    return done()


async def remove_rule(entity: ManagedEntity, body: RequestBody) -> Answer:
    path, name = _subscription(entity), body.text("rule-name")
    if entity.transaction is None:
        await entity.namespace.rules.remove(path, name)
        return done()
    if entity.namespace.rules.get(path, name) is None:
        raise EntityNotFound(f"The rule '{name[:80]}' could not be found.")
    entity.transaction.change_rules(entity.outlet, entity.namespace.rules.work, RuleStep(path, name, None))
    return done()


async def enumerate_rules(entity: ManagedEntity, body: RequestBody) -> Answer:
    path = _subscription(entity)
    skip = body.integer("skip", 0, INT_MAX)
    top = min(body.integer("top", 0, INT_MAX), _RULES_PER_ANSWER_MAX)
    rules = entity.namespace.rules.by_name(path, skip, top)
    if not rules:
        return Answer(None, NO_CONTENT)
    _check_fit(rules)
    entries: list[object] = []
    for count, rule in enumerate(rules, 1):
        entries.append({"rule-description": described_rule(rule)})
        if count % _BUILD_RULES == 0:
            await asyncio.sleep(0)  # others have their turn
    return Answer({"rules": entries})


def _check_fit(rules: list[Rule]) -> None:
    """Raises ArgumentOutOfRange: an answer that is cut would look like the last one to some clients."""
    left = _ANSWER_CHARACTERS_MAX
    for count, rule in enumerate(rules):
        left -= rule_characters(rule)
        if left < 0:
            raise ArgumentOutOfRange(
                f"The {len(rules)} rules asked for are too large for one answer: the first {count} of them fit."
                " Please ask for fewer at a time."
            )


def _subscription(entity: ManagedEntity) -> str:
    description = entity.namespace.description(entity.path)
    if not isinstance(description, SubscriptionDescription):
        raise InvalidOperation(f"The entity '{entity.path}' is no subscription: only these have rules.")
    return description.path


# -- in


def _rule_of(name: str, data: Mapping[str, object] | None) -> Rule:
    if data is None:
        raise BadArgument("The request lacks 'rule-description'.")
    action = data.get("sql-rule-action")
    made = None if action is None else _action_of(_map_at(data, "sql-rule-action"))
    return Rule(name, _filter_of(data), made)


def _filter_of(data: Mapping[str, object]) -> Filter:
    """A rule without a filter selects everything (T-3)."""
    if data.get("sql-filter") is not None:
        text = _text(_map_at(data, "sql-filter"), "expression")
        return {"1=1": TrueFilter(), "1=0": FalseFilter()}.get(text) or SqlFilter(text)
    if data.get("correlation-filter") is not None:
        return _correlation_of(_map_at(data, "correlation-filter"))
    return TrueFilter()


def _correlation_of(data: Mapping[str, object]) -> CorrelationFilter:
    texts = {field: _optional_text(data, key) for key, field in _CORRELATION_FIELDS.items()}
    properties = data.get("properties")
    pairs: tuple[tuple[str, TypedValue], ...] = ()
    if properties is not None:
        pairs = tuple((name, _typed(name, value)) for name, value in _map_at(data, "properties").items())
    return CorrelationFilter(**texts, properties=pairs)


def _action_of(data: Mapping[str, object]) -> SqlAction | None:
    text = _optional_text(data, "expression")
    return None if text is None or text == "" else SqlAction(text)


def _typed(name: str, value: object) -> TypedValue:
    known = value_of_amqp(value)
    if isinstance(known, bool):
        return TypedValue("boolean", known)
    if isinstance(known, int):
        return TypedValue("int" if isinstance(value, Int) else "long", int(known))
    if isinstance(known, float):
        return TypedValue("double", float(known))
    if isinstance(known, Instant):
        return TypedValue("dateTime", known.ticks)
    if isinstance(known, Span):
        return TypedValue("duration", known.ticks)
    if isinstance(known, str):
        return TypedValue("string", str(known))
    raise BadArgument(f"The value of the property '{name[:80]}' is of a type that filters cannot compare.")


def _map_at(data: Mapping[str, object], key: str) -> dict[str, object]:
    value = data[key]
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadArgument(f"'{key}' must be a map with strings as keys.")
    return {str(name): item for name, item in value.items()}


def _text(data: Mapping[str, object], key: str) -> str:
    found = _optional_text(data, key)
    if found is None:
        raise BadArgument(f"The rule lacks '{key}'.")
    return found


def _optional_text(data: Mapping[str, object], key: str) -> str | None:
    value = data.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadArgument(f"'{key}' must be a string.")
    return str(value)


# -- out


def described_rule(rule: Rule) -> Described:
    fields = [_described_filter(rule.filter), _described_action(rule.action), rule.name]
    return Described(_RULE, [*fields, Timestamp(rule.created_at_ms)])


def _described_filter(filter_: Filter) -> Described:
    if isinstance(filter_, TrueFilter):
        return Described(_TRUE_FILTER, [])
    if isinstance(filter_, FalseFilter):
        return Described(_FALSE_FILTER, [])
    if isinstance(filter_, SqlFilter):
        return Described(_SQL_FILTER, [filter_.expression, Int(filter_.compatibility_level)])
    fields: list[object] = [getattr(filter_, field) for field in _CORRELATION_FIELDS.values()]
    properties = {name: _amqp_of(name, typed) for name, typed in filter_.properties}
    return Described(_CORRELATION_FILTER, [*fields, properties])


def _described_action(action: SqlAction | None) -> Described:
    """Never left out: a client looks into it."""
    if action is None:
        return Described(_EMPTY_ACTION, [])
    return Described(_SQL_ACTION, [action.expression, Int(action.compatibility_level)])


def _amqp_of(name: str, typed: TypedValue) -> object:
    if typed.type_name == "int" and isinstance(typed.value, int) and abs(typed.value) <= _INT32_MAX:
        return Int(typed.value)
    try:
        return amqp_value(value_of(name, typed), None)
    except RuleSyntaxError:  # it was checked when the rule was stored
        return None
