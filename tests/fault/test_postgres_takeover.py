"""Servers on one database: one owns the stores and serves, the others wait, and one of them takes over.

Times are measured from the outside, by asking both nodes every few milliseconds whether they are ready.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.fault.test_refused_starts import refusal
from tests.harness.cutting_proxy import CuttingProxy, cut, proxied
from tests.harness.postgres_server import ROLE, PostgresServer
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]

#: What the promise says; a loaded machine gets some more, and what it took is printed.
KILLED_S, STOPPED_S = 3.0, 0.7
GRACE_S = 8.0
#: Where nothing is to change hands: nobody is to lose a lease because the machine of the tests is busy.
CALM = ("--lease", "5")


@contextmanager
def pair(folder: Path, url: str, *arguments: str) -> Iterator[tuple[RunningServer, RunningServer]]:
    """An owner with a queue, and its standby."""
    given = ("--store", f"{url}?stores=4&name=east", *arguments)
    with ExitStack() as stack:
        owner = stack.enter_context(RunningServer(folder / "east-1", *given, "--node", "east-1"))
        do(owner, "queue", "create", "orders", "--lock-duration", "PT5M")
        standby = RunningServer(folder / "east-2", *given, "--node", "east-2")
        stack.callback(lambda: standby.is_running and standby.kill())
        standby.start_standby()
        yield owner, standby


def do(server: RunningServer, *arguments: str) -> str:
    command = [str(BUSWAY), *arguments, "--data", str(server.data)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def is_ready(server: RunningServer) -> bool:
    return server.asked("ready")[0] == 200


def passed_until(condition: Callable[[], bool], seconds_max: float) -> float:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds_max, "it does not come to pass"
        time.sleep(0.01)
    return time.monotonic() - begun


def send(server: RunningServer, *bodies: str) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def receive(server: RunningServer, count: int) -> list[tuple[int | None, str]]:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("orders", max_wait_time=5) as receiver,
    ):
        found: list[tuple[int | None, str]] = []
        while len(found) < count and (messages := receiver.receive_messages(count - len(found))):
            for message in messages:
                receiver.complete_message(message)
                found.append((message.sequence_number, str(message)))
        return found


def test_a_standby_waits_and_says_for_whom(postgres_url: str, tmp_path: Path) -> None:
    """S-1: it takes nothing; it lives, is not ready, and has figures; who speaks AMQP is let go."""
    with pair(tmp_path, postgres_url) as (owner, standby):
        send(owner, "one")
        assert standby.asked("health") == (200, '{"status": "healthy"}')
        status, said = standby.asked("ready")
        assert (status, json.loads(said)["status"]) == (503, "standby")
        assert f"the node east-1 at 127.0.0.1:{owner.port}" in said
        assert "busway_store_owned 0.0" in standby.asked("metrics")[1]
        assert standby.asked("orders/messages/head")[0] == 503
        client = owner.connection_string.replace(str(owner.port), str(standby.port))
        with (
            ServiceBusClient.from_connection_string(client, retry_total=0) as lost,
            pytest.raises(ServiceBusError),
            lost.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("nobody is there"))
        command = [str(BUSWAY), "connection-string", "--data", str(standby.data)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (told.returncode, "it is a standby, or starting" in told.stderr) == (1, True)
        assert "healthy" in do(standby, "health")
        assert owner.asked("ready") == (200, '{"status":"ready"}')
        figures = owner.asked("metrics")[1]
        assert "busway_store_owned 4.0" in figures
        assert 'busway_store_moves_total{reason="free"} 4.0' in figures
        assert receive(owner, 1) == [(1, "one")]
        nodes = {node["name"]: node for node in json.loads(do(owner, "nodes", "--json"))}
        assert [(name, node["state"], node["stores"]) for name, node in nodes.items()] == [
            ("east-1", "owner", 4),
            ("east-2", "standby", 0),
        ]


def test_a_killed_owner_is_replaced_within_three_seconds(postgres_url: str, tmp_path: Path) -> None:
    """S-1: what it acknowledged is there, no number is given twice, and it comes back as a standby."""
    with pair(tmp_path, postgres_url) as (owner, standby):
        send(owner, "one", "two")
        for round_ in range(3):
            owner.kill()
            passed = passed_until(partial(is_ready, standby), KILLED_S + GRACE_S)
            print(f"killed: {passed:.2f} s without service")
            standby.wait_until_served()
            send(standby, f"round {round_}")
            owner.start_standby()
            owner, standby = standby, owner
        found = receive(owner, 5)
        assert found == [(1, "one"), (2, "two"), (3, "round 0"), (4, "round 1"), (5, "round 2")]


def test_an_owner_that_stops_leaves_its_stores_at_once(postgres_url: str, tmp_path: Path) -> None:
    """S-1: nobody waits for a lease."""
    with pair(tmp_path, postgres_url) as (owner, standby):
        send(owner, "one")
        for _ in range(3):
            begun = time.monotonic()
            assert owner.stop() == 0
            passed_until(partial(is_ready, standby), STOPPED_S + GRACE_S)
            print(f"stopped: {time.monotonic() - begun:.2f} s from SIGTERM until the other one is ready")
            standby.wait_until_served()
            owner.start_standby()
            owner, standby = standby, owner
        assert receive(owner, 1) == [(1, "one")]


def test_an_owner_that_stands_still_for_a_second_keeps_everything(postgres_url: str, tmp_path: Path) -> None:
    """S-1, R-17: locks among it."""
    with pair(tmp_path, postgres_url, *CALM) as (owner, standby):
        send(owner, "one")
        with (
            ServiceBusClient.from_connection_string(owner.connection_string) as client,
            client.get_queue_receiver("orders", max_wait_time=5) as receiver,
        ):
            [message] = receiver.receive_messages(1)
            owner.pause()
            time.sleep(1.0)
            owner.resume()
            receiver.complete_message(message)
        time.sleep(3.0)
        assert (is_ready(owner), is_ready(standby)) == (True, False)


def test_an_owner_that_stands_still_too_long_is_replaced_and_comes_back_as_a_standby(
    postgres_url: str, tmp_path: Path
) -> None:
    """S-1, R-17: what it had locked is handed out by the other one; its own late settlement is refused, and it hands
    out nothing."""
    with pair(tmp_path, postgres_url) as (owner, standby):
        send(owner, "one", "two")
        with (
            ServiceBusClient.from_connection_string(owner.connection_string, retry_total=0) as client,
            client.get_queue_receiver("orders", max_wait_time=3) as receiver,
        ):
            [message] = receiver.receive_messages(1)
            owner.pause()
            passed_until(lambda: is_ready(standby), 10.0)
            standby.wait_until_served()
            assert receive(standby, 2) == [(1, "one"), (2, "two")]
            owner.resume()
            with pytest.raises(ServiceBusError):
                receiver.complete_message(message)
            with pytest.raises(ServiceBusError):
                receiver.receive_messages(1, max_wait_time=2)
        passed_until(lambda: '"standby"' in owner.asked("ready")[1], 10.0)
        send(standby, "three")
        assert receive(standby, 1) == [(3, "three")]
        assert "The stores of this node are lost" in owner.log.read_text()
        standby.kill()
        passed_until(lambda: is_ready(owner), KILLED_S + GRACE_S)
        send(owner.wait_until_served(), "four")
        assert receive(owner, 1) == [(4, "four")]


@pytest.mark.parametrize("still_s", [3.0, 10.0])
def test_while_the_database_stands_still_no_lease_changes_hands(
    own_postgres: PostgresServer, tmp_path: Path, still_s: float
) -> None:
    """S-1: both nodes are well; the owner is suspended, and goes on with all its locks."""
    with pair(tmp_path, own_postgres.url(), *CALM) as (owner, standby):
        send(owner, "one")
        with (
            ServiceBusClient.from_connection_string(owner.connection_string) as client,
            client.get_queue_receiver("orders", max_wait_time=5) as receiver,
        ):
            [message] = receiver.receive_messages(1)
            own_postgres.pause()
            time.sleep(still_s)
            said = json.loads(owner.asked("ready")[1])["status"]
            assert said == ("suspended" if still_s > 5 else "ready")
            own_postgres.resume()
            passed_until(lambda: is_ready(owner), 10.0)
            receiver.complete_message(message)
        time.sleep(3.0)
        assert (is_ready(owner), is_ready(standby)) == (True, False)
        assert 'moves_total{reason="taken over"}' not in standby.asked("metrics")[1]


def test_a_database_that_is_restarted_changes_nothing(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """S-1: killed and started at once."""
    with pair(tmp_path, own_postgres.url(), *CALM) as (owner, standby):
        own_postgres.kill()
        time.sleep(1.0)
        own_postgres.start()
        passed_until(lambda: is_ready(owner), 10.0)
        time.sleep(3.0)
        assert (is_ready(owner), is_ready(standby)) == (True, False)
        send(owner, "one")


def test_a_second_node_of_the_same_name_is_refused(postgres_url: str, tmp_path: Path) -> None:
    """Start: while the first one lives; one sentence, status 1. When it is dead its name is free."""
    given = ("--store", f"{postgres_url}?stores=1&name=east", "--node", "east-1")
    with RunningServer(tmp_path / "first", *given) as first:
        said = refusal(tmp_path / "second" / "data", 0, *given)
        assert f"A node called east-1 lives already at 127.0.0.1:{first.port}" in said
        assert "--node" in said
        first.kill()
        with RunningServer(tmp_path / "second", *given) as second:
            assert is_ready(second)


def test_a_killed_server_that_is_started_again_has_its_stores_at_once(
    postgres_url: str, tmp_path: Path
) -> None:
    """Start: it knows that what was before it in its directory is dead, and waits for no lease."""
    given = ("--store", f"{postgres_url}?stores=1&name=east", "--lease", "60")
    with RunningServer(tmp_path / "only", *given) as server:
        server.kill()
        server.start(30.0)
        assert is_ready(server)
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("SELECT count(*) FROM busway.members").fetchall() == [(1,)]


@contextmanager
def cut_off(
    folder: Path, postgres: PostgresServer, url: str, *arguments: str
) -> Iterator[tuple[RunningServer, RunningServer, CuttingProxy]]:
    """A pair whose owner reaches the database through a proxy."""
    database = urlsplit(url).path
    with proxied(postgres.port) as proxy, ExitStack() as stack:
        through = f"postgresql://{ROLE}@127.0.0.1:{proxy.port}{database}?stores=4&name=east"
        owner = stack.enter_context(
            RunningServer(folder / "east-1", "--store", through, "--node", "east-1", *arguments)
        )
        do(owner, "queue", "create", "orders", "--lock-duration", "PT5M")
        given = ("--store", f"{url}?stores=4&name=east", "--node", "east-2", *arguments)
        standby = RunningServer(folder / "east-2", *given)
        stack.callback(lambda: standby.is_running and standby.kill())
        yield owner, standby.start_standby(), proxy
        proxy.refuses = proxy.holds = False


@pytest.mark.parametrize("how", ["reset", "half open"])
def test_an_owner_that_is_cut_off_is_replaced_and_comes_back_as_a_standby(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path, how: str
) -> None:
    """S-1: it hands out nothing after its lease, whatever it has in memory, and nothing that it said is lost."""
    with cut_off(tmp_path, postgres, postgres_url) as (owner, standby, proxy):
        send(owner, "one", "two")
        with (
            ServiceBusClient.from_connection_string(owner.connection_string, retry_total=0) as client,
            client.get_queue_receiver("orders", max_wait_time=3) as receiver,
        ):
            assert len(receiver.receive_messages(1)) == 1
            if how == "reset":
                cut(proxy)
            else:
                proxy.holds = True
            passed = passed_until(partial(is_ready, standby), 10.0)
            print(f"cut off ({how}): {passed:.2f} s until the other one is ready")
            with contextlib.suppress(ServiceBusError):
                assert receiver.receive_messages(1, max_wait_time=1) == []
        standby.wait_until_served()
        assert receive(standby, 2) == [(1, "one"), (2, "two")]
        proxy.refuses = proxy.holds = False
        passed_until(lambda: '"standby"' in owner.asked("ready")[1], 20.0)
        assert (is_ready(owner), is_ready(standby)) == (False, True)


def test_an_owner_that_is_cut_off_for_a_moment_goes_on(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """S-1, R-17: before anybody has taken over, with all its locks."""
    with cut_off(tmp_path, postgres, postgres_url, *CALM) as (owner, standby, proxy):
        send(owner, "one")
        with (
            ServiceBusClient.from_connection_string(owner.connection_string) as client,
            client.get_queue_receiver("orders", max_wait_time=5) as receiver,
        ):
            [message] = receiver.receive_messages(1)
            cut(proxy)
            time.sleep(0.5)
            proxy.refuses = False
            receiver.complete_message(message)
        time.sleep(3.0)
        assert (is_ready(owner), is_ready(standby)) == (True, False)


def test_a_slow_way_to_the_database_costs_the_owner_nothing(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """S-1: answers that take 0.4 s, one after the other, for more than a lease."""
    with cut_off(tmp_path, postgres, postgres_url, *CALM) as (owner, standby, proxy):
        proxy.delay_s = 0.2
        time.sleep(8.0)
        assert (is_ready(owner), is_ready(standby)) == (True, False)
        send(owner, "one")
        proxy.delay_s = 0.0


@pytest.mark.parametrize("offset", ["+3600s", "-3600s"])
def test_clocks_of_nodes_need_not_agree(postgres_url: str, tmp_path: Path, offset: str) -> None:
    """S-1: a standby whose clock is an hour off takes nothing from the living, and takes over from the dead."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("libfaketime is not installed")
    fake = {
        "LD_PRELOAD": str(library),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    given = ("--store", f"{postgres_url}?stores=4&name=east")
    with ExitStack() as stack:
        owner = stack.enter_context(RunningServer(tmp_path / "east-1", *given, "--node", "east-1"))
        do(owner, "queue", "create", "orders")
        standby = RunningServer(tmp_path / "east-2", *given, "--node", "east-2", environment=fake)
        stack.callback(lambda: standby.is_running and standby.kill())
        standby.start_standby()
        time.sleep(4.0)
        assert (is_ready(owner), is_ready(standby)) == (True, False)
        owner.kill()
        passed_until(partial(is_ready, standby), KILLED_S + GRACE_S)
