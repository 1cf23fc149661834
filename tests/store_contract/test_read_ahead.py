"""Pages that follow one another are touched ahead by one thread visit and then read at once (F7, F8)."""

from collections.abc import Callable
from typing import Any

import pytest

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE
from busway.store.contract import FragmentKey
from tests.harness.manual_clock import ManualClock
from tests.store_contract.scenario import (
    LOTS,
    ROWS_ONLY,
    HoldableSqliteStore,
    World,
    add_fragment,
    delete,
    message,
    numbers_of,
    put,
)

ROWS = 2_000
PAGE = 50


def run(
    world: World,
    play: Callable[[Any, FragmentKey], Any],
    clock: Clock | None = None,
    settings: dict[str, Any] = ROWS_ONLY,
) -> None:
    async def scene(store: Any) -> None:
        await store.close()
        counting = HoldableSqliteStore(
            "counting",
            world.directory / "counting.db",
            clock or Clock(),
            reserve_bytes=0,
            space_low_bytes=0,
            **settings,
        )
        await counting.open()
        try:
            fragment = add_fragment(counting)
            put(counting, fragment, *[message(number) for number in range(1, ROWS + 1)])
            await counting.flush()
            await play(counting, fragment)
        finally:
            await counting.close()

    world.run(scene)


async def page_after(store: Any, fragment: FragmentKey, after: int) -> list[int]:
    return numbers_of(await store.messages(fragment, PLACE_ACTIVE, after, PAGE, LOTS))


def test_a_backlog_is_read_whole_with_few_visits(sqlite_world: World) -> None:
    async def play(store: Any, fragment: FragmentKey) -> None:
        seen: list[int] = []
        while found := await page_after(store, fragment, seen[-1] if seen else 0):
            seen += found
        assert seen == list(range(1, ROWS + 1))
        assert store.readers.visits < ROWS // PAGE // 4

    run(sqlite_world, play)


def test_a_backlog_of_runs_is_read_whole_with_few_visits(sqlite_world: World) -> None:
    """F8: a run is touched whole, so that most of its pages are read at once."""

    async def play(store: Any, fragment: FragmentKey) -> None:
        for start in range(ROWS + 1, 2 * ROWS + 1, 70):
            put(store, fragment, *[message(n) for n in range(start, min(start + 70, 2 * ROWS + 1))])
            await store.flush()
        seen: list[int] = []
        while found := await page_after(store, fragment, seen[-1] if seen else 0):
            seen += found
        assert seen == list(range(1, 2 * ROWS + 1))
        assert store.readers.visits < 2 * ROWS // PAGE // 4

    run(sqlite_world, play, settings={})


def test_single_pages_touch_nothing_ahead(sqlite_world: World) -> None:
    """A look at the head of a queue costs one page, however often it is taken."""

    async def play(store: Any, fragment: FragmentKey) -> None:
        for _ in range(3):
            assert await page_after(store, fragment, 0) == list(range(1, PAGE + 1))
        assert store.readers.visits == 3

    run(sqlite_world, play)


def test_rows_that_go_meanwhile_are_not_shown(sqlite_world: World) -> None:
    """Contract: a page read at once is corrected like any other, whatever the gaps."""

    async def play(store: Any, fragment: FragmentKey) -> None:
        await page_after(store, fragment, 0)
        await page_after(store, fragment, PAGE)
        visits = store.readers.visits
        delete(store, fragment, *range(2 * PAGE + 1, 3 * PAGE + 1))
        assert (await page_after(store, fragment, 2 * PAGE))[0] == 3 * PAGE + 1
        await store.flush()
        assert await page_after(store, fragment, 2 * PAGE) == list(range(3 * PAGE + 1, 4 * PAGE + 1))
        assert store.readers.visits == visits
        delete(store, fragment, *range(3 * PAGE + 1, ROWS))
        await store.flush()
        assert await page_after(store, fragment, 2 * PAGE) == [ROWS]
        assert store.readers.visits > visits

    run(sqlite_world, play)


def test_rows_behind_the_touched_ones_need_a_thread(sqlite_world: World) -> None:
    """F7: large and shared bodies are not touched ahead, so nothing behind the first of them is read at once."""

    async def play(store: Any, fragment: FragmentKey) -> None:
        large = ROWS + 3 * PAGE
        put(store, fragment, *[message(number) for number in range(ROWS + 1, large)])
        put(store, fragment, message(large, b"x" * 9_000), message(large + 1))
        await store.flush()
        await page_after(store, fragment, ROWS - PAGE)
        await page_after(store, fragment, ROWS)
        visits = store.readers.visits
        page = await store.messages(fragment, PLACE_ACTIVE, ROWS + PAGE, 10 * PAGE, LOTS)
        assert (numbers_of(page)[-1], page.more) == (large - 1, True)
        assert store.readers.visits == visits
        assert await page_after(store, fragment, large - 1) == [large, large + 1]
        assert store.readers.visits == visits + 1

    run(sqlite_world, play)


def test_what_was_touched_long_ago_is_touched_again(sqlite_world: World) -> None:
    """F7: the system may have needed the memory."""
    clock = ManualClock()

    async def play(store: Any, fragment: FragmentKey) -> None:
        await page_after(store, fragment, 0)
        await page_after(store, fragment, PAGE)
        clock.advance(60)
        assert (await page_after(store, fragment, 2 * PAGE))[0] == 2 * PAGE + 1
        assert store.readers.visits == 3

    run(sqlite_world, play, clock)


@pytest.mark.parametrize("taken", [1, 2])
def test_without_an_idle_reader_a_page_waits_for_one(sqlite_world: World, taken: int) -> None:
    """F7: the loop never waits itself."""

    async def play(store: Any, fragment: FragmentKey) -> None:
        await page_after(store, fragment, 0)
        await page_after(store, fragment, PAGE)
        visits = store.readers.visits
        readers = [store.readers.take_idle() for _ in range(taken)]
        loop = store._loop
        for reader in readers:
            loop.call_later(0, loop.call_soon, store.readers.give_back, reader)
        assert (await page_after(store, fragment, 2 * PAGE))[0] == 2 * PAGE + 1
        assert store.readers.visits == (visits if taken == 1 else visits + 1)

    run(sqlite_world, play)
