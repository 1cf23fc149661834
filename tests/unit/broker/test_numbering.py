"""The end of a queue's sequence numbers and their new beginning, on both stores."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from busway.broker.fragment.numbering import NUMBER_MAX, RESERVE_FROM
from busway.broker.fragment.sent_run import SentRun
from busway.model.errors import QuotaExceeded, ServerBusy, StoreOutcomeUnknown
from busway.model.settlement import Settlement, Verb
from busway.store.contract import FragmentKey, Page
from tests.model.sqlite_rig import SqliteRig
from tests.unit.broker.rig import Answer, CountingStore, Recorder, Rig, bodies, numbers, play, text

Scenario = Callable[[Rig], Awaitable[None]]
Play = Callable[..., None]


def _play_on_memory(scenario: Scenario, **description: Any) -> None:
    play(scenario, **description)


def _play_on_sqlite(scenario: Scenario, **description: Any) -> None:
    async def run() -> None:
        rig = SqliteRig(**description)
        try:
            await rig.open()
            await scenario(rig)
            await rig.calm()
            await rig.store.close()
        finally:
            rig.dispose()

    asyncio.run(run())


@pytest.fixture(params=[_play_on_memory, _play_on_sqlite], ids=["memory", "sqlite"])
def play_on(request: pytest.FixtureRequest) -> Play:
    chosen: Play = request.param
    return chosen


async def _move_counter(rig: Rig, number: int) -> None:
    """As if so many messages had passed through; durable, and known to everything that was loaded from it."""
    rig.main.counters.last_counter = number
    rig.store.batch().counters[rig.main.key] = rig.main.counters
    await rig.restart()
    assert rig.main.counters.last_counter == number


async def _drain(rig: Rig) -> list[str]:
    got = await rig.receive(100)
    assert await rig.settle(got) == []
    return bodies(got)


def test_the_counter_starts_again_when_the_queue_is_empty(play_on: Play) -> None:
    """M-37, M-35: the next number is 1, as in a fresh queue; everything goes on, in order, and nothing is lost."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM - 2)
        await rig.send_texts("a", "b")
        assert await _drain(rig) == ["a", "b"]
        assert rig.main.counters.last_counter == RESERVE_FROM
        await rig.send_texts("c", "d")
        await rig.send_texts("e")
        got = await rig.receive()
        assert list(zip(numbers(got), bodies(got), strict=True)) == [(1, "c"), (2, "d"), (3, "e")]
        assert await rig.settle(got) == []
        assert rig.queue.counts().total == 0

    play_on(scenario)


def test_numbers_go_on_through_the_reserve_while_rows_are_left(play_on: Play) -> None:
    """M-37: a message that nobody has settled keeps its number to itself."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM - 1)
        await rig.send_texts("a")
        (locked,) = await rig.receive()
        await rig.send_texts("b", "c")
        assert numbers(await rig.receive()) == [RESERVE_FROM + 1, RESERVE_FROM + 2]
        assert await rig.settle([locked], Verb.ABANDON) == []
        assert numbers(await rig.receive()) == [RESERVE_FROM]

    play_on(scenario)


@pytest.mark.parametrize("verb", [Verb.DEFER, Verb.DEAD_LETTER])
def test_deferred_and_dead_lettered_messages_hold_the_counter(play_on: Play, verb: Verb) -> None:
    """M-37, M-38: rows of the queue and of its dead-letter queue bear numbers of the same counter."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM)
        await rig.send_texts("before")  # starts again
        await _move_counter(rig, RESERVE_FROM)
        await rig.settle(await rig.receive(), verb)
        await rig.send_texts("between")
        got = await rig.receive()
        assert numbers(got) == [RESERVE_FROM + 1]
        await rig.settle(got)
        if verb is Verb.DEFER:
            await rig.settle(await rig.main.receive_by_number([1], deletes=False))
        else:
            await rig.settle(await rig.receive(dead_letter=True), dead_letter=True)
        await rig.send_texts("after")
        got = await rig.receive()
        assert (numbers(got), bodies(got)) == ([1], ["after"])

    play_on(scenario)


def test_a_scheduled_message_holds_the_counter_and_is_activated_in_the_reserve(play_on: Play) -> None:
    """M-37, S-34: activation takes a number of the reserve; afterwards the counter starts again."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("later", scheduled_at_ms=rig.clock.wall_ms() + 60_000))
        await _move_counter(rig, RESERVE_FROM)
        await rig.send_texts("now")
        assert await _drain(rig) == ["now"]
        await rig.advance(61)
        got = await rig.receive()
        assert (numbers(got), bodies(got)) == ([RESERVE_FROM + 2], ["later"])
        await rig.settle(got)
        await rig.send_texts("anew")
        assert numbers(await rig.receive()) == [1]

    play_on(scenario)


def test_a_used_up_reserve_refuses_and_says_what_helps(play_on: Play) -> None:
    """M-37, S-9, ERR-9: until what is left is gone; then the queue goes on by itself."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("left over")
        await _move_counter(rig, NUMBER_MAX - 4)
        await rig.send_texts("a", "b")
        await rig.send_texts("c")
        ((index, error),) = await rig.send(text("d"))
        assert (index, type(error)) == (0, QuotaExceeded)
        assert "Receive or delete what is left" in error.sentence
        assert "dead-letter queue" in error.sentence
        answer = Answer()
        rig.queue.send_atomically([text("d"), text("e")], answer)
        assert answer.errors() == [QuotaExceeded]
        assert rig.main.counters.last_counter == NUMBER_MAX - 1
        assert await _drain(rig) == ["left over", "a", "b", "c"]
        await rig.send_texts("f")
        got = await rig.receive()
        assert (numbers(got), bodies(got)) == ([1], ["f"])

    play_on(scenario)


def test_the_last_numbers_are_kept_for_scheduled_messages(play_on: Play) -> None:
    """M-37, S-34: what was accepted for later finds its second number, however few are left."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("left over")
        await _move_counter(rig, NUMBER_MAX - 4)
        at_ms = rig.clock.wall_ms() + 60_000
        assert await rig.send(text("a", scheduled_at_ms=at_ms), text("b", scheduled_at_ms=at_ms)) == []
        assert [type(error) for _, error in await rig.send(text("c"))] == [QuotaExceeded]
        await rig.advance(61)
        got = await rig.receive()
        assert bodies(got) == ["left over", "a", "b"]
        assert numbers(got) == [1, NUMBER_MAX - 1, NUMBER_MAX]

    play_on(scenario)


def test_a_restart_right_before_and_right_after_the_new_beginning(play_on: Play) -> None:
    """M-37, M-35: the counter on disk is the truth on both sides."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM)
        await rig.send_texts("a")
        assert rig.main.counters.last_counter == 1
        await rig.restart()
        assert rig.main.counters.last_counter == 1
        await rig.send_texts("b")
        got = await rig.receive()
        assert list(zip(numbers(got), bodies(got), strict=True)) == [(1, "a"), (2, "b")]

    play_on(scenario)


def test_dead_lettering_after_the_new_beginning(play_on: Play) -> None:
    """M-37, M-38, D-1: a dead letter keeps its new number, also over a restart."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM - 1)
        watcher = rig.receiver(10, dead_letter=True)
        await rig.send_texts("old")
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        assert watcher.numbers() == [RESERVE_FROM]
        await rig.settle(watcher.take(), dead_letter=True)
        await rig.send_texts("a", "b")
        assert rig.dead_letter.counters.last_counter == 0
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        assert watcher.numbers() == [1, 2]
        await rig.settle(watcher.take(), Verb.ABANDON, dead_letter=True)
        assert watcher.numbers() == [1, 2]
        await rig.restart()
        assert bodies(await rig.receive(dead_letter=True)) == ["a", "b"]

    play_on(scenario)


def test_sessions_after_the_new_beginning(play_on: Play) -> None:
    """M-37, X-1: a session that was held all the time goes on, and a new one is found."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM - 1)
        holder = Recorder(10)
        await rig.main.accept_session(holder, "held", 1)
        rig.main.wake(holder)
        await rig.send(text("old", session_id="held"))
        assert holder.numbers() == [RESERVE_FROM]
        await rig.settle(holder.take(), session_id="held")
        await rig.main.set_session_state("held", b"state")
        await rig.send(
            text("a", session_id="held"), text("b", session_id="other"), text("c", session_id="held")
        )
        got = holder.take()
        assert (numbers(got), bodies(got)) == ([1, 3], ["a", "c"])
        assert await rig.main.session_state("held") == b"state"
        other = Recorder(10)
        session = await rig.main.accept_session(other, None, 1)
        assert session.session_id == "other"
        rig.main.wake(other)
        await rig.calm()
        assert other.numbers() == [2]
        await rig.settle(got, Verb.ABANDON, session_id="held")
        assert holder.numbers() == [1, 3]

    play_on(scenario, requires_session=True)


def test_peek_from_0_sees_the_new_numbers(play_on: Play) -> None:
    """M-37, R-60: a peek from 0 sees the new numbers."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM)
        await rig.send_texts("a", "b")
        seen = await rig.main.peek(0, 10)
        assert [(m.sequence_number, m.bare) for m in seen] == [(1, b"a"), (2, b"b")]
        assert await rig.main.peek(RESERVE_FROM, 10) == []

    play_on(scenario)


def test_duplicate_detection_keeps_its_history_over_the_new_beginning(play_on: Play) -> None:
    """M-37, S-40: ids are not numbers."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM - 1)
        await rig.send(text("a", message_id="1"))
        assert await _drain(rig) == ["a"]
        await rig.send(text("again", message_id="1"), text("b", message_id="2"))
        got = await rig.receive()
        assert (numbers(got), bodies(got)) == ([1], ["b"])

    play_on(scenario, requires_duplicate_detection=True)


def test_expiry_works_under_the_new_numbers(play_on: Play) -> None:
    """M-37, M-44: by the head, and by entries of messages that expire out of order."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM)
        await rig.send(text("a", ttl_ms=30_000), text("b", ttl_ms=10_000), text("c"))
        await rig.advance(11)
        assert rig.queue.counts().active == 2
        await rig.advance(60)
        assert rig.queue.counts().active == 1
        assert bodies(await rig.receive()) == ["c"]

    play_on(scenario)


def test_receivers_that_wait_are_served_over_the_new_beginning(play_on: Play) -> None:
    """M-37, R-8: nobody has to attach again."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM - 3)
        recorder = rig.receiver(100, deletes=True)
        for name in "abcdefgh":
            await rig.send_texts(name)
        assert bodies(recorder.deliveries) == list("abcdefgh")
        assert recorder.numbers() == [*range(RESERVE_FROM - 2, RESERVE_FROM + 1), 1, 2, 3, 4, 5]

    play_on(scenario)


def test_a_delete_that_is_not_durable_never_meets_a_new_row_of_its_number() -> None:
    """M-37, S-4: sends wait, in order, for the commit that empties the queue, then get the first numbers."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("one")
        got = await rig.receive()
        assert numbers(got) == [1]
        rig.main.counters.last_counter = RESERVE_FROM
        rig.store.hold_commits()
        settled, first, second = Answer(), Answer(), Answer()
        rig.main.settle([got[0].token], Settlement(Verb.COMPLETE), settled)
        rig.queue.send([text("a")], first)
        rig.queue.send_atomically([text("b"), text("c")], second)
        await rig.calm()
        assert not first.is_done
        rig.store.release_commits()
        await rig.calm()
        assert (settled.refused, first.refused, second.refused) == ([], [], [])
        got = await rig.receive()
        assert list(zip(numbers(got), bodies(got), strict=True)) == [(1, "a"), (2, "b"), (3, "c")]

    play(scenario)


class _SlowStore(CountingStore):
    """Fetches by number wait until they are let go."""

    def __init__(self) -> None:
        super().__init__("first")
        self.let_go = asyncio.Event()

    async def by_number(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> Page:
        await self.let_go.wait()
        return await super().by_number(fragment, place, numbers)


def test_a_fetch_on_its_way_over_the_new_beginning_brings_nothing_back() -> None:
    """M-37, R-81: a number that was abandoned, fetched and meanwhile deleted now belongs to another message, which
    must not be handed out twice."""

    async def scenario() -> None:
        rig = Rig()
        rig.store = store = _SlowStore()
        await rig.open()
        await rig.send_texts("one")
        await rig.settle(await rig.receive(), Verb.ABANDON)
        recorder = rig.receiver(10)
        await asyncio.sleep(0)
        assert await rig.main.delete_messages(1, rig.clock.wall_ms() + 1) == 1
        rig.main.counters.last_counter = RESERVE_FROM
        await rig.send_texts("a")
        assert bodies(recorder.deliveries) == ["a"]
        store.let_go.set()
        await rig.calm()
        assert recorder.numbers() == [1]
        assert await rig.settle(recorder.take()) == []
        assert rig.queue.counts().total == 0

    asyncio.run(scenario())


def _copies(rig: Rig, *texts: str) -> Answer:
    """Messages that join without asking, as a topic's copies do."""
    answer = Answer()
    messages = [text(item) for item in texts]
    size = sum(message.size() for message in messages)
    rig.main.intake.join(SentRun(rig.main, messages, size, len(messages), [], answer, True))
    return answer


def test_a_fragment_that_gets_copies_starts_again_in_an_empty_moment(play_on: Play) -> None:
    """M-37, M-39: copies join with their topic's batch and cannot wait; the counter finds a moment between them."""

    async def scenario(rig: Rig) -> None:
        await _move_counter(rig, RESERVE_FROM)
        _copies(rig, "a")
        await rig.advance(2)
        got = await rig.receive()
        assert numbers(got) == [RESERVE_FROM + 1]
        await rig.settle(got)
        _copies(rig, "b")
        assert await _drain(rig) == ["b"]
        assert rig.main.counters.last_counter == RESERVE_FROM + 2
        await rig.advance(2)
        assert rig.main.counters.last_counter == 0
        await rig.restart()
        assert rig.main.counters.last_counter == 0
        _copies(rig, "c", "d")
        got = await rig.receive()
        assert list(zip(numbers(got), bodies(got), strict=True)) == [(1, "c"), (2, "d")]

    play_on(scenario)


def test_a_copy_that_comes_while_the_empty_moment_becomes_durable_keeps_the_counter() -> None:
    """M-37: what came in between counts; the next look tries again."""

    async def scenario(rig: Rig) -> None:
        rig.main.counters.last_counter = RESERVE_FROM
        _copies(rig, "a")
        assert await _drain(rig) == ["a"]
        rig.store.hold_commits()
        await rig.advance(1)
        answer = _copies(rig, "b")
        rig.store.release_commits()
        await rig.calm()
        assert answer.refused == []
        got = await rig.receive()
        assert (numbers(got), bodies(got)) == ([RESERVE_FROM + 2], ["b"])
        await rig.settle(got)
        await rig.advance(2)
        assert rig.main.counters.last_counter == 0

    play(scenario)


def test_copies_never_spill_into_the_rows_of_others() -> None:
    """M-37: past the last number nothing joins; `number_fault` tells beforehand."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("left over")
        assert rig.main.intake.number_fault(1) is None
        rig.main.counters.last_counter = NUMBER_MAX - 3
        assert rig.main.intake.number_fault(1) is None
        assert isinstance(rig.main.intake.number_fault(2), QuotaExceeded)
        assert _copies(rig, "a", "b").errors() == [QuotaExceeded]
        assert rig.main.counters.last_counter == NUMBER_MAX - 3

    play(scenario)


@pytest.mark.parametrize("is_unknown", [False, True])
def test_sends_held_for_the_new_beginning_fail_with_the_commit_they_wait_for(is_unknown: bool) -> None:
    """M-37, S-1: nothing of them is stored, and they are told so once."""

    async def scenario(rig: Rig) -> None:
        rig.main.counters.last_counter = RESERVE_FROM
        if is_unknown:
            rig.store.lose_next_commit(is_applied=False)
        else:
            rig.store.refuse_next_commit()
        first, second = Answer(), Answer()
        rig.queue.send([text("a"), text("b")], first)
        rig.queue.send_atomically([text("c"), text("d")], second)
        await rig.calm()
        expected = StoreOutcomeUnknown if is_unknown else ServerBusy
        assert first.errors() == [expected, expected]
        assert second.errors() == [expected]
        assert len(rig.store_failures) == 1
        await rig.store.reopen()
        await rig.load()
        assert await rig.receive() == []

    play(scenario)


def test_sends_held_by_a_queue_that_goes_meanwhile_are_refused() -> None:
    """M-37, E-86: the queue was deleted while they waited."""

    async def scenario(rig: Rig) -> None:
        rig.main.counters.last_counter = RESERVE_FROM
        answer = Answer()
        rig.queue.send([text("a")], answer)
        rig.queue.failed(ServerBusy())
        await rig.calm()
        assert answer.errors() == [ServerBusy]

    play(scenario)


def test_the_log_tells_once_that_the_reserve_is_in_use(caplog: pytest.LogCaptureFixture) -> None:
    """M-37: a warning when it begins, and one when the numbers start again; not one for each send."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("left over")
        rig.main.counters.last_counter = RESERVE_FROM - 1
        with caplog.at_level(logging.WARNING, logger="busway.broker.fragment.numbering"):
            for _ in range(5):
                await rig.send_texts("a")
            assert await _drain(rig) == ["left over", *"aaaaa"]
            await rig.send_texts("b")
            await rig.send_texts("c")

    play(scenario)
    began, again = [record.getMessage() for record in caplog.records]
    assert began.startswith(f"orders has {1 << 32} sequence numbers left")
    assert again == "The sequence numbers of orders start again: the next one is 1"
