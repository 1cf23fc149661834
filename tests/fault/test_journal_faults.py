"""The journal's writer, its folder and the server itself fail; the bus goes on, and what was lost is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from prometheus_client.parser import text_string_to_metric_families

from tests.chaos.provision import create_queue
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.fault

QUEUE = "orders"


def keeping(folder: Path, seconds: int = 60) -> RunningServer:
    """A server whose journal lies in the folder above its own."""
    journal = folder.parent / "journal"
    return RunningServer(folder, "--journal", str(journal), "--journal-seconds", str(seconds))


def send(server: RunningServer, count: int) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages([ServiceBusMessage("x") for _ in range(count)])


def writer_of(server: RunningServer) -> psutil.Process:
    [writer] = psutil.Process(server.pid).children()
    return writer


def figures(server: RunningServer) -> tuple[int, int]:
    """Rows written, rows left out."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        values = {sample.name: sample.value for family in families for sample in family.samples}
    return int(values["busway_journal_rows_total"]), int(values["busway_journal_rows_left_out_total"])


def sent(folder: Path) -> int:
    """Rows of sends in finished files."""
    dataset = ds.dataset(folder, format="parquet", partitioning="hive")
    return int(dataset.count_rows(filter=ds.field("operation") == "send")) if dataset.files else 0


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_server_takes_its_writer_along(tmp_path: Path) -> None:
    """Journal: kill -9; the writer finishes what it had got and goes by itself."""
    server = keeping(tmp_path / "server").start()
    create_queue(server, QUEUE)
    send(server, 25)
    writer = writer_of(server)
    deadline = time.monotonic() + 1.5  # what has gathered is handed over every second
    until(lambda: time.monotonic() > deadline)
    server.kill()
    until(lambda: not writer.is_running() or writer.status() == psutil.STATUS_ZOMBIE)
    assert sent(tmp_path / "journal") == 25


def test_a_killed_writer_costs_rows_and_no_service(tmp_path: Path) -> None:
    """Journal: sends go on, the loss is in the figures, another writer begins; what it left behind is removed."""
    with keeping(tmp_path / "server", 1) as server:
        create_queue(server, QUEUE)
        send(server, 10)
        until(lambda: figures(server) == (10, 0))
        killed = writer_of(server)
        os.kill(killed.pid, signal.SIGSTOP)
        send(server, 10)
        deadline = time.monotonic() + 1.5
        until(lambda: time.monotonic() > deadline)
        os.kill(killed.pid, signal.SIGKILL)
        until(lambda: figures(server)[1] == 10)
        send(server, 10)
        until(lambda: figures(server) == (20, 10))
    assert sent(tmp_path / "journal") == 20
    log = server.log.read_text()
    assert "the journal leaves rows out: the writer has ended" in log
    assert "the journal is being written again; 10 rows were left out" in log


def test_leftovers_of_a_killed_writer_are_gone_after_the_next_start(tmp_path: Path) -> None:
    """Journal: nobody takes half a file for a whole one."""
    left = tmp_path / "journal" / "date=2026-11-15" / "hour=09" / "_090000-0123456789abcdef-1.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1 and no end")
    with keeping(tmp_path / "server"):
        until(lambda: not left.exists())


def test_two_servers_share_a_folder(tmp_path: Path) -> None:
    """Journal: neither writes over the other's files, nor removes what the other is at."""
    with keeping(tmp_path / "one") as one, keeping(tmp_path / "two") as two:
        for server in (one, two):
            create_queue(server, QUEUE)
            send(server, 10)
        two.stop()
        two.start()
        send(two, 10)
    assert sent(tmp_path / "journal") == 30


def test_a_folder_that_cannot_be_written_to_is_refused_at_the_start(tmp_path: Path) -> None:
    """Journal: one sentence, status 1, before anything listens."""
    (tmp_path / "file").write_text("")
    command = [str(BUSWAY), "serve", "--data", str(tmp_path / "data"), "--port", "0", "--journal"]
    ended = subprocess.run([*command, str(tmp_path / "file")], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 1
    assert f"busway: --journal: nothing can be written to {tmp_path / 'file'}" in ended.stderr
    assert "Traceback" not in ended.stderr
