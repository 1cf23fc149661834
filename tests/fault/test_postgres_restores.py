"""A database that is older than what was acknowledged: it is noticed, said, counted, and no number is given twice."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.harness.postgres_server import PostgresServer
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]

#: Of numbers, at least (`busway.broker.namespace.lost_commits`).
LEAP = 1 << 30
SAID = "has lost commits that were reported"


def do(server: RunningServer, *arguments: str) -> str:
    command = [str(BUSWAY), *arguments, "--data", str(server.data)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def send(server: RunningServer, *bodies: str, queue: str = "orders") -> None:
    """For as long as it takes, as programs do."""
    ends_s = time.monotonic() + 30
    for body in bodies:
        while True:
            try:
                with (
                    ServiceBusClient.from_connection_string(server.connection_string) as client,
                    client.get_queue_sender(queue) as sender,
                ):
                    sender.send_messages(ServiceBusMessage(body))
                break
            except ServiceBusError:
                assert time.monotonic() < ends_s


def receive(server: RunningServer, count: int, queue: str = "orders") -> list[tuple[int, str]]:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(queue, max_wait_time=5) as receiver,
    ):
        found: list[tuple[int, str]] = []
        while len(found) < count and (messages := receiver.receive_messages(count - len(found))):
            for message in messages:
                receiver.complete_message(message)
                found.append((message.sequence_number or 0, str(message)))
        return found


def figure(server: RunningServer, name: str) -> float:
    """The sum over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        text = answer.read().decode()
    return sum(float(each) for each in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def row(url: str, columns: str, table: str = "stores") -> tuple[int, ...]:
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT {columns} FROM busway.{table}".encode()).fetchone()  # noqa: S608
    assert found is not None
    return found


def name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def test_a_restore_under_a_running_server_is_noticed_by_it(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """S-1: the server remembers what it has reported; numbers of messages and events, keys, epochs, commits leap."""
    url = own_postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=1") as server:
        do(server, "queue", "create", "orders")
        do(server, "eventhub", "create", "metrics", "--partitions", "1")
        send(server, "kept")
        publish(server, "kept")
        copy = own_postgres.copy()
        do(server, "queue", "create", "later")
        send(server, "lost", "lost too")
        send(server, "lost", queue="later")
        publish(server, "lost")
        epoch, next_key = row(url, "epoch, next_key")
        [commit] = row(url, "number", "commits")
        version = row(url, "catalogue_version")[0]
        own_postgres.put_back(copy)
        own_postgres.start()
        send(server, "after")
        publish(server, "after")
        assert SAID in server.log.read_text()
        assert figure(server, "busway_store_lost_commits_total") >= 4
        [(first, kept), (second, after)] = receive(server, 2)
        assert (first, kept, after) == (1, "kept", "after")
        assert second > LEAP
        numbers = [number for number, _ in events(server, 2)]
        assert numbers[0] == 0
        assert numbers[1] >= LEAP
        send(server, "there", queue="later")
        assert [body for _, body in receive(server, 1, "later")] == ["there"]
        do(server, "queue", "create", "last")
        assert row(url, "epoch")[0] > epoch + 1_000
        assert row(url, "number", "commits")[0] > commit + 1_000
        assert row(url, "next_key")[0] > next_key + 4_096
        assert row(url, "catalogue_version")[0] > version + 1_000


def publish(server: RunningServer, body: str) -> None:
    with EventHubProducerClient.from_connection_string(
        server.connection_string, eventhub_name="metrics"
    ) as producer:
        producer.send_batch([EventData(body)])


def events(server: RunningServer, count: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    with EventHubConsumerClient.from_connection_string(
        server.connection_string, "$Default", eventhub_name="metrics"
    ) as consumer:

        def arrived(_context: object, event: EventData | None) -> None:
            if event is not None:
                found.append((int(event.sequence_number or 0), event.body_as_str()))
            if len(found) == count:
                consumer.close()

        consumer.receive(arrived, starting_position="-1", max_wait_time=10)
    return found


def test_a_restore_while_the_server_is_away_is_noticed_by_its_note(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """S-1: the data directory remembers how far each store was; once it is met, the next start has nothing to say."""
    url = own_postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=2") as server:
        do(server, "queue", "create", "orders")
        send(server, "kept")
        copy = own_postgres.copy()
        send(server, "lost", "lost too")
        server.stop()
        own_postgres.put_back(copy)
        own_postgres.start()
        server.start()
        assert SAID in server.log.read_text()
        send(server, "after")
        server.stop()
        told = server.log.read_text().count(SAID)
        server.start()
        assert server.log.read_text().count(SAID) == told
        send(server, "more")
        found = receive(server, 3)
        assert [body for _, body in found] == ["kept", "after", "more"]
        assert LEAP < found[1][0] < found[2][0] < LEAP + 10


@pytest.mark.parametrize("with_note", [True, False], ids=["data directory there", "data directory lost"])
def test_an_old_dump_is_noticed(postgres: PostgresServer, tmp_path: Path, with_note: bool) -> None:
    """S-1: by the note where there is one; else because it is another database than the rows say."""
    url = postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=1&name=east") as server:
        do(server, "queue", "create", "orders")
        send(server, "kept")
        dump = postgres.dump(name_of(url))
        send(server, "lost")
    restored = postgres.restore(dump)
    folder = tmp_path / ("server" if with_note else "other")
    with RunningServer(folder, "--store", f"{restored}?stores=1&name=east") as server:
        assert SAID in server.log.read_text()
        send(server, "after")
        [(_, kept), (number, after)] = receive(server, 2)
        assert (kept, after) == ("kept", "after")
        assert number > LEAP
    postgres.drop(url)
    postgres.drop(restored)


def test_a_database_that_is_moved_in_order_goes_on_where_it_was(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """S-1: the server was stopped before the dump, and its note says how far it was: nothing is missing."""
    url = postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=2&name=east") as server:
        do(server, "queue", "create", "orders")
        send(server, "one")
        server.stop()
        moved = postgres.restore(postgres.dump(name_of(url)))
        postgres.drop(url)
    with RunningServer(tmp_path / "server", "--store", f"{moved}?stores=2&name=east") as server:
        send(server, "two")
        assert receive(server, 2) == [(1, "one"), (2, "two")]
        assert SAID not in server.log.read_text()
    postgres.drop(moved)


def fail_over(primary: PostgresServer, standby: PostgresServer) -> None:
    primary.kill()
    standby.promote()
    standby.set("synchronous_standby_names", "''")


def of_both(url: str, primary: PostgresServer, standby: PostgresServer) -> str:
    return url.replace(f"127.0.0.1:{primary.port}", f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}")


@pytest.mark.parametrize("is_away", [False, True], ids=["server runs", "server starts again"])
def test_a_fail_over_to_a_standby_that_had_everything_costs_nothing(
    own_postgres: PostgresServer, tmp_path: Path, is_away: bool
) -> None:
    """S-1: a synchronous standby, an address with both hosts: no client sees an error, and no number leaps."""
    with own_postgres.standby() as standby:
        url = own_postgres.database()
        address = of_both(url, own_postgres, standby)
        with RunningServer(tmp_path / "server", "--store", f"{address}?stores=1") as server:
            do(server, "queue", "create", "orders")
            send_once(server, "one")
            if is_away:
                server.stop()
            fail_over(own_postgres, standby)
            if is_away:
                server.start()
            send_once(server, "two")
            assert receive(server, 2) == [(1, "one"), (2, "two")]
            assert SAID not in server.log.read_text()


def send_once(server: RunningServer, body: str) -> None:
    """Without a second try."""
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage(body))


@pytest.mark.parametrize("how", ["runs", "stopped", "killed"])
def test_a_fail_over_to_a_standby_that_lacked_something_is_noticed(
    own_postgres: PostgresServer, tmp_path: Path, how: str
) -> None:
    """S-1: an asynchronous standby was behind; the server notices it while it runs, and at its next start."""
    with own_postgres.standby(is_synchronous=False) as standby:
        url = own_postgres.database()
        address = of_both(url, own_postgres, standby)
        with RunningServer(tmp_path / "server", "--store", f"{address}?stores=1") as server:
            do(server, "queue", "create", "orders")
            send(server, "kept")
            until(lambda: holds(url.replace(str(own_postgres.port), str(standby.port)), 1))
            standby.kill()
            send(server, "lost", "lost too")
            if how == "stopped":
                server.stop()
            elif how == "killed":
                server.kill()
            own_postgres.kill()
            standby.start()
            standby.promote()
            if how != "runs":
                server.start()
            send(server, "after")
            assert SAID in server.log.read_text()
            assert figure(server, "busway_store_lost_commits_total") > 0
            found = receive(server, 2)
            assert [body for _, body in found] == ["kept", "after"]
            assert found[1][0] > LEAP


def holds(url: str, count: int) -> bool:
    return row(url, "count(*)", "messages") == (count,)


def until(is_so: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < ends_s, "it never came"
        time.sleep(0.02)


def test_a_loss_that_was_noticed_is_not_forgotten_by_a_crash(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """S-1: kill -9 between the taking of a store and the first commit after it: the note still knows of the loss."""
    url = own_postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=1") as server:
        do(server, "queue", "create", "orders")
        copy = own_postgres.copy()
        send(server, "lost")
        server.stop()
        own_postgres.put_back(copy)
        own_postgres.start()
        note = server.data / "stores" / "postgres.high-water.json"
        check, _, text = note.read_text().partition(" ")
        assert len(check) == 8
        assert json.loads(text)["0"]["exact"] is True
        with psycopg.connect(url, autocommit=True) as connection:  # takes the row, and lets go of it later
            connection.execute(
                "CREATE FUNCTION busway.no() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '23514'; END $$"
            )
            connection.execute(
                "CREATE TRIGGER no BEFORE INSERT ON busway.counters EXECUTE FUNCTION busway.no()"
            )
        server.start()
        until(lambda: json.loads(note.read_text().partition(" ")[2])["0"]["lost"] > 0)
        server.kill()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP TRIGGER no ON busway.counters")
        assert json.loads(note.read_text().partition(" ")[2])["0"]["lost"] > 0
        server.start()
        send(server, "after")
        [(number, body)] = receive(server, 1)
        assert body == "after"
        assert number > LEAP
