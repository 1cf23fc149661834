"""PostgreSQL stands still, its disk is full: what clients see meanwhile, and that nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from tests.harness.postgres_server import PostgresServer
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]


def create(server: RunningServer, name: str, *options: str) -> None:
    command = [str(BUSWAY), "queue", "create", name, *options, "--data", str(server.data)]
    subprocess.run(command, capture_output=True, check=True)


def connect(server: RunningServer, **options: object) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(server.connection_string, **options)


def drain(server: RunningServer, queue: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with (
        connect(server) as client,
        client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=2
        ) as receiver,
    ):
        while messages := receiver.receive_messages(100):
            found.update(str(message) for message in messages)
    return found


def resume_after(server: PostgresServer, seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, server.resume)
    timer.start()
    return timer


@pytest.mark.parametrize("queue", ["plain", "parts"])
def test_three_seconds_of_a_stopped_postgresql_are_a_pause(
    own_postgres: PostgresServer, tmp_path: Path, queue: str
) -> None:
    """S-1: SIGSTOP of all its processes: nobody who sends, also by a key to a partitioned queue, sees an error."""
    url = own_postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=2") as server:
        create(server, "plain")
        create(server, "parts", "--partitioned")
        with connect(server, retry_total=0) as client, client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("before", partition_key="k"))
            own_postgres.pause()
            timer = resume_after(own_postgres, 3)
            began = time.monotonic()
            sender.send_messages(ServiceBusMessage("first", partition_key="k"))
            assert time.monotonic() - began > 2
            sender.send_messages(ServiceBusMessage("second", partition_key="k"))
            timer.join()
        assert drain(server, queue) == Counter(["before", "first", "second"])


def test_ten_seconds_of_it_are_errors_that_pass(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """S-1: after five seconds clients are told to try again; the commit in the socket comes too late when PostgreSQL
    goes on, so what was acknowledged is there, and nothing is there that nobody sent twice."""
    url = own_postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=1") as server:
        create(server, "orders")
        tries: Counter[str] = Counter()
        with connect(server, retry_total=0) as client:
            send_until_taken(client, tries, "before")
            own_postgres.pause()
            timer = resume_after(own_postgres, 10)
            for number in range(5):
                send_until_taken(client, tries, f"m{number}")
            timer.join()
        assert tries["m0"] > 1
        found = drain(server, "orders")
        assert set(found) == set(tries)
        assert all(found[body] <= tries[body] for body in tries)
        assert found["before"] == 1


def send_until_taken(client: ServiceBusClient, tries: Counter[str], body: str) -> None:
    ends_s = time.monotonic() + 60
    while True:
        tries[body] += 1
        try:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage(body))
            return
        except ServiceBusError:
            assert time.monotonic() < ends_s
            time.sleep(0.2)


def test_a_database_of_two_seconds_a_commit_holds_up_no_other(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """P-31: a partitioned queue over two databases, one of which is slow: sends without a key go to the other."""
    slow, quick = postgres.database(), postgres.database()
    addresses = ("--store", f"{slow}?name=slow&stores=1", "--store", f"{quick}?name=quick&stores=1")
    try:
        with RunningServer(tmp_path / "server", *addresses) as server:
            create(server, "parts", "--partitioned")
            with psycopg.connect(slow, autocommit=True) as connection:
                connection.execute(
                    "CREATE FUNCTION busway.rest() RETURNS trigger LANGUAGE plpgsql AS"
                    " $$ BEGIN PERFORM pg_sleep(2); RETURN NEW; END $$"
                )
                connection.execute(
                    "CREATE TRIGGER rest BEFORE INSERT ON busway.commits EXECUTE FUNCTION busway.rest()"
                )
            with connect(server) as client, client.get_queue_sender("parts") as sender:
                took_s: list[float] = []
                for number in range(100):
                    began = time.monotonic()
                    sender.send_messages(ServiceBusMessage(f"m{number}"))
                    took_s.append(time.monotonic() - began)
            assert sum(each > 0.1 for each in took_s) <= 5
            assert max(took_s) > 1  # the slow one is tried now and then
    finally:
        postgres.drop(slow)
        postgres.drop(quick)


@contextlib.contextmanager
def small_disk(mebibytes: int) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="busway-small-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0755", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    ) if os.getuid() == 0 else None  # fmt: skip
    if mounted is None or mounted.returncode != 0:
        folder.rmdir()
        pytest.skip("a full disk needs a small file system, and only root may mount one here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def move(server: PostgresServer, what: Path, to: Path) -> None:
    """A part of a stopped server's files, to another disk."""
    target = to / what.name
    shutil.copytree(what, target, symlinks=True)
    owner = what.stat()
    for path in [target, *target.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    os.chown(to, owner.st_uid, owner.st_gid)
    target.chmod(0o700)
    shutil.rmtree(what)
    what.symlink_to(target)
    assert not server.is_running


def fill_up(disk: Path) -> Path:
    balloon = disk / "balloon"
    with balloon.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 << 10))
            file.flush()
    return balloon


def test_a_full_data_disk_refuses_sends_and_lets_consumers_go_on(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """S-1: 53100, pg_wal elsewhere: senders are told, what is there can be settled, and with room all goes on."""
    own_postgres.set("max_wal_size", "'64MB'")
    own_postgres.stop()
    with small_disk(160) as disk, tempfile.TemporaryDirectory(prefix="busway-wal-") as wal:
        move(own_postgres, own_postgres.data / "pg_wal", Path(wal))
        move(own_postgres, own_postgres.data, disk)
        own_postgres.start()
        url = own_postgres.database()
        with RunningServer(tmp_path / "server", "--store", f"{url}?stores=1") as server:
            create(server, "orders")
            acknowledged: Counter[str] = Counter()
            with connect(server, retry_total=0) as client, client.get_queue_sender("orders") as sender:
                for number in range(10):
                    sender.send_messages(ServiceBusMessage(f"kept {number}"))
                    acknowledged[f"kept {number}"] += 1
            balloon = fill_up(disk)
            is_refused = False
            with connect(server, retry_total=0) as client:
                for number in range(200):
                    try:
                        with client.get_queue_sender("orders") as sender:
                            sender.send_messages(ServiceBusMessage(f"{number} " + "x" * 200_000))
                        acknowledged[f"{number} " + "x" * 200_000] += 1
                    except ServiceBusError:
                        is_refused = True
                        break
                assert is_refused
                with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
                    [first] = receiver.receive_messages(1)
                    receiver.complete_message(first)
                    acknowledged[str(first)] -= 1
            assert "could not extend file" in server.log.read_text()
            balloon.unlink()
            with connect(server) as client:
                tries: Counter[str] = Counter()
                send_until_taken(client, tries, "after")
            acknowledged["after"] += 1
            found = drain(server, "orders")
            assert [body for body, count in acknowledged.items() if found[body] < count] == []
        own_postgres.stop()


def test_a_full_disk_of_its_log_is_an_outage_that_passes(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """S-1: PostgreSQL stops itself when pg_wal is full; started again with room, everything acknowledged is there."""
    own_postgres.set("max_wal_size", "'64MB'")
    own_postgres.stop()
    with small_disk(100) as disk:
        move(own_postgres, own_postgres.data / "pg_wal", disk)
        own_postgres.start()
        url = own_postgres.database()
        with RunningServer(tmp_path / "server", "--store", f"{url}?stores=1") as server:
            create(server, "orders")
            acknowledged: Counter[str] = Counter()
            balloon = fill_up(disk)
            with connect(server, retry_total=0) as client:
                for number in range(200):
                    try:
                        with client.get_queue_sender("orders") as sender:
                            sender.send_messages(ServiceBusMessage(f"{number} " + "x" * 200_000))
                        acknowledged[f"{number} " + "x" * 200_000] += 1
                    except ServiceBusError:
                        break
                else:
                    raise AssertionError("the disk was never full")
            balloon.unlink()
            own_postgres.kill()
            own_postgres.start()
            with connect(server) as client:
                tries: Counter[str] = Counter()
                send_until_taken(client, tries, "after")
            acknowledged["after"] += 1
            found = drain(server, "orders")
            assert [body for body, count in acknowledged.items() if found[body] < count] == []
        own_postgres.stop()


def test_stores_show_how_often_they_were_opened(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """O-8: epochs, resends, times of commits, dead rows and the clocks stand in the figures."""
    url = own_postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=2&name=east") as server:
        create(server, "orders")
        text = metrics(server)
        ends_s = time.monotonic() + 60
        while "busway_postgres_dead_rows{" not in text and time.monotonic() < ends_s:
            time.sleep(0.2)
            text = metrics(server)
        for line in (
            'busway_store_epoch{store="east-0"} ',
            'busway_store_lost_commits_total{store="east-1"} 0.0',
            'busway_commit_resends_total{database="east"} 0.0',
            'busway_postgres_commit_seconds_bucket{database="east",le="+Inf"}',
            'busway_postgres_clock_skew_seconds{database="east"} ',
            'busway_postgres_oldest_transaction_seconds{database="east"} ',
            'busway_postgres_dead_rows{database="east",table="messages"} ',
        ):
            assert line in text
        command = [str(BUSWAY), "stores", "--json", "--data", str(server.data)]
        shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert [store["lost_commits"] for store in shown] == [0, 0]


def metrics(server: RunningServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        found: bytes = answer.read()
    return found.decode()
