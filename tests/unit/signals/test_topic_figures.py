"""Topics, subscriptions and forwarding in the figures."""

import asyncio

from busway.signals.exposition import Exposition
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench
from tests.unit.gateway.test_http_metrics import samples


async def scrape(bench: TopicBench) -> dict[tuple[str, str], float]:
    return samples((await Exposition(bench.namespace).text()).decode())


def test_a_topic_counts_what_was_published_and_a_subscription_its_copies() -> None:
    """O-1, O-4: each under its own path."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "one")
        await bench.subscription("t", "two")
        await bench.publish("t", encoded("a"), encoded("b"))
        found = await scrape(bench)
        for path in ("t", "t/Subscriptions/one", "t/Subscriptions/two"):
            assert found["busway_incoming_messages_total", path] == 2
            assert found["busway_outgoing_messages_total", path] == 0
        assert found["busway_active_messages", "t/Subscriptions/one"] == 2
        await bench.namespace.delete("t")
        assert not {entity for _, entity in await scrape(bench) if entity.startswith("t")}

    on_a_topic_bench(test)


def test_a_forwarded_message_is_incoming_there_and_not_outgoing_here() -> None:
    """O-4: IncomingMessages counts forwarded ones, OutgoingMessages does not."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("there")
        await bench.queue("here", forward_to="there")
        await bench.publish("here", encoded("a"))
        for _ in range(50):
            await asyncio.sleep(0)
        found = await scrape(bench)
        assert found["busway_incoming_messages_total", "here"] == 1
        assert found["busway_outgoing_messages_total", "here"] == 0
        assert found["busway_incoming_messages_total", "there"] == 1
        assert found["busway_active_messages", "there"] == 1

    on_a_topic_bench(test)
