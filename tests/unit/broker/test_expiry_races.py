"""Expiry while commits are on their way."""

from busway.broker.fragment.expiry_and_schedule import expire_rows
from busway.gateway.amqp.message_mapping import message_of
from busway.model.errors import BrokerError
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.rig import Answer, Rig, play, text
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


def test_a_row_that_is_read_before_its_commit_is_reported_does_not_expire_yet() -> None:
    """M-44: a read may show it already. Deleted now, it would be served all the same when the report comes."""

    async def scenario(rig: Rig) -> None:
        rig.store.hold_commits()
        message, answer = text("m", ttl_ms=1_000), Answer()
        rig.main.append([message], answer)
        await rig.advance(5)
        assert message.expires_at_ms <= rig.clock.wall_ms()
        assert expire_rows(rig.main, [message]) == 0
        rig.store.release_commits()
        await rig.advance(5)
        assert answer.is_done
        assert rig.main.counters.active == 0
        assert rig.receiver(10).numbers() == []

    play(scenario)
