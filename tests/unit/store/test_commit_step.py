"""Stores that commit in step, and a store whose disk has been slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from busway.store.sqlite.commit_step import CommitStep
from tests.harness.manual_clock import ManualClock
from tests.store_contract.scenario import (
    HoldableSqliteStore,
    add_fragment,
    let_commits_start,
    message,
    put,
)


class Started:
    """Remembers who was started, in order."""

    def __init__(self, step: CommitStep) -> None:
        self._step = step
        self.names: list[str] = []

    def join(self, name: str) -> None:
        def start() -> None:
            self.names.append(name)
            self._step.began(name)

        self._step.join(start)


def in_step(play: Callable[[CommitStep, ManualClock, Started], Awaitable[None]]) -> None:
    async def scene() -> None:
        clock = ManualClock()
        step = CommitStep(clock)
        await play(step, clock, Started(step))

    asyncio.run(scene())


def test_stores_that_have_something_at_the_same_time_start_together() -> None:
    """P-2: with the loop's next turn, as one alone does."""

    async def play(step: CommitStep, clock: ManualClock, started: Started) -> None:
        del step, clock
        started.join("a")
        started.join("b")
        assert started.names == []
        await asyncio.sleep(0)
        assert started.names == ["a", "b"]

    in_step(play)


def test_a_store_waits_for_the_commits_of_the_others() -> None:
    """P-2: all that have waited start when the last of them is over."""

    async def play(step: CommitStep, clock: ManualClock, started: Started) -> None:
        del clock
        started.join("a")
        started.join("b")
        await asyncio.sleep(0)
        started.join("c")
        step.ended("a")
        started.join("a")
        await asyncio.sleep(0)
        assert started.names == ["a", "b"]
        step.ended("b")
        await asyncio.sleep(0)
        assert started.names == ["a", "b", "c", "a"]

    in_step(play)


def test_a_commit_that_takes_long_holds_nobody_up() -> None:
    """P-2, F7: neither those who come later nor those who wait already."""

    async def play(step: CommitStep, clock: ManualClock, started: Started) -> None:
        del step
        started.join("a")
        await asyncio.sleep(0)
        started.join("b")
        clock.advance(0.1)
        started.join("c")
        await asyncio.sleep(0)
        assert started.names == ["a", "b", "c"]

    in_step(play)


def test_somebody_who_waits_is_started_after_a_moment_in_any_case() -> None:
    """P-2, F7: nothing else has to happen."""

    async def play(step: CommitStep, clock: ManualClock, started: Started) -> None:
        del clock
        started.join("a")
        await asyncio.sleep(0)
        waited = asyncio.Event()
        step.join(waited.set)
        assert not waited.is_set()
        await waited.wait()

    in_step(play)


def test_after_a_slow_commit_one_commit_at_a_time_tries_the_disk(tmp_path: Path) -> None:
    """P-31: a sick disk is passed by, then gets one batch to prove itself; a quick commit heals it."""
    clock = ManualClock()
    store = HoldableSqliteStore("a", tmp_path / "a.db", clock, reserve_bytes=0, space_low_bytes=0)

    async def play() -> None:
        await store.open()
        try:
            fragment = add_fragment(store)
            await store.flush()
            assert not store.is_slow()
            store.hold_commits()
            put(store, fragment, message(1))
            await let_commits_start(store)
            assert not store.is_slow()
            clock.advance(2.0)
            assert store.is_slow()
            store.release_commits()
            await store.flush()
            assert store.is_slow()
            clock.advance(2.1)
            assert not store.is_slow()
            put(store, fragment, message(2))
            assert store.is_slow()
            await store.flush()
            assert not store.is_slow()
            put(store, fragment, message(3))
            assert not store.is_slow()
        finally:
            await store.close()

    asyncio.run(play())
