"""`busway stores copy`: a bus with something of everything lies in other stores afterwards, whatever happens."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from busway.clock import Clock, Entropy
from busway.safekeeping import store_copy
from busway.safekeeping.bus_copy import StoreEnd, copy_bus
from busway.safekeeping.store_copy import CopyRefused
from busway.safekeeping.store_ends import ends_of
from busway.store.contract import CommitBatch, Store
from busway.store.stored_rows import StoredRows
from tests.fault.test_refused_starts import refusal
from tests.harness import filled_bus
from tests.harness.filled_bus import Picture
from tests.harness.postgres_server import PostgresServer
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.sdk

STORES = 4


class Filled:
    """A bus that is stopped, and what clients saw of it."""

    def __init__(self, folder: Path, picture: Picture, events: list[tuple[object, ...]]) -> None:
        self._folder = folder
        self.picture = picture
        self.events = events

    def copied_to(self, folder: Path) -> Path:
        """Its data directory, as another one."""
        return Path(shutil.copytree(self._folder / "data", folder / "data"))

    def is_seen_in(self, server: RunningServer) -> bool:
        picture = filled_bus.picture(server)
        assert picture.keys() == self.picture.keys()
        for what, rows in self.picture.items():
            assert picture[what] == rows, what
        return filled_bus.events(server) == self.events


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    folder = tmp_path_factory.mktemp("filled")
    with RunningServer(folder) as server:
        command = [str(BUSWAY), "eventhub", "create", filled_bus.HUB, "--data", str(server.data)]
        subprocess.run(command, capture_output=True, check=True)
        filled_bus.fill(server)
        filled_bus.fill_hub(server)
        return Filled(folder, filled_bus.picture(server), filled_bus.events(server))


def copy(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(BUSWAY), "stores", "copy", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def copied(*arguments: str | Path) -> dict[str, Any]:
    done = copy(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(*arguments: str | Path, status: int = 1) -> str:
    done = copy(*arguments)
    assert done.returncode == status, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


# -- there, on, and back


def test_a_bus_moves_into_a_database_on_to_another_and_back_into_files(
    filled: Filled, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Copy: numbers, counts, times, properties, sessions, dead letters, copies, events; no more, no less."""
    east = postgres.database() + "?name=east&stores=6"
    west = [f"{postgres.database()}?name={name}&stores=4" for name in ("west", "south")]
    told = copied("--data", filled.copied_to(tmp_path), "--to", east)
    assert told["rows"]["messages"] > 300
    assert told["rows"]["chunks"] == filled_bus.EVENTS
    with RunningServer(tmp_path / "east", "--store", east) as server:
        assert filled.is_seen_in(server)
    copied("--from", east, "--to", west[0], "--to", west[1])
    with RunningServer(tmp_path / "west", "--store", west[0], "--store", west[1]) as server:
        assert filled.is_seen_in(server)
    back = tmp_path / "back" / "data" / "stores"
    back.mkdir(parents=True)
    copied("--from", west[0], "--from", west[1], "--to", f"sqlite:{back}")
    check = [str(BUSWAY), "check", "--data", str(back.parent)]
    assert "is whole" in subprocess.run(check, capture_output=True, text=True, check=True).stdout
    with RunningServer(tmp_path / "back") as server:
        assert filled.is_seen_in(server)
    for url in (east, *west):
        postgres.drop(url)


def test_a_copy_is_not_taken_for_an_older_state_of_what_had_its_name(
    filled: Filled, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Copy: a data directory that remembers stores of this name, which went far, serves the copy as it is."""
    first, second = (f"{postgres.database()}?name=east&stores={STORES}" for _ in range(2))
    copied("--data", filled.copied_to(tmp_path), "--to", first)
    with RunningServer(tmp_path / "server", "--store", first) as server:
        send = [str(BUSWAY), "send", "plain", "--count", "3", "--body", "far", "--data", str(server.data)]
        for _ in range(3):
            subprocess.run(send, capture_output=True, check=True)
    copied("--from", first, "--to", second)
    with RunningServer(tmp_path / "server", "--store", second) as server:
        last = filled_bus.picture(server)["plain"][-1][0]
        subprocess.run(send, capture_output=True, check=True)
        assert filled_bus.picture(server)["plain"][-1][0] == last + 3
    assert "lost commits" not in server.log.read_text()
    for url in (first, second):
        postgres.drop(url)


def test_copies_of_a_publish_share_their_body_again(
    filled: Filled, postgres_url: str, tmp_path: Path
) -> None:
    """Copy: what lay once in the files lies once in the database, however many subscriptions have it."""
    to = f"{postgres_url}?stores={STORES}"
    copied("--data", filled.copied_to(tmp_path), "--to", to)
    with psycopg.connect(postgres_url) as connection:
        [(bodies, references)] = connection.execute(
            "SELECT count(*), sum(copies)::int FROM busway.payload_references"
        ).fetchall()
        [(rows,)] = connection.execute(
            "SELECT (SELECT count(*) FROM busway.messages WHERE payload IS NOT NULL)"
            " + (SELECT count(*) FROM busway.deferred WHERE payload IS NOT NULL)"
        ).fetchall()
    assert bodies == 30
    assert references == rows == 30 * filled_bus.SUBSCRIPTIONS - 15


# -- stopped on its way


def test_a_copy_that_is_killed_goes_on_where_it_was(
    filled: Filled, postgres_url: str, tmp_path: Path
) -> None:
    """Attack: kill -9 while rows are put. No server takes what is half; the same call makes it whole."""
    data, to = filled.copied_to(tmp_path), f"{postgres_url}?name=east&stores=5"
    _kill_when_begun(postgres_url, [str(BUSWAY), "stores", "copy", "--data", str(data), "--to", to])
    if "this bus already" not in copy("--data", data, "--to", to).stderr:  # it was too late to kill it
        assert "this bus already" in refused("--data", data, "--to", to)
    with RunningServer(tmp_path / "server", "--store", to) as server:
        assert filled.is_seen_in(server)


def _kill_when_begun(url: str, command: list[str]) -> None:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with psycopg.connect(url, autocommit=True) as connection:
        while process.poll() is None:
            try:
                found = connection.execute("SELECT EXISTS (SELECT FROM busway.messages)").fetchone()
            except psycopg.Error:
                continue
            if found == (True,):
                process.send_signal(signal.SIGKILL)
                break
    process.wait()


@pytest.mark.long
def test_a_copy_that_is_killed_twenty_times_loses_and_doubles_nothing(
    filled: Filled, postgres_url: str, tmp_path: Path
) -> None:
    """Attack: kill -9 at any moment, twenty times, then to the end."""
    with RunningServer(tmp_path) as server:
        pass  # a new one, to be replaced: its folder only
    shutil.rmtree(tmp_path / "data")
    data, to = filled.copied_to(tmp_path), f"{postgres_url}?name=east&stores=5"
    server = RunningServer(tmp_path)
    with server:
        send = [str(BUSWAY), "send", "spread", "--count", "60000", "--body", "x" * 500, "--data", str(data)]
        subprocess.run(send, capture_output=True, check=True)
        more = filled_bus.picture(server)["spread counts"]
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    command = [str(BUSWAY), "stores", "copy", "--data", str(data), "--to", to]
    killed = 0
    while killed < 20:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.25, 0.9))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        killed += 1
    copy("--data", data, "--to", to)
    with RunningServer(tmp_path / "server", "--store", to) as server:
        found = filled_bus.picture(server)
        assert found["spread counts"] == more, seed
        assert found["plain"] == filled.picture["plain"], seed
        assert filled_bus.events(server) == filled.events, seed
    with psycopg.connect(postgres_url) as connection:
        counted = connection.execute("SELECT count(*), count(DISTINCT key) FROM busway.messages").fetchone()
    assert counted is not None
    assert counted[0] == counted[1]
    assert killed >= 3


class Stopped(Exception):
    """The process ends here."""


class StoppingEnd:
    """A target whose commits are counted, all stores of it together: after so many everything ends."""

    def __init__(self, end: StoreEnd, left: list[int], *, is_durable: bool) -> None:
        self.name, self.shown = end.name, end.shown
        self.held, self.rows, self.begin = end.held, end.rows, end.begin
        self._end = end
        self._left = left
        self._is_durable = is_durable

    def store(self) -> Store:
        store = self._end.store()
        flush = store.flush

        async def counted() -> None:
            self._left[0] -= 1
            if self._left[0] == 0 and not self._is_durable:
                vars(CommitBatch)["__init__"](store.batch())  # what has joined is lost
            await flush()
            if self._left[0] == 0:
                raise Stopped

        store.flush = counted  # type: ignore[method-assign]
        return store


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_copy_may_end_at_every_commit(
    filled: Filled, tmp_path: Path, is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: it ends behind each of its commits, or before it counts, and is begun again; pages are small."""
    monkeypatch.setattr(store_copy, "_PAGE_ROWS", 30)
    monkeypatch.setattr(store_copy, "_FRAGMENTS_AT_ONCE", 20)
    source = filled.copied_to(tmp_path) / "stores"
    target = tmp_path / "new" / "data" / "stores"
    target.mkdir(parents=True)
    clock, entropy = Clock(), Entropy()
    commits = 1
    for _ in range(400):
        left = [commits]

        def targets(stores: int, left: list[int] = left) -> list[StoreEnd]:
            ends = ends_of([f"sqlite:{target}"], clock, entropy, stores)
            return [StoppingEnd(end, left, is_durable=is_durable) for end in ends]

        try:
            asyncio.run(
                copy_bus(
                    ends_of([f"sqlite:{source}"], clock, entropy), targets, lambda _label: lambda _count: None
                )
            )
        except Stopped:
            commits = 1 if is_durable else commits + 1
            continue
        break
    else:
        pytest.fail("it does not come to an end")
    with RunningServer(tmp_path / "new") as server:
        assert filled.is_seen_in(server)


class TamperingEnd(StoppingEnd):
    """What was put there is changed before it is compared."""

    def __init__(self, end: StoreEnd, path: Path, statement: str) -> None:
        super().__init__(end, [0], is_durable=True)
        self._path = path
        self._statement = statement
        self.rows = self._tampered

    def _tampered(self, *, is_open: bool = False) -> StoredRows:
        if is_open:
            connection = apsw.Connection(str(self._path))
            connection.execute(self._statement)
            connection.close()
        return self._end.rows(is_open=is_open)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM messages WHERE key = (SELECT max(key) FROM messages)", "messages"),
        ("DELETE FROM message_runs WHERE key = (SELECT max(key) FROM message_runs)", "messages"),
        ("UPDATE scheduled SET enqueued_at = enqueued_at + 1", "messages"),
        ("UPDATE session_states SET set_at = set_at + 1", "states"),
        ("DELETE FROM duplicate_ids WHERE message_id = (SELECT max(message_id) FROM duplicate_ids)", "ids"),
        ("UPDATE log_chunks SET last_at = last_at + 1", "chunks"),
        ("DELETE FROM expiry_entries", "index of expiry"),
        (
            "DELETE FROM session_messages WHERE key = (SELECT max(key) FROM session_messages)",
            "index of sessions",
        ),
    ],
)
def test_what_is_not_there_as_it_was_put_is_noticed(
    filled: Filled, tmp_path: Path, statement: str, said: str
) -> None:
    """Copy: everything is read back at the end; what is missing or other keeps the copy from being served."""
    source, target = filled.copied_to(tmp_path) / "stores", tmp_path / "new"
    target.mkdir()
    clock, entropy = Clock(), Entropy()

    def targets(stores: int) -> list[StoreEnd]:
        ends = ends_of([f"sqlite:{target}"], clock, entropy, stores)
        return [TamperingEnd(end, target / f"{end.name}.db", statement) for end in ends]

    with pytest.raises(CopyRefused, match=f"is not what was put there \\({said}"):
        asyncio.run(copy_bus(ends_of([f"sqlite:{source}"], clock, entropy), targets, _tell_nobody))
    said_by_server = refusal(tmp_path / "other", 0, "--store", f"sqlite:{target / 'store-0.db'}")
    assert "is being copied" in said_by_server


def _tell_nobody(label: str) -> Callable[[int], None]:
    del label
    return lambda _count: None


# -- refused


def test_nothing_is_touched_that_somebody_works_with(
    filled: Filled, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Refused: a directory or a file that is served, a database that is served, at either end."""
    data, url = filled.copied_to(tmp_path), postgres.database()
    east = f"{url}?name=east&stores={STORES}"
    with RunningServer(tmp_path):
        assert "is in use by process" in refused("--data", data, "--to", east)
        assert "is in use by process" in refused("--from", f"sqlite:{data / 'stores'}", "--to", east)
    with RunningServer(tmp_path / "east", "--store", east) as server:
        assert "is in use by a server" in refused("--data", data, "--to", east)
        assert "is in use by a server" in refused("--from", east, "--to", f"sqlite:{tmp_path / 'x'}/")
        shown = [str(BUSWAY), "stores", "--json", "--data", str(server.data)]
        states = json.loads(subprocess.run(shown, capture_output=True, check=True).stdout)
        assert {store["state"] for store in states} == {"open"}
    assert "it holds another bus" in refused("--data", data, "--to", east)
    postgres.drop(url)


def test_what_cannot_be_copied_is_said_before_anything_is(
    filled: Filled, postgres_url: str, tmp_path: Path
) -> None:
    """Refused: too few stores at either end, no bus, an address that is none, a password among the arguments."""
    data = filled.copied_to(tmp_path)
    few = f"{postgres_url}?stores=2"
    assert "4 stores are to be copied, and there are only 2" in refused("--data", data, "--to", few)
    first = f"sqlite:{data / 'stores' / 'store-0.db'}"
    assert "store-1, store-2, store-3 are not among" in refused("--from", first, "--to", postgres_url)
    assert "There is no bus" in refused("--data", tmp_path / "nothing", "--to", postgres_url)
    assert "sqlite:PATH" in refused("--data", data, "--to", "mysql://db/bus")
    said = refused("--data", data, "--to", "postgresql://bus:Geheim@db/bus", status=2)
    assert "--to @FILE" in said
    assert "Geheim" not in said
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT to_regclass('busway.stores')").fetchone() == (None,)


def test_a_source_that_was_served_since_is_another_one(
    filled: Filled, postgres_url: str, tmp_path: Path
) -> None:
    """Refused: the half of a copy goes with the state that it is of; nor does a server take it."""
    data, to = filled.copied_to(tmp_path), f"{postgres_url}?stores={STORES}"
    _kill_when_begun(postgres_url, [str(BUSWAY), "stores", "copy", "--data", str(data), "--to", to])
    with psycopg.connect(postgres_url) as connection:
        half = connection.execute("SELECT count(*) FROM busway.catalogue WHERE key = 'copying'").fetchone()
    if half == (0,):
        pytest.skip("it was whole before it could be killed")
    assert "is being copied" in refusal(tmp_path / "other", 0, "--store", to)
    with RunningServer(tmp_path) as server:
        send = [str(BUSWAY), "send", "plain", "--body", "late", "--data", str(server.data)]
        subprocess.run(send, capture_output=True, check=True)
    assert "which was served since" in refused("--data", data, "--to", to)


def test_damaged_messages_are_named_and_may_be_left_behind(
    filled: Filled, postgres_url: str, tmp_path: Path
) -> None:
    """Refused: a flipped bit in a body, by number and queue. Without it the rest is copied, and counted so."""
    data, to = filled.copied_to(tmp_path), f"{postgres_url}?stores={STORES}"
    [number] = _damage_one(data / "stores", "later1")
    said = refused("--data", data, "--to", to)
    assert f"number {number} (scheduled) of plain" in said
    assert "--skip-damaged" in said
    assert copied("--data", data, "--to", to, "--skip-damaged")["leftOut"] == 1
    with RunningServer(tmp_path / "server", "--store", to) as server:
        picture = filled_bus.picture(server)
    left = [row for row in filled.picture["plain"] if row[0] != number]
    assert picture["plain"] == left
    assert picture["plain counts"][0][3] == filled.picture["plain counts"][0][3] - 1


def _damage_one(stores: Path, body: str) -> list[int]:
    """A scheduled message with this body; its number."""
    found: list[int] = []
    for path in sorted(stores.glob("store-*.db")):
        connection = apsw.Connection(str(path))
        for key, bare in list(connection.execute("SELECT key, bare FROM scheduled")):
            if isinstance(bare, bytes) and bare.endswith(body.encode()):
                damaged = bare[:-1] + b"?"
                connection.execute("UPDATE scheduled SET bare = ? WHERE key = ?", (damaged, key))
                found.append(int(key) & (1 << 40) - 1)
        connection.close()
    return found
