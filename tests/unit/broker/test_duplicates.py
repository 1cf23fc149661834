"""Duplicate detection."""

import asyncio
from typing import Any

from busway.message.message import Message
from busway.model.errors import MessageTooLarge, ServerBusy
from busway.model.limits import Limits
from tests.unit.broker.rig import Answer, Rig, bodies, numbers, play, text, unheard

DETECTS: dict[str, Any] = {"requires_duplicate_detection": True}


def named(message_id: str | None, body: str = "x", **fields: Any) -> Message:
    return text(body, message_id=message_id, **fields)


def test_a_second_message_with_the_same_id_is_accepted_and_dropped() -> None:
    """S-40: only the id is compared; M-35: the dropped one leaves no gap."""

    async def scenario(rig: Rig) -> None:
        assert await rig.send(named("1", "a")) == []
        assert await rig.send(named("1", "other"), named("2", "b")) == []
        got = await rig.receive()
        assert (bodies(got), numbers(got)) == (["a", "b"], [1, 2])
        assert rig.queue.counts().size_bytes == 2

    play(scenario, **DETECTS)


def test_duplicates_inside_one_run_and_between_open_runs_are_found() -> None:
    """S-40: also before the first one is durable; the duplicate is told no earlier than it (S-1)."""

    async def scenario(rig: Rig) -> None:
        rig.store.hold_commits()
        answers = [Answer(), Answer(), Answer()]
        rig.queue.send([named("1", "a"), named("1", "b")], answers[0])
        rig.queue.send([named("1", "c"), named("2", "d")], answers[1])
        await rig.calm()
        rig.queue.send([named("2", "e"), named("3", "f")], answers[2])
        await rig.calm()
        assert not any(answer.is_done for answer in answers)
        rig.store.release_commits()
        await rig.calm()
        assert [answer.refused for answer in answers] == [[], [], []]
        assert bodies(await rig.receive()) == ["a", "d", "f"]

    play(scenario, **DETECTS)


def test_a_commit_reported_during_a_look_does_not_hide_its_ids() -> None:
    """S-40: the moment between two sources of truth."""

    async def scenario(rig: Rig) -> None:
        for round_ in range(30):
            for _ in range(6):
                rig.queue.send([named(f"{round_}")], unheard)
                for _ in range(round_ % 7):
                    await asyncio.sleep(0)
            await rig.calm()
        assert rig.queue.counts().active == 30

    play(scenario, **DETECTS)


def test_order_is_kept_also_for_messages_without_an_id() -> None:
    """S-4: one line for all."""

    async def scenario(rig: Rig) -> None:
        for n in range(20):
            rig.queue.send([named(None if n % 3 else str(n), str(n))], unheard)
            if n % 4 == 0:
                await asyncio.sleep(0)
        await rig.calm()
        assert bodies(await rig.receive(50)) == [str(n) for n in range(20)]

    play(scenario, **DETECTS)


def test_the_history_survives_consumption_and_restart() -> None:
    """S-45: the history survives consumption and restart."""

    async def scenario(rig: Rig) -> None:
        await rig.send(named("1"))
        await rig.settle(await rig.receive())
        await rig.send(named("1"))
        await rig.restart()
        await rig.send(named("1"))
        assert rig.queue.counts().active == 0

    play(scenario, **DETECTS)


def test_the_window_counts_from_acceptance() -> None:
    """S-44: a duplicate does not extend it."""

    async def scenario(rig: Rig) -> None:
        await rig.send(named("1", "a"))
        await rig.advance(15)
        await rig.send(named("1", "b"))
        await rig.advance(6)
        await rig.send(named("1", "c"))
        assert bodies(await rig.receive()) == ["a", "c"]

    play(scenario, duplicate_detection_history_time_window_ms=20_000, **DETECTS)


def test_scheduled_and_direct_sends_share_the_history() -> None:
    """S-43: in both directions; the number of a dropped one is 0."""

    async def scenario(rig: Rig) -> None:
        at_ms = rig.clock.wall_ms() + 1_000
        assert await rig.queue.schedule([named("1", "a", scheduled_at_ms=at_ms)]) == [1]
        await rig.send(named("1", "b"), named("2", "c"))
        assert await rig.queue.schedule([named("2", "d", scheduled_at_ms=at_ms)]) == [0]
        await rig.advance(2)
        assert sorted(bodies(await rig.receive())) == ["a", "c"]

    play(scenario, **DETECTS)


def test_a_refused_message_leaves_no_history() -> None:
    """S-40: only accepted messages are remembered."""

    async def scenario(rig: Rig) -> None:
        refused = await rig.send(named("1", "x" * 2_000), named("2"))
        assert [(index, type(error)) for index, error in refused] == [(0, MessageTooLarge)]
        await rig.send(named("1", "small"))
        assert bodies(await rig.receive()) == ["x", "small"]

    play(scenario, Limits(message_bytes_max=1_000), **DETECTS)


def test_an_atomic_batch_drops_its_duplicates_and_keeps_the_rest() -> None:
    """S-20, S-40: an atomic batch drops its duplicates and keeps the rest."""

    async def scenario(rig: Rig) -> None:
        await rig.send(named("1", "a"))
        answer = Answer()
        rig.queue.send_atomically([named("1", "b"), named("2", "c"), named("2", "d")], answer)
        await rig.calm()
        assert answer.refused == []
        assert bodies(await rig.receive()) == ["a", "c"]

    play(scenario, **DETECTS)


def test_old_ids_are_forgotten_in_slices() -> None:
    """S-44, L-22: the history does not grow without end."""

    async def scenario(rig: Rig) -> None:
        for n in range(30):
            await rig.send(named(str(n)), named(f"b{n}"))
            await rig.advance(0.5)
        assert len(await known(rig)) == 60
        await rig.restart()
        await rig.send(named("fresh"))
        for _ in range(30):
            await rig.advance(2)
        assert await known(rig) == set()

    async def known(rig: Rig) -> set[str]:
        ids = [str(n) for n in range(30)] + [f"b{n}" for n in range(30)] + ["fresh"]
        return await rig.store.known_ids(rig.main.key, ids, 0)

    play(scenario, Limits(sweep_rows_max=5), duplicate_detection_history_time_window_ms=20_000, **DETECTS)


def test_waiting_sends_fail_when_the_store_does() -> None:
    """S-1: certain, nothing of them is stored."""

    async def scenario(rig: Rig) -> None:
        answer = Answer()
        rig.queue.send([named("1"), named("2")], answer)
        rig.main.failed(ServerBusy())
        await rig.calm()
        assert answer.errors() == [ServerBusy, ServerBusy]

    play(scenario, **DETECTS)
