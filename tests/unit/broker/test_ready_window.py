"""The ready window, through a queue whose windows are tiny."""

import asyncio

from busway.broker.fragment.lane import MESSAGE_OVERHEAD_BYTES
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.rig import Rig, bodies, numbers, play, text, unheard

TINY = Limits(window_messages_max=4, returned_numbers_max=3, window_bytes_max=1_000_000)


def test_a_backlog_stays_in_the_store() -> None:
    """L-22: memory is bounded, order is kept, nothing is missing."""

    async def scenario(rig: Rig) -> None:
        receiver = rig.receiver(0)
        for start in range(0, 100, 10):
            await rig.send(*[text(str(n)) for n in range(start, start + 10)])
            assert len(rig.main.lane.window.messages) <= 4
        got: list[int] = []
        while len(got) < 100:
            receiver.credit = 7
            rig.main.wake(receiver)
            await rig.calm()
            deliveries = receiver.take()
            assert deliveries
            got += numbers(deliveries)
            await rig.settle(deliveries)
        assert got == list(range(1, 101))
        assert rig.budget.bytes_used == 0

    play(scenario, TINY)


def test_consumers_that_keep_up_cause_no_read() -> None:
    """S-1, R-3: a message goes from commit to receiver through memory."""

    async def scenario(rig: Rig) -> None:
        receiver = rig.receiver(1_000)
        await rig.calm()

        reads = rig.store.reads
        for n in range(50):
            await rig.send_texts(str(n))
        assert len(receiver.deliveries) == 50
        assert rig.store.reads == reads

    play(scenario)


def test_messages_sent_during_a_read_follow_it_without_another() -> None:
    """R-3: the window catches up with the tail while senders go on."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text(str(n)) for n in range(10)])
        receiver = rig.receiver(1_000)
        for n in range(10, 40):
            rig.queue.send([text(str(n))], unheard)
            await asyncio.sleep(0)
        await rig.calm()
        assert bodies(receiver.deliveries) == [str(n) for n in range(40)]
        assert rig.main.lane.window.is_at_tail

    play(scenario)


def test_messages_a_receiver_cannot_send_after_all_stay_in_memory() -> None:
    """R-12, R-6: unlocked without a count and without a read, for the next in line."""

    async def scenario(rig: Rig) -> None:
        slow, other = rig.receiver(0), rig.receiver(0)
        await rig.send_texts("a", "b", "c")
        reads, fetches = rig.store.reads, rig.store.fetches
        slow.refuses, slow.credit, other.credit = 2, 3, 1
        rig.main.wake(slow)
        rig.main.wake(other)
        assert (bodies(slow.deliveries), bodies(other.deliveries)) == (["a"], ["b"])
        slow.refuses = 0
        rig.main.wake(slow)
        assert [(d.message.sequence_number, d.message.delivery_count) for d in slow.deliveries] == [
            (1, 0),
            (3, 0),
        ]
        await rig.calm()
        assert (rig.store.reads, rig.store.fetches) == (reads, fetches)
        assert rig.budget.bytes_used == 0

    play(scenario)


def test_many_returned_messages_rewind_the_window() -> None:
    """R-6, L-22: beyond the bound rows are read again; locked ones are not delivered twice."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text(str(n)) for n in range(20)])
        receiver = rig.receiver(12)
        await rig.calm()
        got = receiver.take()
        rig.main.remove_receiver(receiver)
        returned = [got[index] for index in (1, 3, 5, 7, 9, 11)]
        assert await rig.settle(returned, Verb.RELEASE) == []
        assert numbers(await rig.receive(100)) == [2, 4, 6, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20]
        assert len(rig.main.locks.live) == 20

    play(scenario, TINY)


def test_idle_windows_give_their_memory_to_others() -> None:
    """L-22: one byte budget for all windows of a process."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text("x" * 500) for _ in range(10)])
        used = rig.budget.bytes_used
        assert used == 10 * (500 + MESSAGE_OVERHEAD_BYTES)
        assert rig.budget.has_room(rig.budget.bytes_max - used)
        assert rig.budget.has_room(rig.budget.bytes_max)
        assert rig.budget.bytes_used == 0
        assert len(await rig.receive(20)) == 10

    play(scenario)


def test_a_full_budget_slows_down_but_stops_nobody() -> None:
    """L-22: every window may hold a little."""

    async def scenario(rig: Rig) -> None:
        rig.budget.bytes_used += 10_000_000
        receiver = rig.receiver(1_000)
        for _ in range(10):
            await rig.send(*[text("x" * 3_000) for _ in range(30)])
        assert len(receiver.deliveries) == 300
        assert rig.budget.bytes_used == 10_000_000

    play(scenario, Limits(window_bytes_max=1_000))


def test_dead_letters_arriving_during_a_read_are_not_missed() -> None:
    """D-5, R-6: whatever the moment."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text(str(n)) for n in range(40)])
        got = await rig.receive(100)
        receiver = rig.receiver(1_000, dead_letter=True)
        for index in (30, 2, 17, 5, 39, 0, 21, 22, 1, 8):
            await_later = rig.settle_later([got[index]], Verb.DEAD_LETTER)
            task = asyncio.create_task(await_later)
            for _ in range(index % 5):
                await asyncio.sleep(0)
            rig.dead_letter.lane.window.rewind(0)
            rig.dead_letter.wake(receiver)
            await task
        await rig.calm()
        assert sorted(numbers(receiver.deliveries)) == [1, 2, 3, 6, 9, 18, 22, 23, 31, 40]

    play(scenario, TINY)


def test_many_arrivals_do_not_push_out_what_lies_before_them() -> None:
    """R-6, S-34: more scheduled messages become active at once than are remembered singly."""

    async def scenario(rig: Rig) -> None:
        due_ms = rig.clock.wall_ms() + 1_000
        await rig.send_texts("now")
        await rig.send(*[text(str(n), scheduled_at_ms=due_ms) for n in range(5)])
        await rig.advance(2)
        assert bodies(await rig.receive()) == ["now", "0", "1", "2", "3", "4"]

    play(scenario, TINY)


def test_a_rewind_during_a_fetch_forgets_none_of_the_fetched() -> None:
    """R-6, R-11: more comes back while numbers that came back before are being fetched."""

    async def scenario(rig: Rig) -> None:
        await rig.send(*[text(str(n)) for n in range(12)])
        got = await rig.receive(12)
        await rig.settle(got[:3], Verb.RELEASE)
        receiver = rig.receiver(12)
        await asyncio.sleep(0)  # the three are being fetched
        rig.main.settle([delivery.token for delivery in got[6:]], Settlement(Verb.RELEASE), unheard)
        await rig.calm()
        assert sorted(numbers(receiver.deliveries)) == [1, 2, 3, 7, 8, 9, 10, 11, 12]

    play(scenario, TINY)


def test_nothing_overtakes_an_abandoned_message_while_it_is_fetched() -> None:
    """X-12, R-6: the abandoned message is next, whatever wakes the lane before its row is there."""

    async def scenario(rig: Rig) -> None:
        receiver = rig.receiver(1)
        await rig.send_texts("a", "b", "c")
        await rig.settle(receiver.deliveries, Verb.ABANDON)
        receiver.credit = 1
        while receiver.credit:
            rig.main.wake(receiver)
            await asyncio.sleep(0)
        assert bodies(receiver.deliveries) == ["a", "a"]

    play(scenario)
