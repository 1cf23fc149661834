"""What a read that takes its time may keep in memory."""

import asyncio
import tracemalloc
from pathlib import Path

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED
from busway.store.contract import Change, Move
from tests.store_contract.scenario import (
    HoldableSqliteStore,
    add_fragment,
    delete,
    message,
    numbers_of,
    put,
)

MIB = 1 << 20


def test_a_slow_read_does_not_keep_what_is_written_meanwhile(tmp_path: Path) -> None:
    """Found by review: the payloads of all batches since it began stayed, 118 MiB of 120 written."""

    async def scene() -> None:
        store = HoldableSqliteStore("a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        store.hold_reads()
        reading = asyncio.ensure_future(store.by_number(fragment, PLACE_ACTIVE, [1, 2]))
        await store.read_rows_taken()
        tracemalloc.start()
        for number in range(2, 42):
            put(store, fragment, message(number, bytes(MIB)))
            await store.flush()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        store.release_reads()
        await reading
        await store.close()
        assert kept < 4 * MIB, f"{kept / MIB:.1f} MiB of 40 written"

    asyncio.run(scene())


def test_a_slow_read_is_still_corrected_by_every_batch_since_it_began(tmp_path: Path) -> None:
    """Contract: what left, moved or changed in batches that were reported long ago."""

    async def scene() -> None:
        store = HoldableSqliteStore("a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        fragment = add_fragment(store)
        put(store, fragment, *map(message, range(1, 7)))
        await store.flush()
        store.hold_reads()
        reading = asyncio.ensure_future(store.by_number(fragment, PLACE_ACTIVE, range(1, 7)))
        await store.read_rows_taken()
        delete(store, fragment, 1)
        await store.flush()
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, 2, fragment, PLACE_DEFERRED, 2))
        await store.flush()
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 3, 7, b"changed"))
        await store.flush()
        delete(store, fragment, 4)
        put(store, fragment, message(8))
        await store.flush()
        store.release_reads()
        page = await reading
        assert numbers_of(page) == [3, 5, 6]
        assert [(each.delivery_count, each.changes) for each in page.messages[:1]] == [(7, b"changed")]
        assert len(store._shadows) == 1, "only the one that gathers is left"
        await store.close()

    asyncio.run(scene())


def test_reads_that_began_at_different_moments_are_each_corrected_by_what_came_after(tmp_path: Path) -> None:
    """Contract: batches become one only where no read began between them."""

    async def scene() -> None:
        store = HoldableSqliteStore(
            "a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0, read_threads=4
        )
        await store.open()
        fragment = add_fragment(store)
        put(store, fragment, *map(message, range(1, 10)))
        await store.flush()
        store.hold_reads()
        readings = []
        for number in range(1, 8):
            if number in (1, 3, 6):
                readings.append(asyncio.ensure_future(store.by_number(fragment, PLACE_ACTIVE, range(1, 10))))
                await store.read_rows_taken()
                store._has_read.clear()
            delete(store, fragment, number)
            store.batch().session_states.append((fragment, "s", b"%d" % number, number))
            await store.flush()
        assert len(store._shadows) == 4, "one for each read, and the one that gathers"
        state = asyncio.ensure_future(store.session(fragment, "s"))
        store.release_reads()
        assert [numbers_of(await reading) for reading in readings] == [[8, 9], [8, 9], [8, 9]]
        row = await state
        assert row is not None
        assert row.state == b"7"
        await store.close()

    asyncio.run(scene())
