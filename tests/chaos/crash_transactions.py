"""What is under way when the disk fails, in a client's transaction: it is there as a whole, or not at all (TX-8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from busway.broker.transaction.transactions import Transaction
from busway.message.message import Message
from busway.model.descriptions import QueueDescription, TopicDescription
from busway.model.settlement import Settlement, Verb
from tests.chaos.crash_scenarios import START_MS, Act, CrashScenario, steps, text, texts
from tests.chaos.crash_spread import LAST, MOVE, TOPIC, keyed, on, sends
from tests.chaos.crash_world import QUEUE, CrashWorld, queue

_COMPLETE: Final = Settlement(Verb.COMPLETE)
_DEFER: Final = Settlement(Verb.DEFER)
_DEAD_LETTER: Final = Settlement(Verb.DEAD_LETTER, None, "bad", "very")
_ABANDON: Final = Settlement(Verb.ABANDON)
_FEW: Final = f"{TOPIC}/Subscriptions/few"


def _transacts(
    name: str,
    *settlements: Settlement,
    sent: int = 2,
    key: str | None = None,
    path: str = QUEUE,
    received_from: str | None = None,
    via_to: str | None = None,
    rolls_back: bool = False,
) -> Act:
    """Receives as many messages as there are settlements, and in one transaction settles each in its way and sends
    others. `via_to`: as many again go to that entity by way of the first. One that rolls back settles afterwards,
    with the locks that it has got back."""

    async def act(world: CrashWorld) -> None:
        source = received_from or path
        outlet = world.namespace.queue(source).inlet if settlements else None
        held = await world.receive(len(settlements), path=source) if settlements else []

        async def gather(transaction: Transaction) -> None:
            for delivery, settlement in zip(held, settlements, strict=True):
                assert outlet is not None
                for _, error in transaction.settle(outlet, [delivery.token], settlement, None):
                    raise error
            inlet = world.namespace.sender(path).inlet
            for number in range(sent):
                transaction.send(inlet, [text(f"{name}-{number}", 300, partition_key=key)])
            if via_to is not None:
                way = world.namespace.transfer_queues.send_via(path, via_to)
                assert way is not None, "it was prepared"
                way.send_in(transaction, [_moved(f"{name}-moved-{number}", key) for number in range(sent)])

        await world.transact(gather, rolls_back=rolls_back)
        if rolls_back:
            await world.settle(held, _COMPLETE, path=source)

    return act


def _moved(name: str, key: str | None) -> Message:
    return text(name, 300, partition_key=key)


# -- what waits for its time


async def _schedule(world: CrashWorld) -> None:
    async def gather(transaction: Transaction) -> None:
        late = [_due(f"late-{number}") for number in range(3)]
        transaction.schedule(world.queue.inlet, late)
        transaction.send(world.queue.inlet, [text("now")])

    await world.transact(gather)


def _due(name: str) -> Message:
    return text(name, 300, scheduled_at_ms=START_MS + 3_600_000)


async def _cancel(world: CrashWorld) -> None:
    waiting = [each for each in await world.queue.inlet.peek(1, 100) if each.bare.startswith(b"late")]

    async def gather(transaction: Transaction) -> None:
        await transaction.cancel(world.queue.inlet, [each.sequence_number for each in waiting[:2]])
        transaction.send(world.queue.inlet, [text("instead")])

    await world.transact(gather)


# -- duplicates

_IDS: Final = (("one", "two"), ("two", "three"), ("one",))


def _sends_ids(position: int) -> Act:
    async def act(world: CrashWorld) -> None:
        async def gather(transaction: Transaction) -> None:
            for name in _IDS[position]:
                transaction.send(world.queue.inlet, [text(name, 300, message_id=name)])
            transaction.send(world.queue.inlet, [text(f"new-{position}", 300, message_id=f"new-{position}")])

        await world.transact(gather)

    return act


async def _resend_known(world: CrashWorld, done: int) -> None:
    for ids in _IDS[:done]:
        await world.send(*(text(f"again-{name}", message_id=name) for name in ids))


# -- by way of another entity


async def _prepare_way(world: CrashWorld) -> None:
    await world.namespace.transfer_queues.prepare(QUEUE)


async def _fill_and_prepare_way(world: CrashWorld) -> None:
    await sends(*texts("old", 6, 900))(world)
    await _prepare_way(world)


async def _fill_fragment_and_prepare_way(world: CrashWorld) -> None:
    await sends(*keyed("old", "a", 6))(world)
    await _prepare_way(world)


_FILL: Final = sends(*texts("old", 12, 900))

TRANSACTION_SCENARIOS: Final[tuple[CrashScenario, ...]] = (
    CrashScenario(
        "complete and send",
        steps(
            _transacts("first", _COMPLETE),
            _transacts("second", _COMPLETE, _COMPLETE, _COMPLETE, sent=1),
            _transacts("third", sent=6),
        ),
        prepare=_FILL,
    ),
    CrashScenario(
        "other settlements and sends",
        steps(
            _transacts("first", _DEAD_LETTER, sent=1),
            _transacts("second", _DEFER, _COMPLETE, sent=1),
            _transacts("third", _ABANDON, _DEAD_LETTER, _DEFER, sent=2),
        ),
        queue(max_delivery_count=3),
        prepare=_FILL,
    ),
    CrashScenario(
        "roll back",
        steps(
            _transacts("never", _COMPLETE, _DEAD_LETTER, rolls_back=True),
            _transacts("then", _COMPLETE),
        ),
        prepare=_FILL,
    ),
    CrashScenario("schedule and cancel", steps(_schedule, _cancel)),
    CrashScenario(
        "duplicates in transactions",
        steps(*(_sends_ids(position) for position in range(len(_IDS)))),
        queue(requires_duplicate_detection=True),
        probe=_resend_known,
    ),
    CrashScenario(
        "transactions on a topic",
        steps(
            _transacts("first", path=TOPIC),
            _transacts("second", _COMPLETE, _DEAD_LETTER, path=TOPIC, received_from=_FEW),
        ),
        TopicDescription(TOPIC),
        others=(on("all"), on("few"), on("more")),
    ),
    CrashScenario(
        "transactions in a fragment",
        steps(
            _transacts("first", _COMPLETE, key="a"),
            _transacts("second", _COMPLETE, _DEAD_LETTER, key="a"),
            _transacts("never", _COMPLETE, key="a", rolls_back=True),
            _transacts("third", key="b"),
        ),
        queue(enable_partitioning=True),
        prepare=sends(*keyed("old", "a", 6)),
        store_count=2,
        is_loose=True,
    ),
    CrashScenario(
        "send via inside a store",
        (*steps(_prepare_way, _transacts("first", sent=1, via_to=LAST)), MOVE),
        others=(QueueDescription(LAST),),
    ),
    CrashScenario(
        "send via to another store",
        (
            *steps(_transacts("first", _COMPLETE, via_to=LAST)),
            MOVE,
            *steps(
                _transacts("never", _COMPLETE, via_to=LAST, rolls_back=True),
                _transacts("second", _DEAD_LETTER, sent=1, via_to=LAST),
            ),
            MOVE,
        ),
        prepare=_fill_and_prepare_way,
        others=(QueueDescription(LAST),),
        store_count=2,
    ),
    CrashScenario(
        "send via a partitioned queue to another",
        (*steps(_transacts("first", _COMPLETE, key="a", via_to=LAST)), MOVE),
        queue(enable_partitioning=True),
        prepare=_fill_fragment_and_prepare_way,
        others=(replace(QueueDescription(LAST), enable_partitioning=True),),
        store_count=2,
        is_loose=True,
    ),
)
