"""Expiry while commits are on their way."""

from busway.broker.errors import BrokerError
from busway.gateway.amqp.message_mapping import message_of
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench


def test_a_message_whose_commit_is_not_reported_when_the_head_expires_still_expires() -> None:
    """M-44, D-11: it came just before the one in front of it expired; the sweep could not see it yet."""

    async def test(bench: TopicBench) -> None:
        await bench.queue(
            "q", default_message_time_to_live_ms=1_000, dead_lettering_on_message_expiration=True
        )
        await bench.publish("q", encoded("first"))
        bench.clock.advance(0.999)
        bench.stores[0].hold_commits()
        answers: list[list[tuple[int, BrokerError]]] = []
        queue = bench.namespace.queue("q")
        queue.send([message_of(encoded("second"), False)], answers.append)
        await bench.advance(0.002)
        bench.stores[0].release_commits()
        await settle()
        assert answers == [[]]
        await bench.advance(5, 0.5)
        assert await bench.bodies("q", dead_letter=True) == ["first", "second"]

    on_a_topic_bench(test)
