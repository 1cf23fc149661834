"""What is under way when the disk fails, where more than one fragment or store has a part in it: topics, forwarding,
partitioned entities, and the change of these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from busway.message.message import Message
from busway.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.settlement import Settlement, Verb
from busway.rules.rule import Rule, SqlFilter
from tests.chaos.crash_scenarios import Act, CrashScenario, Step, steps, text, texts
from tests.chaos.crash_world import QUEUE, CrashWorld, queue

TOPIC: Final = "news"
LAST: Final = "last"
#: With four fragments: the key of each of them.
KEYS: Final = ("d", "b", "e", "a")
_COMPLETE: Final = Settlement(Verb.COMPLETE)
_TOPIC: Final = TopicDescription(TOPIC)
_SPREAD_TOPIC: Final = TopicDescription(TOPIC, enable_partitioning=True)
_LAST: Final = QueueDescription(LAST)


def on(name: str, **values: Any) -> SubscriptionDescription:
    """A subscription of the topic."""
    return replace(SubscriptionDescription(f"{TOPIC}/Subscriptions/{name}"), **values)


async def let_move(world: CrashWorld) -> None:
    await world.rest()


MOVE: Final = Step(let_move, by_time=True)


def sends(*messages: Message, path: str = QUEUE) -> Act:
    """Into one fragment, so in one commit."""

    async def act(world: CrashWorld) -> None:
        await world.send(*map(_copied, messages), path=path)

    return act


def sends_batch(*messages: Message, path: str = QUEUE) -> Act:
    async def act(world: CrashWorld) -> None:
        await world.send_batch(*map(_copied, messages), path=path)

    return act


def sends_parts(*messages: Message, path: str = QUEUE) -> Step:
    """Into several fragments: those that are not there yet."""

    async def act(world: CrashWorld) -> None:
        present = {each.bare for each in await world.namespace.queue(path).inlet.peek(1, 250)}
        missing = [_copied(each) for each in messages if each.bare not in present]
        if missing:
            await world.send_parts(*missing, path=path)

    return Step(act, is_in_parts=True)


def _copied(message: Message) -> Message:
    """A message bears its number once it is sent; the next life sends another."""
    return Message(
        message.head,
        message.bare,
        session_id=message.session_id,
        partition_key=message.partition_key,
        message_id=message.message_id,
    )


def completes(count: int, path: str = QUEUE) -> Act:
    async def act(world: CrashWorld) -> None:
        await world.settle(await world.receive(count, path=path), _COMPLETE, path=path)

    return act


def dead_letters(count: int, path: str = QUEUE) -> Act:
    async def act(world: CrashWorld) -> None:
        await world.settle(await world.receive(count, path=path), Settlement(Verb.DEAD_LETTER), path=path)

    return act


async def _complete_all(world: CrashWorld) -> None:
    """In all fragments at once."""
    count = len(await world.queue.inlet.peek(1, 250))
    if count:
        await world.settle(await world.receive(count), _COMPLETE)


def keyed(prefix: str, key: str, count: int, size: int = 400) -> list[Message]:
    return texts(f"{prefix}-{key}", count, size, partition_key=key)


# -- the namespace


async def _add_rule(world: CrashWorld) -> None:
    rule = Rule("mine", SqlFilter("sys.Label = 'mine'"))
    await world.namespace.rules.add(f"{TOPIC}/Subscriptions/few", rule)


async def _remove_default(world: CrashWorld) -> None:
    await world.namespace.rules.remove(f"{TOPIC}/Subscriptions/few", "$Default")


async def _create_queue(world: CrashWorld) -> None:
    await world.create(queue(enable_partitioning=True, max_delivery_count=3))


async def _create_topic(world: CrashWorld) -> None:
    await world.create(_SPREAD_TOPIC, on("all"))


def _deletes(path: str) -> Act:
    async def act(world: CrashWorld) -> None:
        await world.namespace.delete(path)

    return act


SPREAD_SCENARIOS: Final[tuple[CrashScenario, ...]] = (
    CrashScenario(
        "publish",
        steps(
            sends(text("one", 900), path=TOPIC),
            sends_batch(*texts("batch", 4, 3000), path=TOPIC),
            completes(2, f"{TOPIC}/Subscriptions/few"),
        ),
        _TOPIC,
        others=(on("all"), on("few"), on("more")),
    ),
    CrashScenario(
        "publish to a partitioned topic",
        (
            *steps(
                sends(text("free", 900), path=TOPIC),
                sends(*keyed("bound", "a", 3), path=TOPIC),
                sends_batch(*keyed("batch", "e", 4, 3000), path=TOPIC),
                sends_batch(*texts("loose", 4, 900), path=TOPIC),
            ),
        ),
        _SPREAD_TOPIC,
        others=(on("all"), on("few"), on("more")),
        store_count=2,
        is_loose=True,
    ),
    CrashScenario(
        "forward inside a store",
        (*steps(sends(text("one")), sends(*texts("run", 3, 900))), MOVE),
        _LAST,
        others=(queue(forward_to=LAST),),
    ),
    CrashScenario(
        "forward between stores",
        (*steps(sends(text("one"))), MOVE, *steps(sends(*texts("run", 3, 900))), MOVE),
        _LAST,
        others=(queue(forward_to=LAST),),
        store_count=2,
    ),
    CrashScenario(
        "forward dead letters between stores",
        (*steps(sends(*texts("run", 3, 900)), dead_letters(2)), MOVE),
        _LAST,
        others=(queue(forward_dead_lettered_messages_to=LAST),),
        store_count=2,
    ),
    CrashScenario(
        "forward subscriptions to another store",
        (*steps(sends(*texts("run", 2, 900), path=TOPIC)), MOVE),
        _LAST,
        others=(_TOPIC, on("all", forward_to=LAST), on("few"), on("more", forward_to=LAST)),
        store_count=2,
        is_loose=True,
    ),
    CrashScenario(
        "forward into a partitioned queue",
        (*steps(sends(*texts("run", 5), text("bound", partition_key="b"))), MOVE),
        QueueDescription(LAST, enable_partitioning=True),
        others=(queue(forward_to=LAST),),
        store_count=2,
        is_loose=True,
    ),
    CrashScenario(
        "forward out of a partitioned queue",
        (*steps(sends(*keyed("x", "a", 2)), sends(*keyed("x", "b", 2)), sends(text("free"))), MOVE),
        _LAST,
        others=(queue(enable_partitioning=True, forward_to=LAST),),
        store_count=2,
        is_loose=True,
    ),
    CrashScenario(
        "send to a partitioned queue",
        (
            *steps(
                sends(*keyed("run", "a", 3, 900)),
                sends(text("free")),
                sends_batch(*keyed("batch", "b", 3)),
                sends_batch(*texts("loose", 3)),
            ),
            sends_parts(*[text(f"to-{key}", partition_key=key) for key in KEYS], *texts("many", 20)),
            Step(_complete_all, is_in_parts=True),
        ),
        queue(enable_partitioning=True),
        store_count=2,
        is_loose=True,
    ),
    CrashScenario(
        "settle in a partitioned queue",
        steps(completes(2), dead_letters(1), completes(1)),
        queue(enable_partitioning=True),
        prepare=sends(*keyed("old", "a", 5)),
        store_count=2,
        is_loose=True,
    ),
    CrashScenario(
        "rules of a partitioned topic",
        steps(_add_rule, sends(text("both"), path=TOPIC), _remove_default),
        _SPREAD_TOPIC,
        others=(on("all"), on("few")),
        store_count=2,
        is_loose=True,
    ),
    CrashScenario(
        "create and delete partitioned entities",
        steps(
            _create_queue,
            sends(*keyed("gone", "a", 2)),
            _create_topic,
            _deletes(QUEUE),
            _deletes(TOPIC),
        ),
        QueueDescription("beside"),
        store_count=2,
        is_loose=True,
    ),
)
