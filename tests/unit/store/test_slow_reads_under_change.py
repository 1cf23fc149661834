"""A read that takes its time, while its fragment goes, comes again, or its store is closed or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE
from busway.store.contract import FragmentKey, Page, StoreError
from tests.store_contract.scenario import HoldableSqliteStore, add_fragment, delete, message, numbers_of, put

Scene = Callable[[HoldableSqliteStore, FragmentKey, "asyncio.Future[Page]"], Awaitable[None]]


def while_reading(folder: Path, scene: Scene) -> None:
    """The scene begins when a read has rows 1 to 6 in hand, and is held up."""

    async def run() -> None:
        store = HoldableSqliteStore("a", folder / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        fragment = add_fragment(store)
        put(store, fragment, *map(message, range(1, 7)))
        await store.flush()
        store.hold_reads()
        reading = asyncio.ensure_future(store.by_number(fragment, PLACE_ACTIVE, range(1, 7)))
        await store.read_rows_taken()
        await scene(store, fragment, reading)
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_a_fragment_that_is_dropped_during_a_read_shows_nothing(tmp_path: Path, batches: int) -> None:
    """Contract: whoever deletes an entity is told before, however many batches came between."""

    async def scene(store: HoldableSqliteStore, fragment: FragmentKey, reading: asyncio.Future[Page]) -> None:
        for number in range(batches):
            delete(store, fragment, number + 1)
            await store.flush()
        store.batch().fragments_dropped.append(fragment)
        await store.flush()
        other = add_fragment(store, "orders")  # the same name again: another fragment
        put(store, other, message(1))
        await store.flush()
        store.release_reads()
        assert numbers_of(await reading) == []
        assert numbers_of(await store.by_number(other, PLACE_ACTIVE, [1])) == [1]
        assert len(store._shadows) == 1, "only the one that gathers is left"

    while_reading(tmp_path, scene)


def test_a_store_that_is_closed_during_a_read_waits_for_it_and_keeps_nothing(tmp_path: Path) -> None:
    """Contract: an operator takes the store out of service while a disk is slow."""

    async def scene(store: HoldableSqliteStore, fragment: FragmentKey, reading: asyncio.Future[Page]) -> None:
        delete(store, fragment, 1)
        await store.flush()
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0.02)
        store.release_reads()
        await closing
        outcome: Any = (await asyncio.gather(reading, return_exceptions=True))[0]
        assert isinstance(outcome, StoreError) or numbers_of(outcome) == [2, 3, 4, 5, 6]
        await store.open()
        assert numbers_of(await store.by_number(fragment, PLACE_ACTIVE, range(1, 7))) == [2, 3, 4, 5, 6]
        assert len(store._shadows) == 1

    while_reading(tmp_path, scene)


def test_a_store_that_fails_during_a_read_shows_nothing_of_its_former_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract: what was joined and is lost is neither hidden nor shown by the read of before."""

    async def scene(store: HoldableSqliteStore, fragment: FragmentKey, reading: asyncio.Future[Page]) -> None:
        def breaks(*_: object) -> Iterator[None]:
            raise StoreError("the disk is gone")
            yield

        delete(store, fragment, 1)
        await store.flush()
        with monkeypatch.context() as patched:
            patched.setattr(store._writer, "write", breaks)
            delete(store, fragment, 2)
            with pytest.raises(StoreError):
                await store.flush()
        store.release_reads()
        outcome: Any = (await asyncio.gather(reading, return_exceptions=True))[0]
        assert isinstance(outcome, StoreError) or 1 not in numbers_of(outcome)
        await store.close()
        await store.open()
        assert numbers_of(await store.by_number(fragment, PLACE_ACTIVE, range(1, 7))) == [2, 3, 4, 5, 6]
        assert len(store._shadows) == 1

    while_reading(tmp_path, scene)
