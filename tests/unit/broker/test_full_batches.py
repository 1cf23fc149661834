"""Publishing to many: a batch that is full of copies takes no more, and what copies share weighs once."""

from busway.message.message import Message
from busway.model.errors import BrokerError, StoreOutcomeUnknown
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench

#: With two subscriptions these make a batch full.
MANY = 5_000
Answers = list[list[tuple[int, BrokerError]]]


async def _busy_fan(bench: TopicBench) -> MemoryStore:
    """Two subscriptions, and a store that commits nothing for the moment: what comes gathers."""
    await bench.topic("t")
    await bench.subscription("t", "a")
    await bench.subscription("t", "b")
    store = bench.stores[0]
    store.hold_commits()
    store.batch().callbacks.append(lambda _error: None)
    await settle()  # one batch is being written, so the next stays open
    return store


def _publish(bench: TopicBench, *texts: str, count: int = 1) -> Answers:
    """One run for each text, with `count` messages, at once."""
    answers: Answers = []
    for text in texts:
        messages = [Message(b"", encoded(text)) for _ in range(count)]
        bench.namespace.sender("t").send(messages, answers.append)
    return answers


def test_a_full_batch_makes_publishers_wait_and_keeps_their_order() -> None:
    """T-1, S-4: nobody is refused, and a batch that holds the loop for long is not made."""

    async def test(bench: TopicBench) -> None:
        store = await _busy_fan(bench)
        many = _publish(bench, "many", count=MANY)
        await settle()
        few = _publish(bench, "c", "d", "e")
        await settle()
        assert len(store.batch().puts) == 2 * MANY
        assert (many, few) == ([], [])
        store.release_commits()
        await settle(60)
        assert (many, few) == ([[]], [[], [], []])
        for path in ("t/Subscriptions/a", "t/Subscriptions/b"):
            last = await bench.namespace.queue(path).main.peek(MANY, 10)
            assert [message.bare for message in last] == [encoded(text) for text in ("many", "c", "d", "e")]
        assert (await bench.namespace.counts("t")).size_bytes == 2 * sum(
            [MANY * len(encoded("many")), *(len(encoded(text)) for text in "cde")]
        )

    on_a_topic_bench(test)


def test_waiting_publishers_are_told_when_the_store_fails() -> None:
    """S-1: nobody waits for ever, and what waited is refused for certain."""

    async def test(bench: TopicBench) -> None:
        store = await _busy_fan(bench)
        many = _publish(bench, "many", count=MANY)
        await settle()
        few = _publish(bench, "c", "d")
        store.release_commits()
        await settle(1)  # the one before is durable
        store.lose_next_commit(is_applied=True)
        await settle(60)
        assert isinstance(many[0][0][1], StoreOutcomeUnknown)
        assert [len(answer) for answer in few] == [1, 1]
        assert not any(isinstance(answer[0][1], StoreOutcomeUnknown) for answer in few)
        await bench.advance(30.0)
        assert (await bench.namespace.counts("t/Subscriptions/a")).active == MANY

    on_a_topic_bench(test)


def test_shared_bytes_weigh_once_in_a_batch() -> None:
    """T-6: a publish to many does not make the store look congested."""

    async def test(bench: TopicBench) -> None:
        store = await _busy_fan(bench)
        payload_bytes = len(encoded("x" * 10_000))
        _publish(bench, "x" * 10_000)
        assert payload_bytes < store.batch().bytes < payload_bytes + 1_000
        store.release_commits()

    on_a_topic_bench(test)
