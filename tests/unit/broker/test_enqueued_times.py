"""Enqueued times over a clock that is set back and a restart: they never go back, however a message came."""

from busway.amqp.types import Timestamp
from busway.message.message import Message
from tests.unit.broker.rig import Rig, play, text
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench


def test_an_activated_message_is_remembered() -> None:
    """M-16, S-34: what is sent after the restart is no earlier."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", scheduled_at_ms=rig.clock.wall_ms() + 10_000))
        await rig.advance(10)
        await rig.restart()
        rig.clock.step_wall(-3600)
        await rig.send_texts("b")
        times = {m.bare: m.enqueued_at_ms for m in await rig.main.peek(0, 10)}
        assert times[b"b"] >= times[b"a"]

    play(scenario)


def test_activation_is_a_use_of_the_queue() -> None:
    """E-111: until this moment there was a scheduled message."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", scheduled_at_ms=rig.clock.wall_ms() + 10_000))
        await rig.advance(10)
        assert rig.queue.counts().accessed_at_ms == rig.clock.wall_ms()

    play(scenario)


async def _times(bench: TopicBench, path: str = "t/Subscriptions/s") -> list[int]:
    found: list[Message] = await bench.namespace.queue(path).outlet(False).peek(0, 10)
    return [message.enqueued_at_ms for message in found]


def test_a_message_that_is_activated_while_nobody_may_send_is_remembered() -> None:
    """M-16, E-83: found by the simulator."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        later = bench.clock.wall_ms() + 10_000
        await bench.publish("q", encoded("a", annotations={"x-opt-scheduled-enqueue-time": Timestamp(later)}))
        await bench.change("q", status="SendDisabled")
        await bench.advance(20)
        assert (await bench.namespace.counts("q")).active == 1, "a look at it would be a use"
        bench.clock.step_wall(-3600)
        await bench.change("q", status="Active")
        await bench.restart()
        await bench.publish("q", encoded("b"))
        first, second = await _times(bench, "q")
        assert second >= first

    on_a_topic_bench(test)


def test_a_copy_is_remembered_by_its_topic() -> None:
    """M-16, T-1, E-111: a subscription is not used by copies, but their times do not go back."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        made_ms = bench.clock.wall_ms()
        await bench.advance(10)
        await bench.publish("t", encoded("a"))
        await bench.restart()
        bench.clock.step_wall(-3600)
        await bench.publish("t", encoded("b"))
        assert (await bench.namespace.counts("t/Subscriptions/s")).accessed_at_ms == made_ms
        first, second = await _times(bench)
        assert second >= first

    on_a_topic_bench(test)


def test_copies_of_a_scheduled_message_are_remembered_by_its_topic() -> None:
    """M-16, S-34: copies of a scheduled message are remembered by its topic."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        later = bench.clock.wall_ms() + 10_000
        await bench.publish("t", encoded("a", annotations={"x-opt-scheduled-enqueue-time": Timestamp(later)}))
        await bench.advance(10)
        assert len(await _times(bench)) == 1
        await bench.restart()
        bench.clock.step_wall(-3600)
        await bench.publish("t", encoded("b"))
        first, second = await _times(bench)
        assert second >= first

    on_a_topic_bench(test)
