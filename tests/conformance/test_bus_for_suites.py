"""A bus for others' test suites: emptied between tests while clients use it; started by pytest or `busway exec`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from busway.cli.own_server import OwnServer
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.connection_string import ConnectionString
from tests.cost.machine import slowness
from tests.harness.measured import check_within, measured
from tests.harness.running_server import BUSWAY

pytestmark = pytest.mark.sdk

#: An empty bus for a test costs less than this.
RESET_S_MAX = 0.05
#: Of a queue called `kept`, by the emulator's file.
CONFIG = """{"UserConfig": {"Namespaces": [{"Name": "suite", "Queues": [{"Name": "kept", "Properties": {}}]}],
 "Logging": {"Type": "Console"}}}"""


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    with OwnServer(tmp_path_factory.mktemp("bus")) as server:
        yield server


def administration(bus: OwnServer) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(bus.connection_string, bus.ca_file)


def furnish(bus: OwnServer) -> None:
    """An ordinary bus of a test: some entities of each kind, some messages."""
    with administration(bus) as client:
        for number in range(10):
            client.create_queue(f"queue-{number}")
        client.create_queue("partitioned", {"EnablePartitioning": True})
        client.create_topic("news")
        for name in ("sport", "weather", "all"):
            client.create_subscription("news", name)
        client.hubs.create("clicks", {"PartitionCount": 4})
    with ServiceBusClient.from_connection_string(bus.connection_string) as client:
        for name in ("queue-0", "partitioned"):
            with client.get_queue_sender(name) as sender:
                sender.send_messages([ServiceBusMessage(str(number)) for number in range(200)])


@measured
def test_an_empty_bus_costs_milliseconds(bus: OwnServer) -> None:
    """Reset: of a bus with fifteen entities and 400 messages, within 50 ms, as its client measures it. The best of
    some counts: what others do on the machine at that moment is not the bus's."""
    bus.reset()  # the first request of a server loads HTTP
    times: list[float] = []
    for _ in range(3):
        furnish(bus)
        begun = time.perf_counter()
        bus.reset()
        times.append(time.perf_counter() - begun)
        with administration(bus) as client:
            assert list(client.list_queues()) == []
            assert list(client.list_topics()) == []
    check_within(min(times), RESET_S_MAX * slowness(), "an empty bus")


class Traffic(threading.Thread):
    """Sends to a queue and receives from it for as long as it is told to, whatever becomes of the queue."""

    def __init__(self, connection_string: str) -> None:
        super().__init__()
        self._text = connection_string
        self.over = threading.Event()
        self.done = 0
        self.unexpected: list[BaseException] = []

    def run(self) -> None:
        with ServiceBusClient.from_connection_string(self._text, retry_total=0) as client:
            while not self.over.is_set():
                try:
                    self._exchange(client)
                except ServiceBusError:
                    continue  # the queue is gone
                except BaseException as error:
                    self.unexpected.append(error)
                    return

    def _exchange(self, client: ServiceBusClient) -> None:
        with client.get_queue_sender("busy") as sender, client.get_queue_receiver("busy") as receiver:
            while not self.over.is_set():
                sender.send_messages([ServiceBusMessage("traffic")] * 10)
                for message in receiver.receive_messages(max_message_count=10, max_wait_time=0.2):
                    receiver.complete_message(message)
                    self.done += 1


def test_a_bus_is_emptied_under_traffic(bus: OwnServer) -> None:
    """Reset: clients that send and receive lose the queue, never their connection to the next one, and nothing of
    before is in it; the server has nothing to complain of."""
    traffic = [Traffic(bus.connection_string) for _ in range(2)]
    for each in traffic:
        each.start()
    try:
        for turn in range(4):
            with administration(bus) as client:
                client.create_queue("busy")
                client.create_queue("quiet")
                until = time.monotonic() + 60
                before = sum(each.done for each in traffic)
                while sum(each.done for each in traffic) == before and time.monotonic() < until:
                    time.sleep(0.01)
                assert sum(each.done for each in traffic) > before, turn
                bus.reset()
                assert list(client.list_queues()) == []
    finally:
        for each in traffic:
            each.over.set()
        for each in traffic:
            each.join(60)
    assert [each.unexpected for each in traffic] == [[], []]
    with administration(bus) as client:
        client.create_queue("busy")
        assert client.get_queue("busy").numbers["ActiveMessageCount"] == 0
    log = bus.log.read_text()
    assert [line for line in log.splitlines() if " ERROR " in line or "Traceback" in line] == []


def test_what_the_configuration_describes_is_made_again(tmp_path: Path) -> None:
    """Reset: as a new bus with the same file."""
    config = tmp_path / "Config.json"
    config.write_text(CONFIG)
    with OwnServer(tmp_path / "bus", ["--config", str(config)]) as bus, administration(bus) as client:
        client.create_queue("more")
        client.delete_queue("kept")
        bus.reset()
        assert [queue.name for queue in client.list_queues()] == ["kept"]


# -- pytest


def run_suite(folder: Path, text: str, *arguments: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    """Somebody else's suite, far from this repository and its settings."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}")
    (folder / "test_suite.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "BUSWAY"))}
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=200)


def test_a_suite_without_a_bus_imports_nothing_of_busway(tmp_path: Path) -> None:
    """pytest plug-in: it is there, and has loaded neither the package nor what that needs."""
    suite = """
import sys

def test_nothing_is_loaded(request):
    assert request.config.pluginmanager.hasplugin("busway")
    names = ("busway", "busway_spark", "apsw", "starlette", "uvicorn", "typer")
    assert [name for name in sys.modules if name.split(".")[0] in names] == []
"""
    done = run_suite(tmp_path, suite)
    assert done.returncode == 0, done.stdout


def test_each_test_has_an_empty_bus_and_each_worker_a_server(tmp_path: Path) -> None:
    """pytest plug-in: under pytest-xdist too; the environment leads to the bus while a test runs."""
    suite = """
import os
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

@pytest.mark.parametrize("turn", range(4))
def test_a_message(busway_connection_string, busway_server, worker_id, turn):
    assert os.environ["BUSWAY_CONNECTION_STRING"] == busway_connection_string
    Path(f"port-{worker_id}-{busway_server.port}").touch()
    with ServiceBusAdministrationClient.from_connection_string(busway_connection_string) as administration:
        assert list(administration.list_queues()) == []
        administration.create_queue("orders")
    with ServiceBusClient.from_connection_string(busway_connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
            assert [str(message) for message in receiver.receive_messages()] == ["hello"]

def test_outside_nothing_is_set():
    assert "BUSWAY_CONNECTION_STRING" not in os.environ
"""
    done = run_suite(tmp_path, suite, "-n", "2")
    assert done.returncode == 0, done.stdout
    ports = {tuple(file.name.split("-")[1:]) for file in tmp_path.glob("port-*")}
    assert sorted(worker for worker, _ in ports) == ["gw0", "gw1"]
    assert len({port for _, port in ports}) == 2


def test_the_server_of_a_suite_has_the_options_of_its_settings(tmp_path: Path) -> None:
    """pytest plug-in: `busway_serve` in pytest.ini; what does not start says why."""
    suite = """
from busway.client.administration import ServiceBusAdministrationClient

def test_the_queue_is_there(busway_connection_string):
    with ServiceBusAdministrationClient.from_connection_string(busway_connection_string) as administration:
        assert [queue.name for queue in administration.list_queues()] == ["kept"]
"""
    (tmp_path / "Config.json").write_text(CONFIG)
    done = run_suite(tmp_path, suite, ini="busway_serve =\n    --config=Config.json\n    --stores=1\n")
    assert done.returncode == 0, done.stdout
    wrong = run_suite(tmp_path, suite, ini="busway_serve = --stores=0\n")
    assert "--stores must be at least 1" in wrong.stdout


# -- any program


def execute(*program: str) -> subprocess.CompletedProcess[str]:
    command = [str(BUSWAY), "exec", "--serve", "--", *program]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_a_program_finds_its_own_bus_and_its_status_is_passed_on() -> None:
    """exec --serve: any program, with the bus gone afterwards."""
    done = execute("sh", "-c", f"{BUSWAY} queue create orders && echo $BUSWAY_CONNECTION_STRING && exit 7")
    assert done.returncode == 7, done.stderr
    target = ConnectionString.parse(done.stdout.splitlines()[-1])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((target.host, target.amqp_port), timeout=5)


def test_a_program_that_is_not_there_is_told_in_a_sentence() -> None:
    """exec --serve: bad input, and the server it was for is stopped."""
    done = execute("no-such-program")
    assert (done.returncode, done.stderr) == (1, "busway: The program 'no-such-program' was not found.\n")


def test_a_program_that_a_signal_ended_is_told_as_shells_do() -> None:
    """exec --serve: 128 and the number."""
    assert execute("sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


def test_a_bus_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """serve --stop-at-eof: kill -9 of `busway exec --serve`, and its server stops by itself."""
    told = tmp_path / "told"
    script = f"echo $BUSWAY_CONNECTION_STRING >{told}.half && mv {told}.half {told} && exec sleep 100"
    process = subprocess.Popen(
        [str(BUSWAY), "exec", "--serve", "--", "sh", "-c", script], start_new_session=True
    )
    try:
        assert _comes(told.exists)
        process.kill()
        process.wait()
        target = ConnectionString.parse(told.read_text().strip())
        assert _comes(lambda: _refuses(target.host, target.amqp_port))
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the program


def _refuses(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return True
    return False


def _comes(is_so: object, seconds: float = 60.0) -> bool:
    assert callable(is_so)
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_health_is_asked_of_the_server_of_a_data_directory(bus: OwnServer, tmp_path: Path) -> None:
    """busway health: 0 and a word, or 1 and why."""
    healthy = subprocess.run([BUSWAY, "health", "--data", bus.data], capture_output=True, text=True)
    assert (healthy.returncode, healthy.stdout) == (0, "healthy\n")
    missing = subprocess.run([BUSWAY, "health", "--data", tmp_path], capture_output=True, text=True)
    assert missing.returncode == 1
    assert "no server has used" in missing.stderr
