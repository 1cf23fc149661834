"""`busway check`: each kind of damage is named, and a healthy directory is whole, however it was left."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.cli.app import run
from busway.store.sqlite.commit_batch import REFERENCE_WEIGHT
from busway.store.sqlite.companion_files import HighWater
from busway.store.sqlite.file_check import FINDINGS_MAX
from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell

COPIES = 5
SENT_TOGETHER = 40


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with something of everything in one store; nobody serves it."""
    with RunningServer(tmp_path_factory.mktemp("check"), "--stores", "1") as server:
        _fill(server)
    return server.data


def _fill(server: RunningServer) -> None:
    text = server.connection_string
    for arguments in (
        ("queue", "create", "plain"),
        ("queue", "create", "sessions", "--requires-session"),
        ("topic", "create", "news"),
        *(("subscription", "create", "news", f"reader-{number}") for number in range(COPIES)),
        ("rule", "create", "news", "reader-0", "more", "--filter", "a = 1"),
        ("eventhub", "create", "hub", "--partitions", "1"),
    ):
        assert run([*arguments, "--connection-string", text]) == 0
    with ServiceBusClient.from_connection_string(text) as client:
        with client.get_queue_sender("plain") as sender:
            sender.send_messages([ServiceBusMessage(f"{number}" * 50) for number in range(SENT_TOGETHER)])
            sender.send_messages(ServiceBusMessage("alone"))
            sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
        with client.get_queue_receiver("plain", max_wait_time=5) as receiver:
            first, second, third = receiver.receive_messages(3)
            receiver.complete_message(first)
            receiver.defer_message(second)
            receiver.abandon_message(third)
        with client.get_queue_sender("sessions") as sender:
            sender.send_messages([ServiceBusMessage("s", session_id="one") for _ in range(4)])
        with client.get_queue_receiver("sessions", session_id="one", max_wait_time=5) as receiver:
            receiver.session.set_state(b"half way")
        with client.get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("n" * 3000))
    with EventHubProducerClient.from_connection_string(text, eventhub_name="hub") as producer:
        producer.send_batch([EventData("event") for _ in range(10)])


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    shutil.copytree(filled, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("BUSWAY_DATA", raising=False)
    return Shell(capsys)


def store(data: Path, number: int = 0) -> Path:
    return data / "stores" / f"store-{number}.db"


def change(statement: str, *values: object) -> Callable[[Path], None]:
    def damage(data: Path) -> None:
        connection = apsw.Connection(str(store(data)))
        connection.execute(statement, values).fetchall()
        assert connection.changes(), "something was damaged"
        connection.close()

    return damage


def flip(table: str, column: str, at: int) -> Callable[[Path], None]:
    """A bit of the bytes of the first such row."""

    def damage(data: Path) -> None:
        connection = apsw.Connection(str(store(data)))
        read = f"SELECT rowid, {column} FROM {table} ORDER BY rowid LIMIT 1"  # noqa: S608
        [(key, found)] = connection.execute(read).fetchall()
        changed = bytearray(found)
        changed[at] ^= 4
        write = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
        connection.execute(write, (bytes(changed), key))
        connection.close()

    return damage


def overwrite(start: int, length: int) -> Callable[[Path], None]:
    def damage(data: Path) -> None:
        with store(data).open("r+b") as file:
            file.seek(start)
            file.write(bytes(length))

    return damage


def ahead(data: Path) -> None:
    mark = HighWater(store(data).with_suffix(".high-water"))
    mark.write(mark.read() + 5)


def spoil_mark(data: Path) -> None:
    store(data).with_suffix(".high-water").write_bytes(b"9" * 60)


#: What is done → the kind that is told, how many findings of it, and words of the first.
DAMAGE: dict[str, tuple[Callable[[Path], None], str, int, str]] = {
    "a date of a row": (
        change("UPDATE messages SET enqueued_at = enqueued_at + 1 WHERE key = (SELECT max(key) FROM messages)"),
        "messages", 1, "its checksum does not fit",
    ),
    "a body that is text now": (
        change("UPDATE messages SET bare = CAST(x'ff' AS TEXT) WHERE key = (SELECT min(key) FROM messages)"),
        "messages", 1, "a column of it is no text",
    ),
    "the body of a deferred message": (
        flip("deferred", "bare", -1), "messages", 1, "number 2 of plain (deferred): its checksum",
    ),
    "the time of a scheduled message": (
        change("UPDATE scheduled SET scheduled_at = scheduled_at + 1"), "messages", 1, "is not that of its row",
    ),
    "a body in a run": (flip("message_runs", "data", -1), "messages", 1, f"number {SENT_TOGETHER} of plain"),
    "the head of a run": (
        flip("message_runs", "data", 9), "messages", SENT_TOGETHER - 3, "the head of its run is damaged",
    ),
    "the bounds of a run": (
        change("UPDATE message_runs SET last = last + 1"), "runs", 1, "the bounds of the run at number 1 of plain",
    ),
    "the marks of a run": (change("UPDATE run_marks SET gone = gone + 1"), "runs", 1, "the marks of the run"),
    "marks without a run": (
        change("INSERT INTO run_marks VALUES (99, 1, 1, NULL)"), "runs", 1, "and no run",
    ),
    "a body that copies share": (flip("payloads", "bare", -1), "messages", COPIES, "its checksum does not fit"),
    "a shared body that is gone": (change("DELETE FROM payloads"), "messages", COPIES, "is not there"),
    "a count of a shared body": (
        change("UPDATE payload_references SET weight = weight + ?", REFERENCE_WEIGHT),
        "payloads", 1, f"counts {COPIES + 1} rows with a shared body, and {COPIES} such rows",
    ),
    "the weight of a shared body": (
        change("UPDATE payload_references SET weight = weight + 64"), "payloads", 1, "is damaged",
    ),
    "a chunk of events": (flip("log_chunks", "data", -1), "events", 1, "the chunk of hub"),
    "the count of a chunk": (
        change("UPDATE log_chunks SET events = events + 1"), "events", 1, "its checksum does not fit",
    ),
    "the index of a session": (
        change("DELETE FROM session_messages WHERE key = (SELECT max(key) FROM session_messages)"),
        "sessions", 1, "('one') counts 4 messages, and its index has 3",
    ),
    "an entry of a session without its message": (
        change("DELETE FROM messages WHERE key = (SELECT max(key) FROM session_messages)"),
        "sessions", 1, "number 4 of sessions (active), which is not there",
    ),
    "the state of a session": (flip("session_states", "state", -1), "sessions", 1, "the state of a session"),
    "a counter": (
        change("UPDATE fragments SET active = active + 1 WHERE owner = 'sessions'"),
        "counters", 1, "counts 5 + 0 + 0, and 4 + 0 + 0 are there",
    ),
    "a message that is gone": (
        change("DELETE FROM scheduled"), "counters", 2, "counts 39 + 1 + 1, and 39 + 1 + 0 are there",
    ),
    "the last number": (
        change("UPDATE fragments SET last_counter = 3 WHERE owner = 'sessions'"),
        "counters", 1, "would give number 4 out once more",
    ),
    "the next key of a fragment": (
        change("UPDATE meta SET value = 1 WHERE name = 'next_fragment_key'"), "counters", 1, "out once more",
    ),
    "a row of the catalogue": (
        change("UPDATE catalogue SET text = '{' WHERE key = 'queue:plain'"), "catalogue", 1, "'queue:plain'",
    ),
    "a rule of the catalogue": (
        change("UPDATE catalogue SET text = '{\"format\":1}' WHERE key LIKE 'rule:%more'"),
        "catalogue", 1, "more'",
    ),
    "a fragment that is gone": (
        change("DELETE FROM fragments WHERE owner = 'sessions'"), "fragments", 1, "which the catalogue names",
    ),
    "lost commits": (ahead, "commits", 1, "has lost its last 5 commits or more"),
    "the high-water mark": (spoil_mark, "high-water", 1, "is damaged"),
    "a page of zeros": (overwrite(16384 * 9, 16384), "structure", 1, "SQLite says of store-0"),
    "the beginning of the file": (overwrite(0, 100), "file", 1, "it is no database"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_with_its_place(what: str, data: Path, shell: Shell) -> None:
    """F4: exit status 1, the kind of damage, how often, and where."""
    damage, kind, count, words = DAMAGE[what]
    damage(data)
    found = damage_in(data, shell)
    assert kind in found, found
    assert words in found[kind][1], found
    assert found[kind][0] == count or kind == "structure", found


def damage_in(data: Path, shell: Shell) -> dict[str, tuple[int, str]]:
    """By kind: how often, and the first of it."""
    assert run(["check", "--data", str(data), "--json"]) == 1
    told = json.loads(shell._capture.readouterr().out)
    assert told["whole"] is False
    damage = [*told["damage"], *(each for store in told["stores"] for each in store["damage"])]
    return {each["kind"]: (each["count"], each["first"][0]) for each in damage}


def test_a_directory_without_damage_is_whole_and_untouched(data: Path, shell: Shell) -> None:
    """F4: exit status 0; not a byte is written, nor a file made."""
    before = state_of(data)
    (data / "stores").chmod(0o500)
    told = shell.json("check", "--data", str(data))
    text = shell("check", "--data", str(data))
    (data / "stores").chmod(0o700)
    assert state_of(data) == before
    assert told["whole"] is True
    [found] = told["stores"]
    assert (found["messages"], found["events"], found["damage"]) == (41 + 4 + COPIES, 10, [])
    assert f"{data} is whole." in text


def state_of(data: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in data.rglob("*") if path.is_file()
    }


def test_a_missing_store_is_named(tmp_path: Path, shell: Shell) -> None:
    """F4: the catalogue knows which stores there are."""
    with RunningServer(tmp_path, "--stores", "2") as server:
        pass
    store(server.data, 1).unlink()
    assert "store-1 is missing" in damage_in(server.data, shell)["stores"][1]


def test_stores_of_two_namespaces_are_told(data: Path, tmp_path: Path, shell: Shell) -> None:
    """F4: somebody has restored one file from elsewhere."""
    with RunningServer(tmp_path / "other", "--stores", "2") as other:
        pass
    shutil.copy(store(other.data, 1), store(data, 1))
    assert "belong to different namespaces" in damage_in(data, shell)["stores"][1]


def test_many_findings_are_counted_and_few_are_told(data: Path, shell: Shell) -> None:
    """F4: what is told is bounded, whatever was hit."""
    change("UPDATE message_runs SET checksum = 0, data = zeroblob(length(data))")(data)
    assert run(["check", "--data", str(data), "--json"]) == 1
    [found] = json.loads(shell._capture.readouterr().out)["stores"]
    [messages] = [each for each in found["damage"] if each["kind"] == "messages"]
    assert messages["count"] == SENT_TOGETHER - 3
    assert len(messages["first"]) == FINDINGS_MAX
    assert run(["check", "--data", str(data)]) == 1
    assert f"messages: and {SENT_TOGETHER - 3 - FINDINGS_MAX} more." in shell._capture.readouterr().out


def test_a_directory_that_is_served_is_refused(tmp_path: Path, shell: Shell) -> None:
    """Command-line contract: exit status 2 and a sentence."""
    with RunningServer(tmp_path) as server:
        refusal = shell("check", "--data", str(server.data), code=2)
        assert f"in use by process {server.pid}: stop that server, or check a backup" in refusal


def test_where_no_bus_is_nothing_is_checked(tmp_path: Path, shell: Shell) -> None:
    """Command-line contract: exit status 2."""
    assert "There is no bus in" in shell("check", "--data", str(tmp_path), code=2)
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_a_newer_version_is_not_judged(data: Path, shell: Shell) -> None:
    """F4: this version would call damaged what it does not know."""
    connection = apsw.Connection(str(store(data)))
    connection.execute("PRAGMA user_version = 99").fetchall()
    connection.close()
    assert "newer version" in shell("check", "--data", str(data), code=2)


def test_after_a_kill_the_log_is_followed(tmp_path: Path, shell: Shell) -> None:
    """F1: what was accepted is seen; the log beside a store is read, and stays as it is."""
    server = RunningServer(tmp_path, "--stores", "1").start()
    text = server.connection_string
    assert run(["queue", "create", "plain", "--connection-string", text]) == 0
    with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender("plain") as sender:
        for number in range(50):
            sender.send_messages(ServiceBusMessage(f"{number}"))
    server.kill()
    before = state_of(server.data)
    assert store(server.data).with_name("store-0.db-wal").stat().st_size > 0
    shell._capture.readouterr()
    told = shell.json("check", "--data", str(server.data))
    assert told["stores"][0]["messages"] == 50
    assert state_of(server.data) == before
