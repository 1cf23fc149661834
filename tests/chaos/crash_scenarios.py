"""What is under way when the disk fails: short scenarios, each a few steps, each step one operation of a client.

A step starts from what is stored and from nothing else, so that it can be taken again after a crash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from busway.amqp.types import Int
from busway.broker.bulk.claims import Claims
from busway.message.message import Message
from busway.model.descriptions import AuthorizationRule, Description, QueueDescription
from busway.model.errors import ServerBusy
from busway.model.settlement import Settlement, Verb
from tests.chaos.crash_world import QUEUE, CrashWorld, queue

Act = Callable[[CrashWorld], Awaitable[None]]


@dataclass(frozen=True)
class Step:
    act: Act
    #: What only time asked for: nobody was promised anything, so after a crash it may be done or still to do.
    by_time: bool = False
    #: What reaches several stores is not one commit. It may be cut off between them, and leaves done what is done.
    is_in_parts: bool = False


_PLAIN = QueueDescription(QUEUE)


@dataclass(frozen=True)
class CrashScenario:
    name: str
    steps: tuple[Step, ...]
    description: Description = _PLAIN
    #: On a healthy disk, before anything goes wrong.
    prepare: Act | None = None
    #: Must change nothing, whenever it is tried after the first so many steps.
    probe: Callable[[CrashWorld, int], Awaitable[None]] | None = None
    store_count: int = 1
    #: Entities that are created after the first, in this order.
    others: tuple[Description, ...] = ()
    #: Fragments, and with them numbers and order, are chosen in memory.
    is_loose: bool = False


def text(name: str, size: int = 40, **fields: str | int | None) -> Message:
    """A body of its own for each name, as long as asked."""
    bare = (name.encode() + b"-") * (size // (len(name) + 1) + 1)
    message = Message(b"", bare[:size])
    for field, value in fields.items():
        setattr(message, field, value)
    return message


def texts(prefix: str, count: int, size: int = 40, **fields: str | int | None) -> list[Message]:
    return [text(f"{prefix}{number}", size, **fields) for number in range(count)]


async def _fill(world: CrashWorld) -> None:
    await world.send(*texts("old", 12, 900))


# -- sending


async def _send_small(world: CrashWorld) -> None:
    await world.send(text("small"))


async def _send_run(world: CrashWorld) -> None:
    await world.send(*texts("run", 6, 3000))


async def _send_large(world: CrashWorld) -> None:
    await world.send(text("large", 90_000))


async def _send_with_life(world: CrashWorld) -> None:
    await world.send(text("long", ttl_ms=86_400_000), text("short", ttl_ms=60_000))


async def _send_batch_small(world: CrashWorld) -> None:
    await world.send_batch(*texts("few", 3))


async def _send_batch_of_many_pages(world: CrashWorld) -> None:
    await world.send_batch(*texts("many", 40, 3000))


# -- settling

_COMPLETE = Settlement(Verb.COMPLETE)
_ABANDON = Settlement(Verb.ABANDON)


def _settles(settlement: Settlement, count: int) -> Act:
    async def act(world: CrashWorld) -> None:
        await world.settle(await world.receive(count), settlement)

    return act


def _completes_dead_letters(count: int) -> Act:
    async def act(world: CrashWorld) -> None:
        await world.settle(await world.receive(count, dead_letter=True), _COMPLETE, dead_letter=True)

    return act


def _takes(count: int) -> Act:
    """Receive and delete: what was delivered never comes again."""

    async def act(world: CrashWorld) -> None:
        await world.receive(count, deletes=True)

    return act


async def _complete_deferred(world: CrashWorld) -> None:
    main = world.queue.main
    deferred = [each for each in await main.peek(1, 100) if each.state]
    numbers = [each.sequence_number for each in deferred[:1]]
    await world.settle(await main.receive_by_number(numbers, deletes=False), _COMPLETE)


async def _delete_several(world: CrashWorld) -> None:
    await world.queue.main.delete_messages(5, world.clock.wall_ms() + 1)


# -- time

START_MS = 1_700_000_000_000
_MINUTE_MS = 60_000


async def _schedule(world: CrashWorld) -> None:
    due = {"scheduled_at_ms": START_MS + _MINUTE_MS}
    await world.queue.schedule(texts("due", 3, 900, **due))


async def _schedule_late(world: CrashWorld) -> None:
    await world.queue.schedule([text("late", scheduled_at_ms=START_MS + 90 * _MINUTE_MS)])


async def _cancel_late(world: CrashWorld) -> None:
    scheduled = [each for each in await world.queue.main.peek(1, 100) if each.bare.startswith(b"late")]
    await world.queue.cancel_scheduled([each.sequence_number for each in scheduled])


async def _let_them_be_due(world: CrashWorld) -> None:
    counters = world.queue.main.counters
    await world.pass_until(START_MS + 2 * _MINUTE_MS, lambda: counters.scheduled == 0)


async def _send_short_lived(world: CrashWorld) -> None:
    await world.send(*texts("brief", 3, 900, ttl_ms=_MINUTE_MS), text("lasting"))


async def _let_them_expire(world: CrashWorld) -> None:
    counters = world.queue.dead_letter.counters
    await world.pass_until(START_MS + 2 * _MINUTE_MS, lambda: counters.active == 3, and_on_s=0.1)


async def _let_the_locks_end(world: CrashWorld) -> None:
    """Two deliveries nobody settles: each counts, and counts once."""
    numbers = [each.message.sequence_number for each in await world.receive(2)]
    await world.pass_until(world.clock.wall_ms() + 2 * _MINUTE_MS, lambda: True)
    again = [each.message for each in await world.receive(2)]
    assert [(each.sequence_number, each.delivery_count) for each in again] == [(n, 1) for n in numbers]


# -- sessions


async def _send_in_sessions(world: CrashWorld) -> None:
    await world.send(*(text(f"in-{name}", 900, session_id=name) for name in "abab"))


async def _set_state(world: CrashWorld) -> None:
    session = await world.accept("a")
    await world.queue.main.set_session_state("a", b"state" * 400)
    session.close()


async def _complete_in_session(world: CrashWorld) -> None:
    session = await world.accept("a")
    held = await world.receive_in(session, 2)
    await world.settle(held[:1], _COMPLETE, session_id="a")
    session.close()


async def _complete_in_other_session(world: CrashWorld) -> None:
    session = await world.accept("b")
    await world.settle(await world.receive_in(session, 2), _COMPLETE, session_id="b")
    session.close()


async def _clear_state(world: CrashWorld) -> None:
    session = await world.accept("a")
    await world.queue.main.set_session_state("a", None)
    session.close()


# -- duplicates

_IDS = (("one",), ("two", "three"), ("one", "four"), ("five", "two", "six"))


def _sends_ids(position: int) -> Act:
    async def act(world: CrashWorld) -> None:
        await world.send_batch(*(text(name, 300, message_id=name) for name in _IDS[position]))

    return act


async def _resend_known(world: CrashWorld, steps: int) -> None:
    """What was stored is known by its id: message and id came together."""
    for ids in _IDS[:steps]:
        await world.send(*(text(f"again-{name}", message_id=name) for name in ids))


# -- the namespace

_OTHER = QueueDescription("other", max_delivery_count=3)


async def _create_other(world: CrashWorld) -> None:
    await world.create(_OTHER)


async def _create_several(world: CrashWorld) -> None:
    await world.create(*(replace(_OTHER, path=f"more/{name}") for name in ("x", "y", "z")))


async def _update_other(world: CrashWorld) -> None:
    present = world.namespace.description("other")
    assert isinstance(present, QueueDescription)
    await world.namespace.update(replace(present, max_delivery_count=7, user_metadata="changed"))


async def _set_rules(world: CrashWorld) -> None:
    listen = AuthorizationRule("listen", frozenset({"Listen"}), "a" * 43, "b" * 43)
    await world.namespace.access.set((world.namespace.access.rules()[0], listen))


async def _fill_other(world: CrashWorld) -> None:
    await world.send(*texts("gone", 8, 900), path="other")


async def _delete_other(world: CrashWorld) -> None:
    await world.namespace.delete("other")


def steps(*acts: Act) -> tuple[Step, ...]:
    return tuple(Step(act) for act in acts)


def _claims(stamp: str, count: int) -> Act:
    """Takes so many and holds them, in one commit."""

    async def act(world: CrashWorld) -> None:
        claims, outlet = Claims(world.clock), world.queue.outlet(False)
        claim = await claims.take(world.queue, outlet, stamp, count, 0.0)
        numbers = [number for part in claim.parts for number in part.numbers]
        if len(numbers) < count or await claims.hold(outlet, stamp, numbers) != numbers:
            raise ServerBusy("the store failed before the messages were held")

    return act


def _settles_claim(stamp: str) -> Act:
    async def act(world: CrashWorld) -> None:
        numbers = list(range(1, 100))
        assert (await Claims(world.clock).settle(world.queue.outlet(False), stamp, numbers))[1] == 0

    return act


def _releases_claim(stamp: str) -> Act:
    async def act(world: CrashWorld) -> None:
        await Claims(world.clock).release(world.queue.outlet(False), stamp)

    return act


_PROPERTIES: dict[str, object] = {"reason": "tired", "tries": Int(2)}

SCENARIOS: tuple[CrashScenario, ...] = (
    CrashScenario("send", steps(_send_small, _send_run, _send_large, _send_with_life)),
    CrashScenario("batch", steps(_send_batch_small, _send_batch_of_many_pages), prepare=_fill),
    CrashScenario(
        "receive and complete",
        steps(_settles(_COMPLETE, 1), _settles(_COMPLETE, 6), _send_small),
        prepare=_fill,
    ),
    CrashScenario("receive and delete", steps(_takes(1), _takes(4), _delete_several), prepare=_fill),
    CrashScenario(
        "abandon",
        steps(
            _settles(_ABANDON, 2),
            _settles(Settlement(Verb.ABANDON, _PROPERTIES), 1),
            _settles(_ABANDON, 1),  # the third failure of the first message: a dead letter
        ),
        queue(max_delivery_count=3),
        prepare=_fill,
    ),
    CrashScenario(
        "defer",
        steps(_settles(Settlement(Verb.DEFER, _PROPERTIES), 2), _complete_deferred, _complete_deferred),
        prepare=_fill,
    ),
    CrashScenario(
        "claims",
        steps(_claims("a", 3), _claims("b", 2), _settles_claim("a"), _releases_claim("b")),
        prepare=_fill,
    ),
    CrashScenario(
        "dead-letter",
        steps(
            _settles(Settlement(Verb.DEAD_LETTER, None, "bad", "very"), 1),
            _settles(Settlement(Verb.DEAD_LETTER), 3),
            _completes_dead_letters(2),
        ),
        prepare=_fill,
    ),
    CrashScenario(
        "schedule and activate",
        (*steps(_schedule, _schedule_late, _cancel_late), Step(_let_them_be_due, by_time=True)),
    ),
    CrashScenario(
        "expire",
        (*steps(_send_short_lived), Step(_let_them_expire, by_time=True)),
        queue(dead_lettering_on_message_expiration=True),
    ),
    CrashScenario("locks that end", (Step(_let_the_locks_end, by_time=True),), prepare=_fill),
    CrashScenario(
        "sessions and their states",
        steps(_send_in_sessions, _set_state, _complete_in_session, _complete_in_other_session, _clear_state),
        queue(requires_session=True),
    ),
    CrashScenario(
        "duplicates",
        steps(*(_sends_ids(position) for position in range(len(_IDS)))),
        queue(requires_duplicate_detection=True),
        probe=_resend_known,
    ),
    CrashScenario(
        "create, change and delete queues",
        steps(
            _create_other,
            _fill_other,
            _update_other,
            _set_rules,
            _create_several,
            _delete_other,
            _create_other,
        ),
        prepare=_fill,
        store_count=2,
    ),
)
