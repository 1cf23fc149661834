"""Requests on an entity's `$management`."""

from __future__ import annotations

from time import time
from uuid import UUID, uuid4

from busway.amqp.performatives import Disposition, Modified
from busway.amqp.types import Array, Int, Long, Symbol, Timestamp
from busway.model.descriptions import LISTEN, MANAGE, SEND
from busway.rules.rule import CorrelationFilter, Rule, SqlFilter, TypedValue
from tests.cost.amqp_client import AmqpClient, Desk
from tests.cost.row import FLAT, MANAGEMENT, row
from tests.cost.scene import Scene, payload

_LONGS = 0x81
_UUIDS = 0x98
_ITEMS_MAX = 5_000
_PER_LINK = 2_000
_ANY_DATE = Timestamp(253_370_764_800_000)
#: Properties as large as those of a message may be.
_PROPERTIES = {f"p{n}": "x" * 1_000 for n in range(30)}


def longs(numbers: list[int]) -> Array:
    return Array([Long(number) for number in numbers], _LONGS)


def locked(client: AmqpClient, path: str, n: int) -> list[tuple[int, bytes]]:
    """So many deliveries, locked: (id, tag). A link has a bound, so there are several."""
    before = len(client.deliveries)
    for at in range(0, n, _PER_LINK):
        link = client.attach(path, sends=False)
        part = min(_PER_LINK, n - at)
        client.write(client.credit(link, part))
        client.hear(Transfer=part)
    return client.deliveries[before:]


def tokens(deliveries: list[tuple[int, bytes]]) -> Array:
    return Array([UUID(bytes_le=tag) for _, tag in deliveries], _UUIDS)


def deferred(scene: Scene, path: str, n: int, size: int) -> list[int]:
    """So many deferred messages; their numbers."""
    scene.fill(path, n, size)
    client = scene.client(MANAGE)
    ours = locked(client, path, n)
    first, last = ours[0][0], ours[-1][0]
    client.say(Disposition(True, first, last, False, Modified(undeliverable_here=True)))
    client.hear(Settled=n)
    return list(range(1, n + 1))


def lock_request(scene: Scene, n: int, operation: str, *, size: int = 1, **more: object) -> None:
    """About so many locks of our own."""
    path = scene.queue()
    scene.fill(path, n, size)
    client, desk = scene.desk(path)
    body = {"lock-tokens": tokens(locked(client, path, n)), **more}
    scene.answered(client, desk.operation(operation, body))


# -- looking


@row(LISTEN, MANAGEMENT, "peek-message", "peek {n} messages of 256 KB", 250, unread=400)
def peek_large(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, 4, 255_000)
    scene.ask(path, "peek-message", {"from-sequence-number": Long(0), "message-count": Int(n)})


@row(LISTEN, MANAGEMENT, "peek-message", "peek {n} messages of 1 KB", 250, few=60, unread=8)
def peek_small(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n, 1_000)
    scene.ask(path, "peek-message", {"from-sequence-number": Long(0), "message-count": Int(n)})


@row(
    LISTEN,
    MANAGEMENT,
    "peek-message",
    "peek the only message of a session among {n} others",
    4_000,
    few=250,
    growth=FLAT,
)
def peek_session(scene: Scene, n: int) -> None:
    path = scene.queue(requires_session=True)
    scene.fill(path, n, 1, sessions=[f"s{i}" for i in range(20)])
    scene.fill(path, 1, 1, session="mine")
    body = {"from-sequence-number": Long(0), "message-count": Int(250), "session-id": "mine"}
    scene.ask(path, "peek-message", body)


@row(LISTEN, MANAGEMENT, "peek-message", "peek {n} messages of a partitioned queue", 250, few=60)
def peek_partitioned(scene: Scene, n: int) -> None:
    path = scene.queue(enable_partitioning=True)
    scene.fill(path, n, 1_000)
    scene.ask(path, "peek-message", {"from-sequence-number": Long(0), "message-count": Int(n)})


@row(LISTEN, MANAGEMENT, "receive-by-sequence-number", "receive {n} deferred messages", _ITEMS_MAX, few=250)
def fetch_small(scene: Scene, n: int) -> None:
    path = scene.queue()
    numbers = deferred(scene, path, n, 10)
    scene.ask(path, "receive-by-sequence-number", {"sequence-numbers": longs(numbers)})


@row(
    LISTEN, MANAGEMENT, "receive-by-sequence-number", "receive {n} deferred messages of 256 KB", 64, unread=4
)
def fetch_large(scene: Scene, n: int) -> None:
    path = scene.queue()
    numbers = deferred(scene, path, n, 255_000)
    scene.ask(path, "receive-by-sequence-number", {"sequence-numbers": longs(numbers)})


@row(
    LISTEN,
    MANAGEMENT,
    "receive-by-sequence-number",
    "receive {n} deferred messages of 256 KB, which is too much",
    80,
    unread=2,
)
def fetch_too_much(scene: Scene, n: int) -> None:
    path = scene.queue()
    body = {"sequence-numbers": longs(deferred(scene, path, n, 255_000))}
    scene.ask(path, "receive-by-sequence-number", body, status=400 if n > 65 else 200)


@row(
    LISTEN,
    MANAGEMENT,
    "receive-by-sequence-number",
    "receive and delete {n} deferred messages",
    _ITEMS_MAX,
    few=250,
)
def fetch_deleting(scene: Scene, n: int) -> None:
    path = scene.queue()
    numbers = deferred(scene, path, n, 10)
    body = {"sequence-numbers": longs(numbers), "receiver-settle-mode": Int(0)}
    scene.ask(path, "receive-by-sequence-number", body)


@row(
    LISTEN,
    MANAGEMENT,
    "receive-by-sequence-number",
    "ask for {n} messages that do not exist",
    _ITEMS_MAX,
    few=250,
)
def fetch_missing(scene: Scene, n: int) -> None:
    path = scene.queue()
    body = {"sequence-numbers": longs(list(range(1, n + 1)))}
    scene.ask(path, "receive-by-sequence-number", body, status=404)


@row(LISTEN, MANAGEMENT, "batch-delete-messages", "delete {n} messages", 500, few=100)
def batch_delete(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n, 1_000)
    body = {"message-count": Int(n), "enqueued-time-utc": Timestamp(int(time() * 1000) + 1_000)}
    scene.ask(path, "batch-delete-messages", body)


@row(LISTEN, MANAGEMENT, "batch-delete-messages", "delete one message behind {n} locked ones", 4_000, few=250)
def batch_delete_behind(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n + 1, 1)
    locked(scene.client(), path, n)
    body = {"message-count": Int(500), "enqueued-time-utc": Timestamp(int(time() * 1000) + 1_000)}
    scene.ask(path, "batch-delete-messages", body)


# -- locks


@row(LISTEN, MANAGEMENT, "renew-lock", "renew {n} locks", _ITEMS_MAX, few=250)
def renew(scene: Scene, n: int) -> None:
    lock_request(scene, n, "renew-lock")


@row(LISTEN, MANAGEMENT, "renew-lock", "renew {n} locks that nobody has", _ITEMS_MAX, few=250)
def renew_unknown(scene: Scene, n: int) -> None:
    path = scene.queue()
    unknown = Array([uuid4() for _ in range(n)], _UUIDS)
    scene.ask(path, "renew-lock", {"lock-tokens": unknown}, status=410)


@row(LISTEN, MANAGEMENT, "update-disposition", "complete {n} messages", _ITEMS_MAX, few=250)
def complete(scene: Scene, n: int) -> None:
    lock_request(scene, n, "update-disposition", **{"disposition-status": "completed"})


@row(LISTEN, MANAGEMENT, "update-disposition", "abandon {n} messages", _ITEMS_MAX, few=250)
def abandon(scene: Scene, n: int) -> None:
    lock_request(scene, n, "update-disposition", **{"disposition-status": "abandoned"})


@row(LISTEN, MANAGEMENT, "update-disposition", "defer {n} messages", _ITEMS_MAX, few=250)
def defer(scene: Scene, n: int) -> None:
    lock_request(scene, n, "update-disposition", **{"disposition-status": "defered"})


@row(
    LISTEN,
    MANAGEMENT,
    "update-disposition",
    "defer {n} messages with 30 KB of properties each",
    2_000,
    unread=1,
)
def defer_with_properties(scene: Scene, n: int) -> None:
    more = {"disposition-status": "defered", "properties-to-modify": _PROPERTIES}
    lock_request(scene, n, "update-disposition", **more)


@row(
    LISTEN,
    MANAGEMENT,
    "update-disposition",
    "dead-letter {n} messages with a reason of 30 KB",
    2_000,
    unread=1,
)
def dead_letter(scene: Scene, n: int) -> None:
    more = {"disposition-status": "suspended", "deadletter-reason": "r" * 30_000}
    lock_request(scene, n, "update-disposition", **more)


# -- sessions


def session_desk(scene: Scene, path: str, session: str) -> tuple[AmqpClient, Desk]:
    client, desk = scene.desk(path)
    _, frame = client.attach_frame(path, sends=False, name="mine", session=session)
    client.write(frame)
    client.hear(Attach=1)
    return client, desk


def session_request(scene: Scene, operation: str, *, state: bytes | None = None, **body: object) -> None:
    path = scene.queue(requires_session=True)
    scene.fill(path, 1, session="s")
    client, desk = session_desk(scene, path, "s")
    if state is not None:
        client.write(desk.operation("set-session-state", {"session-id": "s", "session-state": state}))
        client.hear(Transfer=1)
    scene.answered(client, desk.operation(operation, {"session-id": "s", **body}, times=scene.times))


@row(LISTEN, MANAGEMENT, "renew-session-lock", "renew the lock of a session")
def renew_session(scene: Scene, _n: int) -> None:
    session_request(scene, "renew-session-lock")


@row(LISTEN, MANAGEMENT, "set-session-state", "set a state of {n} bytes", 250_000, unread=20)
def set_state(scene: Scene, n: int) -> None:
    session_request(scene, "set-session-state", **{"session-state": bytes(n)})


@row(LISTEN, MANAGEMENT, "get-session-state", "get a state of {n} bytes", 250_000, unread=24)
def get_state(scene: Scene, n: int) -> None:
    session_request(scene, "get-session-state", state=bytes(n))


@row(
    LISTEN,
    MANAGEMENT,
    "get-message-sessions",
    "list 1,000 sessions behind {n} others",
    4_000,
    few=500,
)
def list_sessions(scene: Scene, n: int) -> None:
    path = scene.queue(requires_session=True)
    scene.fill(path, n + 1_000, sessions=[f"s{i:06}" for i in range(n + 1_000)])
    body = {"last-updated-time": _ANY_DATE, "skip": Int(n), "top": Int(1_000)}
    scene.ask(path, "get-message-sessions", body)


@row(
    LISTEN,
    MANAGEMENT,
    "get-message-sessions",
    "list 1,000 sessions of a partitioned queue behind {n} others",
    3_000,
    few=250,
)
def list_partitioned_sessions(scene: Scene, n: int) -> None:
    path = scene.queue(requires_session=True, enable_partitioning=True)
    scene.fill(path, n + 1_000, sessions=[f"s{i:06}" for i in range(n + 1_000)])
    body = {"last-updated-time": _ANY_DATE, "skip": Int(n), "top": Int(1_000)}
    scene.ask(path, "get-message-sessions", body)


# -- schedules


@row(SEND, MANAGEMENT, "schedule-message", "schedule {n} messages", 2_500, few=250)
def schedule(scene: Scene, n: int) -> None:
    path = scene.queue()
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(int(time() * 1000) + 3_600_000)}
    data = payload(1, message_annotations=due)
    scene.ask(path, "schedule-message", {"messages": [{"message": data} for _ in range(n)]})


@row(SEND, MANAGEMENT, "schedule-message", "schedule {n} messages of 250 KB, which is too much", 15, unread=4)
def schedule_large(scene: Scene, n: int) -> None:
    path = scene.queue(requires_duplicate_detection=True)
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(int(time() * 1000) + 3_600_000)}
    data = payload(250_000, message_annotations=due)
    scene.ask(path, "schedule-message", {"messages": [{"message": data} for _ in range(n)]}, status=403)


@row(
    SEND,
    MANAGEMENT,
    "cancel-scheduled-message",
    "cancel {n} scheduled messages",
    _ITEMS_MAX,
    few=250,
)
def cancel(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n, scheduled_at_ms=int(time() * 1000) + 3_600_000)
    scene.ask(path, "cancel-scheduled-message", {"sequence-numbers": longs(list(range(1, n + 1)))})


@row(
    SEND,
    MANAGEMENT,
    "cancel-scheduled-message",
    "cancel {n} messages of a partitioned queue that do not exist",
    _ITEMS_MAX,
    few=250,
)
def cancel_missing(scene: Scene, n: int) -> None:
    path = scene.queue(enable_partitioning=True)
    body = {"sequence-numbers": longs(list(range(1, n + 1)))}
    scene.ask(path, "cancel-scheduled-message", body, status=404)


# -- rules


def subscription(scene: Scene, rules: list[Rule]) -> str:
    return f"{scene.topic(1, tuple(rules))}/Subscriptions/s0"


def sql_text(parts: int) -> str:
    """As long as a text may be, and nothing that can be looked up."""
    return " OR ".join(f"(a{n} LIKE '%x_{n}%')" for n in range(parts))


@row(
    MANAGE,
    MANAGEMENT,
    "add-rule",
    "add a rule of 1,024 characters to a topic with {n} rules",
    1_000,
    few=100,
    growth=FLAT,
)
def add_rule(scene: Scene, n: int) -> None:
    path = subscription(scene, [Rule(f"r{i}", SqlFilter(f"a = {i} OR b LIKE '%{i}'")) for i in range(n)])
    body = {"rule-name": "worst", "rule-description": {"sql-filter": {"expression": sql_text(45)}}}
    scene.ask(path, "add-rule", body)


@row(MANAGE, MANAGEMENT, "add-rule", "add a rule that compares {n} properties", 1_700, few=250)
def add_correlation(scene: Scene, n: int) -> None:
    _add_correlation(scene, n, 200)


@row(
    MANAGE,
    MANAGEMENT,
    "add-rule",
    "add a rule that compares {n} properties, which is too much",
    32_000,
    unread=2,
)
def add_large_correlation(scene: Scene, n: int) -> None:
    _add_correlation(scene, n, 400 if n > 1_900 else 200)


def _add_correlation(scene: Scene, n: int, status: int) -> None:
    path = f"{scene.topic(1)}/Subscriptions/s0"
    described = {"correlation-filter": {"properties": {f"p{i}": "x" for i in range(n)}}}
    scene.ask(path, "add-rule", {"rule-name": "worst", "rule-description": described}, status=status)


@row(MANAGE, MANAGEMENT, "remove-rule", "remove one of {n} rules", 1_000, few=100, growth=FLAT)
def remove_rule(scene: Scene, n: int) -> None:
    path = subscription(scene, [Rule(f"r{i}", SqlFilter(f"a = {i} OR b LIKE '%{i}'")) for i in range(n)])
    scene.ask(path, "remove-rule", {"rule-name": "r7"})


@row(LISTEN, MANAGEMENT, "enumerate-rules", "enumerate {n} rules of 1,024 characters", 1_000, few=50)
def enumerate_rules(scene: Scene, n: int) -> None:
    path = subscription(scene, [Rule(f"r{i}", SqlFilter(f"a = '{'x' * 1_000}'")) for i in range(n)])
    scene.ask(path, "enumerate-rules", {"skip": Int(0), "top": Int(n)})


@row(
    LISTEN,
    MANAGEMENT,
    "enumerate-rules",
    "enumerate {n} rules that compare 60 KB of properties",
    100,
    unread=8,
)
def enumerate_large(scene: Scene, n: int) -> None:
    _enumerate(scene, n, [("p" * 30 + str(i), "x" * 900) for i in range(60)], 200)


@row(LISTEN, MANAGEMENT, "enumerate-rules", "enumerate {n} rules that compare 1,600 properties", 100)
def enumerate_many_properties(scene: Scene, n: int) -> None:
    _enumerate(scene, n, [(f"p{i}", "x") for i in range(1_600)], 200)


@row(LISTEN, MANAGEMENT, "enumerate-rules", "enumerate {n} rules of 60 KB, which is too much", 300)
def enumerate_too_much(scene: Scene, n: int) -> None:
    _enumerate(scene, n, [("p" * 30 + str(i), "x" * 900) for i in range(60)], 400 if n > 200 else 200)


def _enumerate(scene: Scene, n: int, pairs: list[tuple[str, str]], status: int) -> None:
    compared = tuple((name, TypedValue("string", text)) for name, text in pairs)
    path = subscription(scene, [Rule(f"r{i}", CorrelationFilter(properties=compared)) for i in range(n)])
    scene.ask(path, "enumerate-rules", {"skip": Int(0), "top": Int(n)}, status=status)
