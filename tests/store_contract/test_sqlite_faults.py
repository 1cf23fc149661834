"""SQLite on a disk that fails: at every write, at every sync, in the middle of opening, when full."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import (
    Change,
    CommitRefused,
    CommitUnknown,
    Counters,
    FragmentKey,
    FragmentRow,
    Move,
    StoreError,
    StoreState,
    TransferMark,
)
from busway.store.rows import SHARING_SAVES_BYTES_MIN
from busway.store.sqlite.store import SqliteStore
from tests.harness.memory_store import MemoryStore
from tests.harness.shares import SHARES, one_of_them
from tests.store_contract.faulty_disk import FaultyDisk, reboot
from tests.store_contract.log_scenario import append, chunk, forget, producers_of, remember, retire
from tests.store_contract.scenario import (
    LOTS,
    Outcomes,
    World,
    active_numbers,
    add_fragment,
    check_references,
    delete,
    fields_of,
    message,
    put,
    put_in_session,
)

pytestmark = pytest.mark.fault

Q, D = FragmentKey(1), FragmentKey(2)
KEYS = range(1, 3)
Step = Callable[[Any], None]


def _create(store: Any) -> None:
    for key in (Q, D):
        store.batch().fragments_created.append(FragmentRow(key, "orders", 0, Counters()))


def _send(store: Any) -> None:
    put(store, Q, *[message(number, b"x" * 3000) for number in range(1, 21)])


def _send_in_session(store: Any) -> None:
    put_in_session(store, Q, "a", 30, 31)
    store.batch().expiry_entries.append((Q, 77, 30))


def _complete(store: Any) -> None:
    delete(store, Q, 1, 2, 3, 30)


def _abandon(store: Any) -> None:
    store.batch().changes.append(Change(Q, PLACE_ACTIVE, 4, 1, b"changed"))


def _defer(store: Any) -> None:
    store.batch().moves.append(Move(Q, PLACE_ACTIVE, 5, Q, PLACE_DEFERRED, 5))


def _dead_letter(store: Any) -> None:
    store.batch().moves.append(Move(Q, PLACE_ACTIVE, 6, D, PLACE_ACTIVE, 1, changes=b"reason"))


def _schedule(store: Any) -> None:
    put(store, Q, message(40, scheduled_at_ms=10), place=PLACE_SCHEDULED)


def _activate(store: Any) -> None:
    store.batch().moves.append(Move(Q, PLACE_SCHEDULED, 40, Q, PLACE_ACTIVE, 41, enqueued_at_ms=10))


def _remember_ids(store: Any) -> None:
    store.batch().duplicate_ids.extend([(Q, "i", 2_000), (Q, "j", 1_000)])


def _set_state(store: Any) -> None:
    store.batch().session_states.append((Q, "a", b"state" * 100, 1_500))


def _describe(store: Any) -> None:
    store.batch().catalogue["queue/orders"] = "{}"
    store.batch().catalogue_version = 1


def _publish(store: Any) -> None:
    """Copies that share one body, in both fragments and two places."""
    body = b"s" * SHARING_SAVES_BYTES_MIN
    put(store, Q, message(50, body), message(51, body))
    put(store, Q, message(52, body, scheduled_at_ms=20), place=PLACE_SCHEDULED)
    put(store, D, message(50, body))


def _settle_copies(store: Any) -> None:
    delete(store, Q, 50)
    store.batch().moves.append(Move(Q, PLACE_ACTIVE, 51, D, PLACE_DEFERRED, 51))


def _publish_and_settle(store: Any) -> None:
    body = b"t" * SHARING_SAVES_BYTES_MIN
    put(store, Q, message(60, body))
    put(store, D, message(61, body))
    store.batch().deletes.append((Q, PLACE_SCHEDULED, [52]))
    store.batch().transfer_marks.append(TransferMark("other", D, 7))


def _settle_the_last_copies(store: Any) -> None:
    delete(store, Q, 60)
    delete(store, D, 61)
    store.batch().transfer_marks_removed.append(TransferMark("other", D, 7))


def _send_runs(store: Any) -> None:
    """Of one page and of several, in both fragments."""
    put(store, Q, *[message(number, b"%d" % number) for number in range(101, 121)])
    put(store, D, *[message(number, b"x" * 900) for number in range(101, 151)])


def _settle_of_runs(store: Any) -> None:
    """From the beginning, from the middle, and what was not settled otherwise."""
    delete(store, Q, *range(101, 104), 110)
    delete(store, D, *range(120, 130))
    store.batch().changes.append(Change(Q, PLACE_ACTIVE, 105, 1, None))
    store.batch().moves.append(Move(D, PLACE_ACTIVE, 140, Q, PLACE_DEFERRED, 140))
    put(store, Q, *[message(number) for number in range(151, 161)])


def _settle_the_rest_of_runs(store: Any) -> None:
    delete(store, Q, *range(101, 161))
    delete(store, D, *range(101, 149))


def _append_events(store: Any) -> None:
    """Chunks of two logs, of one page and of several."""
    append(store, Q, chunk(0, 1, 2), chunk(3, body=b"x" * 40_000))
    append(store, D, chunk(0), chunk(1), chunk(2, body=b"y" * 9_000))
    remember(store, Q, (7, 0, 3, 100), (8, 0, 0, 50))


def _append_more_events(store: Any) -> None:
    append(store, Q, chunk(4, 5, 6, body=b"z" * 9_000))
    remember(store, Q, (7, 1, 6, 200))


def _compact_events(store: Any) -> None:
    retire(store, Q, 0, 3)
    append(store, Q, chunk(1, 3, body=b"w" * 20_000))


def _retire_events(store: Any) -> None:
    retire(store, D, 0, 1)
    forget(store, Q, 100)


def _drop(store: Any) -> None:
    store.batch().fragments_dropped.append(D)


QUEUE: list[Step] = [
    _create,
    _send,
    _send_in_session,
    _complete,
    _abandon,
    _defer,
    _dead_letter,
    _schedule,
    _activate,
    _remember_ids,
    _set_state,
    _describe,
    _drop,
]
COPIES: list[Step] = [
    _create,
    _publish,
    _settle_copies,
    _publish_and_settle,
    _settle_the_last_copies,
    _drop,
]
RUNS: list[Step] = [_create, _send_runs, _settle_of_runs, _settle_the_rest_of_runs, _drop]
LOGS: list[Step] = [
    _create,
    _append_events,
    _append_more_events,
    _compact_events,
    _retire_events,
    _drop,
]
#: A new store alone; all others begin with one that was opened before, so that its birth is hurt once.
BIRTH: list[Step] = []
SCENARIOS = pytest.mark.parametrize(
    "scenario",
    [BIRTH, QUEUE, COPIES, RUNS, LOGS],
    ids=["birth", "queue", "copies", "runs", "logs"],
)


async def picture(store: Any, keys: range) -> list[object]:
    """Enough to tell any two stages of the scenario apart, and half of a step from the whole."""
    seen: list[object] = [await store.catalogue(), await store.next_due_ms(), await store.next_expiry_ms()]
    seen.append([row.key for row in await store.fragments()])
    for number in keys:
        key = FragmentKey(number)
        seen.append([fields_of(each) for each in (await store.peek(key, 1, 100, LOTS, None)).messages])
        seen.append(await store.next_sessions(key, 0, 10))
        seen += [(await store.chunks(key, 0, LOTS)).chunks, await producers_of(store, key)]
    row = await store.session(Q, "a")
    seen.append(row and (row.active, row.first_number, row.state))
    return [*seen, await store.known_ids(Q, ["i", "j"], 0), await store.transfer_marks()]


async def _pictures(scenario: list[Step]) -> list[list[object]]:
    """What a store shows after the first k steps, by the specification."""
    store = MemoryStore("model")
    await store.open()
    seen = [await picture(store, KEYS)]
    for step in scenario:
        step(store)
        await store.flush()
        seen.append(await picture(store, KEYS))
    return seen


def _store(directory: Path, disk: FaultyDisk | None) -> SqliteStore:
    return SqliteStore(
        "first",
        directory / "first.db",
        Clock(),
        reserve_bytes=0,
        space_low_bytes=0,
        run_messages_min=4,
        checkpoint_bytes=40_000,  # so that checkpoints fall between the steps
        vfs=None if disk is None else disk.name,
    )


async def _play(store: SqliteStore, scenario: list[Step], first: int = 0) -> tuple[int, Outcomes]:
    """Plays the steps from `first`; returns how many are done, and what the last one was told."""
    told = Outcomes()
    for index in range(first, len(scenario)):
        told = Outcomes()
        scenario[index](store)
        store.batch().callbacks.append(told)
        try:
            await store.flush()
        except StoreError:
            return index, told
    return len(scenario), told


@pytest.fixture(scope="module")
def born(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that nothing was done with."""
    directory = tmp_path_factory.mktemp("born")

    async def give_birth() -> None:
        store = _store(directory, None)
        await store.open()
        await store.close()

    asyncio.run(give_birth())
    return directory


def _life(tmp_path: Path, name: str, scenario: list[Step], born: Path) -> Path:
    """Where one life takes place."""
    directory = tmp_path / name
    if scenario is BIRTH:
        directory.mkdir()
    else:
        shutil.copytree(born, directory)
    return directory


def _steps_of_a_whole_run(directory: Path, scenario: list[Step]) -> int:
    async def play() -> int:
        with FaultyDisk() as disk:
            store = _store(directory, disk)
            await store.open()
            assert (await _play(store, scenario))[0] == len(scenario)
            await store.close()
            return disk.steps

    return asyncio.run(play())


async def _crash_at(
    directory: Path, scenario: list[Step], step: int, *, power_cut: bool
) -> tuple[int, list[type | None]]:
    """One life that ends at a step: (steps reported as done, what the last callback was told)."""
    with FaultyDisk() as disk:
        disk.die_at(step)
        store = _store(directory, disk)
        done, told = 0, Outcomes()
        try:
            await store.open()
        except StoreError:
            pass
        else:
            done, told = await _play(store, scenario)
        # The dead process writes nothing more; what it holds open only has to be let go.
        await store.close()
        if power_cut:
            disk.cut_power()
    reboot(directory / "first.db")
    return done, told.kinds()


@SCENARIOS
@pytest.mark.parametrize(
    ("power_cut", "share"), [*one_of_them(0, False, "killed"), *one_of_them(1, True, "power-cut")]
)
def test_a_crash_at_any_write_leaves_every_batch_whole_or_absent(
    tmp_path: Path, born: Path, scenario: list[Step], power_cut: bool, share: int
) -> None:
    """F2, F3: for each write, sync and truncation of the scenario, opening and closing included."""
    total = _steps_of_a_whole_run(_life(tmp_path, "whole", scenario, born), scenario)
    expected = asyncio.run(_pictures(scenario))
    assert total > 4 * len(scenario)
    for step in range(1 + share, total + 1, SHARES):
        directory = _life(tmp_path, f"step-{step}", scenario, born)

        async def life(step: int = step, directory: Path = directory) -> None:
            done, told = await _crash_at(directory, scenario, step, power_cut=power_cut)
            store = _store(directory, None)
            await store.open()
            found = expected.index(await picture(store, KEYS))
            check_references(directory / "first.db")
            assert store.lost_commits == 0
            allowed = {done} if told in ([], [CommitRefused]) else {done, done + 1}
            assert found in allowed, f"step {step}: {done} were reported, {found} are there, told {told}"
            if step % 5 == 0:
                assert (await _play(store, scenario, found))[0] == len(scenario)
                assert await picture(store, KEYS) == expected[-1]
            await store.close()

        asyncio.run(life())
        shutil.rmtree(directory)


@SCENARIOS
@pytest.mark.parametrize("share", one_of_them(2))
def test_one_failed_write_or_sync_is_survived_by_reopening(
    tmp_path: Path, born: Path, scenario: list[Step], share: int
) -> None:
    """F5: unknown or certain, never a lie; after reopening the store goes on without a restart."""
    total = _steps_of_a_whole_run(_life(tmp_path, "whole", scenario, born), scenario)
    expected = asyncio.run(_pictures(scenario))
    outcomes = set()
    for step in range(1 + share, total + 1, SHARES):
        directory = _life(tmp_path, f"step-{step}", scenario, born)

        async def life(step: int = step, directory: Path = directory) -> None:
            with FaultyDisk() as disk:
                disk.fail_at(step)
                store = _store(directory, disk)
                try:
                    await store.open()
                except StoreError:
                    await store.open()
                done, told = await _play(store, scenario)
                outcomes.update(told.kinds())
                if done < len(scenario):
                    assert store.state is StoreState.FAILED
                    assert told.kinds() in ([CommitUnknown], [CommitRefused])
                    await store.reopen()
                    found = expected.index(await picture(store, KEYS))
                    assert found in ({done} if told.kinds() == [CommitRefused] else {done, done + 1})
                    done, _ = await _play(store, scenario, found)
                assert done == len(scenario)
                assert await picture(store, KEYS) == expected[-1]
                await store.close()
            after = _store(directory, None)
            await after.open()
            assert await picture(after, KEYS) == expected[-1]
            check_references(directory / "first.db")
            await after.close()

        asyncio.run(life())
        shutil.rmtree(directory)
    assert scenario is BIRTH or CommitUnknown in outcomes


def test_a_full_disk_fails_the_commit_and_heals(tmp_path: Path) -> None:
    """F6: nothing acknowledged is lost, and space alone brings the store back."""

    async def play() -> None:
        with FaultyDisk() as disk:
            store = _store(tmp_path, disk)
            await store.open()
            fragment = add_fragment(store)
            put(store, fragment, message(1))
            await store.flush()
            disk.fill_up()
            put(store, fragment, message(2))
            with pytest.raises(CommitUnknown):
                await store.flush()
            with pytest.raises(StoreError, match=r"first\.db"):
                await store.reopen()
            assert store.state is StoreState.FAILED
            disk.heal()
            await store.reopen()
            assert (await active_numbers(store, fragment))[:1] == [1]
            put(store, fragment, message(3))
            await store.flush()
            assert 3 in await active_numbers(store, fragment)
            await store.close()

    asyncio.run(play())


def test_files_copied_from_a_running_store_hold_everything_reported(sqlite_world: World) -> None:
    """F1: what a killed process leaves behind."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number in range(1, 101):
            put(store, fragment, message(number, b"x" * 500))
            await store.flush()
            if number % 3 == 0:
                delete(store, fragment, number - 1)
                await store.flush()
        store.hold_commits()
        put(store, fragment, message(101))
        await asyncio.sleep(0)
        copy = sqlite_world.directory / "copy"
        copy.mkdir()
        for file in sqlite_world.directory.glob("first.*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy / file.name)
        later = _store(copy, None)
        await later.open()
        expected = [number for number in range(1, 101) if number % 3 != 2]
        assert await active_numbers(later, fragment) == expected
        await later.close()

    sqlite_world.run(play)
