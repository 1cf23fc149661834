"""Work that nobody waits for: what one entity refuses stops no other, and whatever happens, there is a next time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from busway.broker.fragment.numbering import NUMBER_MAX
from busway.gateway.amqp.message_mapping import message_of
from busway.model.entity_path import subscription_path
from busway.model.errors import BrokerError, EntityUpdated, ServerBusy
from busway.model.limits import Limits
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import Reader, settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench

A = subscription_path("t", "a")
B = subscription_path("t", "b")
FEW = Limits(sweep_rows_max=4)
CONTROL = object()


async def _schedule(bench: TopicBench, path: str, *bodies: str, in_s: float = 10.0) -> list[int]:
    messages = [message_of(encoded(body), False) for body in bodies]
    for message in messages:
        message.scheduled_at_ms = bench.clock.wall_ms() + round(in_s * 1000)
    return await bench.namespace.sender(path).schedule(messages)


async def _topic_and_queue(bench: TopicBench) -> None:
    await bench.topic("t")
    await bench.subscription("t", "a")
    await bench.subscription("t", "b")
    await bench.queue("q")


def _fail_once(store: MemoryStore, name: str) -> list[str]:
    """The next call of the method raises what nobody expects. What was called, for a look afterwards."""
    whole: Callable[..., Awaitable[Any]] = getattr(store, name)
    called: list[str] = []

    async def fails(*_arguments: Any) -> Any:
        setattr(store, name, whole)
        called.append(name)
        raise RuntimeError("nobody expects this")

    setattr(store, name, fails)
    return called


def test_a_schedule_that_a_subscription_refuses_stops_no_other() -> None:
    """Found by review: S-35, T-9: it fell due while a subscription was updated; the store's Activator was over."""

    async def test(bench: TopicBench) -> None:
        await _topic_and_queue(bench)
        await _schedule(bench, "t", "to the topic")
        await _schedule(bench, "q", "to the queue")
        await _schedule(bench, "q", "later", in_s=11)
        bench.namespace.contents.entities.park(B.lower(), EntityUpdated())
        await bench.advance(10)
        assert (await bench.namespace.counts("q")).active == 1
        await bench.advance(1, step_s=0.1)
        assert (await bench.namespace.counts("q")).active == 2
        assert (await bench.namespace.counts("t")).scheduled == 1
        bench.namespace.contents.entities.unpark(B.lower())
        await bench.advance(1, step_s=0.1)
        assert await bench.bodies(A) == await bench.bodies(B) == ["to the topic"]
        await _schedule(bench, "t", "next")
        await bench.advance(10)
        assert await bench.bodies(B) == ["to the topic", "next"]

    on_a_topic_bench(test)


def test_a_short_update_does_not_make_a_schedule_late() -> None:
    """S-35: less than a second late, so it is tried again soon."""

    async def test(bench: TopicBench) -> None:
        await _topic_and_queue(bench)
        await _schedule(bench, "t", "x")
        bench.namespace.contents.entities.park(B.lower(), EntityUpdated())
        await bench.advance(10)
        await bench.advance(0.1, step_s=0.02)
        bench.namespace.contents.entities.unpark(B.lower())
        await bench.advance(0.4, step_s=0.02)
        assert await bench.bodies(B) == ["x"]

    on_a_topic_bench(test)


def test_many_schedules_of_a_refusing_entity_do_not_starve_the_others() -> None:
    """S-35: they fill a slice of the work, each time anew, and more than one."""

    async def test(bench: TopicBench) -> None:
        await _topic_and_queue(bench)
        await _schedule(bench, "t", *"abcdefghij", in_s=9)
        await _schedule(bench, "q", "x")
        bench.namespace.contents.entities.park(B.lower(), EntityUpdated())
        await bench.advance(9)
        await bench.advance(1)
        assert (await bench.namespace.counts("q")).active == 1
        bench.namespace.contents.entities.unpark(B.lower())
        await bench.advance(2, step_s=0.1)
        assert await bench.bodies(B) == list("abcdefghij")

    on_a_topic_bench(test, limits=FEW)


def test_schedules_that_an_open_transaction_cancels_do_not_hold_up_the_others() -> None:
    """Attack: S-35, S-37: a client that leaves a transaction open may not stall the store's schedules."""

    async def test(bench: TopicBench) -> None:
        await _topic_and_queue(bench)
        await bench.queue("mine")
        numbers = await _schedule(bench, "mine", *"abcdefghij", in_s=9)
        await _schedule(bench, "q", "x")
        await _schedule(bench, "q", "y", in_s=12.3)
        among = bench.namespace.transactions()
        transaction = among.find(among.declare(CONTROL))
        await transaction.cancel(bench.namespace.queue("mine").inlet, numbers)
        await bench.advance(10)
        assert (await bench.namespace.counts("q")).active == 1
        await bench.advance(2.3, step_s=0.1)
        assert (await bench.namespace.counts("q")).active == 2, "exact, though something else is in the way"
        told: list[BrokerError | None] = []
        among.discharge(CONTROL, transaction.txn_id, fail=True, done=told.append)
        await bench.advance(2, step_s=0.1)
        assert (await bench.namespace.counts("mine")).active == 10

    on_a_topic_bench(test, limits=FEW)


def test_a_copy_that_finds_no_number_is_not_lost_when_its_time_comes() -> None:
    """M-37, S-34: the message stays scheduled until there are numbers."""

    async def test(bench: TopicBench) -> None:
        await _topic_and_queue(bench)
        await _schedule(bench, "t", "x")
        main = bench.namespace.queue(A).main
        first = main.counters.last_counter
        main.counters.last_counter = NUMBER_MAX - 1
        await bench.advance(10)
        assert (await bench.namespace.counts("t")).scheduled == 1
        main.counters.last_counter = first
        await bench.advance(2, step_s=0.5)
        assert await bench.bodies(A) == await bench.bodies(B) == ["x"]

    on_a_topic_bench(test)


def test_an_activator_survives_what_nobody_expects() -> None:
    """S-35: the alarm is always set again."""

    async def test(bench: TopicBench) -> None:
        await _topic_and_queue(bench)
        await _schedule(bench, "q", "x")
        called = _fail_once(bench.stores[0], "by_number")
        await bench.advance(10)
        assert called == ["by_number"]
        await bench.advance(2, step_s=1)
        assert await bench.bodies("q") == ["x"]
        assert (await bench.namespace.counts("q")).active == 1

    on_a_topic_bench(test)


def test_a_sweep_of_own_times_survives_what_nobody_expects() -> None:
    """M-44: a sweep of own times survives what nobody expects."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        await bench.send("q")
        await bench.send("q", ttl_ms=5_000)
        called = _fail_once(bench.stores[0], "by_number")
        await bench.advance(5)
        assert called == ["by_number"]
        await bench.advance(2, step_s=1)
        assert (await bench.namespace.counts("q")).active == 1

    on_a_topic_bench(test)


def test_a_sweep_of_a_head_survives_what_nobody_expects() -> None:
    """M-44: a sweep of a head survives what nobody expects."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q", default_message_time_to_live_ms=5_000)
        await bench.send("q")
        called = _fail_once(bench.stores[0], "messages")
        await bench.advance(5)
        assert called == ["messages"]
        await bench.advance(2, step_s=1)
        assert (await bench.namespace.counts("q")).active == 0

    on_a_topic_bench(test)


def test_senders_behind_a_look_that_fails_are_told() -> None:
    """S-1, S-40: nobody waits for ever, and the next one is served."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q", requires_duplicate_detection=True)
        _fail_once(bench.stores[0], "known_ids")
        answers: list[list[tuple[int, BrokerError]]] = []
        for number in range(3):
            message = message_of(encoded("x", message_id=f"{number}"), True)
            bench.namespace.queue("q").send([message], answers.append)
        await settle()
        assert [type(answer[0][1]) for answer in answers] == [ServerBusy] * 3
        await bench.publish("q", encoded("x", message_id="1"))
        assert await bench.bodies("q") == ["x"]

    on_a_topic_bench(test)


def test_a_store_comes_back_after_what_nobody_expects() -> None:
    """E-91: an attempt to open it failed in a new way; it is tried again."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        store = bench.stores[0]
        store.refuse_next_commit()
        await bench.try_publish("q", encoded("lost"))
        called = _fail_once(store, "fragments")
        await bench.advance(1, step_s=0.1)
        assert called == ["fragments"]
        await bench.advance(5, step_s=0.1)
        await bench.publish("q", encoded("x"))
        assert await bench.bodies("q") == ["x"]

    on_a_topic_bench(test)


def test_locked_messages_with_times_of_their_own_are_not_read_again_and_again() -> None:
    """M-43, L-22: their entries are walked, their rows are not, and others leave meanwhile."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q", lock_duration_ms=60_000)
        await bench.queue("other")
        await bench.send("q")
        await bench.send("q", 10, ttl_ms=5_000)
        await bench.send("other")
        await bench.send("other", ttl_ms=6_000)
        reader = Reader()
        bench.namespace.queue("q").inlet.add_receiver(reader)
        bench.namespace.queue("q").inlet.wake(reader)
        await settle()
        assert len(reader.taken) == 11
        read: list[int] = []
        whole = bench.stores[0].by_number

        async def counted(key: Any, place: int, numbers: Sequence[int]) -> Any:
            read.append(len(numbers))
            return await whole(key, place, numbers)

        bench.stores[0].by_number = counted  # type: ignore[method-assign]
        await bench.advance(20, step_s=1)
        assert (await bench.namespace.counts("q")).active == 11
        assert (await bench.namespace.counts("other")).active == 1
        assert sum(read) == 1

    on_a_topic_bench(test, limits=FEW)


def test_a_head_is_not_looked_at_for_ever_because_of_numbers_that_are_no_rows() -> None:
    """Found by review: M-44, L-22: a copy went straight to the dead letters, a transaction gave numbers back."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "a", requires_session=True, default_message_time_to_live_ms=60_000)
        await bench.publish("t", encoded("kept", group_id="s"))
        await bench.publish("t", encoded("dead"))
        assert await bench.bodies(A, dead_letter=True) == ["dead"]
        read = 0
        whole = bench.stores[0].messages

        async def counted(*arguments: Any) -> Any:
            nonlocal read
            read += 1
            return await whole(*arguments)

        bench.stores[0].messages = counted  # type: ignore[method-assign]
        main = bench.namespace.queue(A).main
        main.head_expiry.joined(bench.clock.wall_ms())
        await bench.advance(30, step_s=1)
        assert read <= 1

    on_a_topic_bench(test)
