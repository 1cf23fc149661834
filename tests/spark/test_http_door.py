"""The one HTTP client of both formats: which requests are repeated, when, for how long; connections that are kept.
No Spark is started here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.errors import EntityMissing, Refused, Unreachable
from busway.client.messages import ServiceBusMessage
from busway_spark.eventhubs.offsets import EventRange, read_hub
from busway_spark.eventhubs.ranges import AmqpReader, BulkReader
from busway_spark.servicebus.bulk_claims import ClaimRoutes
from busway_spark.servicebus.claim_reader import ReadingTarget
from busway_spark.wire import http_client as keeping
from busway_spark.wire import patience
from busway_spark.wire.bus import Bus, bridge, close_bridge
from busway_spark.wire.http_client import HttpClient, connection_pool
from tests.harness.running_server import RunningServer
from tests.spark.scripted_door import HANG_UP, answer, scripted


class Naps:
    """In place of the module `time`: nobody sleeps, and everybody believes he did."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.now = 1_000.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    made = Naps()
    monkeypatch.setattr(patience, "time", made)
    monkeypatch.setattr(patience.random, "random", lambda: 0.0)
    return made


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    connection_pool().close()
    yield
    connection_pool().close()


# -- which requests are repeated


def test_a_busy_server_is_asked_again_not_before_the_time_it_names(naps: Naps) -> None:
    """Patience: Retry-After is obeyed, other pauses double."""
    busy = answer(503, b"<Detail>busy</Detail>")
    with scripted(busy, answer(503, Retry_After="7"), busy, answer(body=b"yes")) as door:
        assert HttpClient(door.bus, "q").get("/q") == b"yes"
    assert naps.slept == [0.1, 7.0, 0.4]


def test_what_was_tried_is_told_when_the_time_is_over(naps: Naps) -> None:
    """Patience: within `operationTimeout`, and no pause that would end behind it."""
    with scripted(answer(503, b"<Detail>SubCode=50004. Busy &amp; tired. TrackingId:x</Detail>")) as door:
        patience.meet(door.bus.target.authority)
        with pytest.raises(Refused, match=r"^Busy & tired\. It was tried \d+ times in 20 s\.$"):
            HttpClient(door.bus, "q", 20.0).get("/q")
        assert naps.now == 1_020.0
        door.answers = [answer(503, Retry_After="30")]
        with pytest.raises(Refused, match="status 503"):
            HttpClient(door.bus, "q", 20.0).get("/q")
    assert naps.now == 1_020.0


def test_pauses_are_shortened_by_chance(naps: Naps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience: tasks that failed together do not come back together."""
    monkeypatch.setattr(patience.random, "random", lambda: 1.0)
    with scripted(answer(503), answer(503), answer()) as door:
        HttpClient(door.bus, "q").get("/q")
    assert naps.slept == [0.05, 0.1]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 500, 501])
def test_a_refusal_is_final(naps: Naps, status: int) -> None:
    """Patience: also a failure of which the server does not say that it passes, such as lost events."""
    with scripted(answer(status)) as door:
        with pytest.raises(EntityMissing if status == 404 else Exception, match=f"status {status}"):
            HttpClient(door.bus, "q").get("/q")
        assert len(door.asked) == 1
    assert naps.slept == []


def test_the_time_of_a_server_is_in_every_answer_and_asked_for_once(naps: Naps) -> None:
    """M-38: also in a refusal; who does not answer is not waited for, since there is another clock."""
    date = "Tue, 14 Nov 2023 22:13:20 GMT"
    with scripted(answer(404, Date=date), answer(503, Date=date)) as door:
        for _ in range(2):
            assert ReadingTarget.by_clock(door.bus).at_ms == 1_700_000_000_999
        assert door.asked == ["GET /health"] * 2
    with pytest.raises(Unreachable):
        HttpClient(_nobody(), "", limit_s=0.0).date()
    assert naps.slept == []


@pytest.mark.usefixtures("naps")
def test_a_failure_that_passes_is_repeated_where_nothing_happens_twice() -> None:
    """Patience: the outcome of a commit may be unknown (500 with Retry-After)."""
    failed = answer(500, Retry_After="1")
    with scripted(failed, answer(body=b"yes"), failed) as door:
        assert HttpClient(door.bus, "q").post("/q", is_repeatable=True) == b"yes"
        with pytest.raises(Refused):
            HttpClient(door.bus, "q").post("/q", is_repeatable=False)
        assert len(door.asked) == 3


@pytest.mark.usefixtures("naps")
def test_a_request_that_is_not_repeatable_is_made_again_only_where_it_cannot_have_taken_effect() -> None:
    """Patience: not after a lost answer; after a refusal as busy, yes."""
    with scripted(answer(503, Retry_After="1"), HANG_UP, answer()) as door:
        with pytest.raises(Unreachable, match="not known whether the request took effect"):
            HttpClient(door.bus, "q").post("/q", b"x", is_repeatable=False)
        assert door.asked == ["POST /q", "POST /q"]
        assert HttpClient(door.bus, "q").post("/q", b"x", is_repeatable=False) == b"{}"


def test_a_bus_that_never_answered_is_given_up_soon(naps: Naps) -> None:
    """Patience: ten seconds, because the address may be wrong; `operationTimeout` where it is shorter."""
    bus = _nobody()
    with pytest.raises(Unreachable, match=r"tried \d+ times in 10 s"):
        HttpClient(bus, "q").get("/q")
    assert naps.now == 1_010.0
    with pytest.raises(Unreachable, match=r"in 3 s"):
        bus.kind(3.0)


def _nobody() -> Bus:
    """Whose port nobody listens at."""
    with scripted(answer()) as door:
        return door.bus


# -- connections that are kept


def test_requests_share_a_connection_and_one_that_the_server_closed_costs_no_pause(naps: Naps) -> None:
    """Kept connections: a new one only where the old one has gone."""
    with scripted(*[answer()] * 5, HANG_UP, answer()) as door:
        http = HttpClient(door.bus, "q")
        for _ in range(5):
            http.get("/q")
        assert door.connections == 1
        http.post("/q", is_repeatable=True)
        assert (door.connections, naps.slept) == (2, [])
        assert HttpClient(door.bus, "other").get("/other") == b"{}"
        assert door.connections == 2


def test_several_threads_never_share_one(naps: Naps) -> None:
    """Kept connections: each is lent to one at a time; as many as are needed at once."""
    with scripted(answer()) as door:
        http = HttpClient(door.bus, "q")
        threads = [threading.Thread(target=lambda: [http.get("/q") for _ in range(20)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(door.asked) == 160
        assert door.connections <= 8
    assert naps.slept == []


@pytest.mark.usefixtures("naps")
def test_a_forked_child_uses_connections_of_its_own() -> None:
    """Kept connections: two processes on one socket would read each other's answers."""
    with scripted(answer()) as door:
        http = HttpClient(door.bus, "q")
        http.get("/q")
        child = os.fork()
        if not child:
            http.get("/q")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert door.connections == 2
        http.get("/q")
        assert door.connections == 2


def test_a_connection_that_rests_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept connections: by a timer, which is set again while others rest, and ends with the last."""
    timers: list[Any] = []

    class Ringing:
        daemon = False

        def __init__(self, after_s: float, ring: Any) -> None:
            self.after_s, self.ring = after_s, ring
            timers.append(self)

        def start(self) -> None: ...
        def cancel(self) -> None: ...

    naps = Naps()
    monkeypatch.setattr(keeping.threading, "Timer", Ringing)
    monkeypatch.setattr(keeping, "time", naps)
    with scripted(answer()) as door:
        HttpClient(door.bus, "q").get("/q")
        naps.now += 20
        HttpClient(door.bus, "q").get("/q")
        naps.now += 10
        timers.pop(0).ring()  # it was used since
        assert connection_pool()._resting
        naps.now += 30
        timers.pop(0).ring()
    assert not connection_pool()._resting
    assert not timers


# -- against a server that goes and comes back


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path) as running:
        with ServiceBusAdministrationClient.from_connection_string(running.connection_string) as admin:
            admin.hubs.create("clicks", {"PartitionCount": 1})
            admin.create_queue("orders")
        yield running
        close_bridge()


def _away(server: RunningServer, seconds: float = 1.0) -> threading.Timer:
    """Killed now, there again after a while."""
    server.kill()
    back = threading.Timer(seconds, server.start)
    back.start()
    return back


def test_reading_goes_on_when_the_bus_was_away(bus: RunningServer) -> None:
    """Patience: facts and events of a hub, claims of a queue, over HTTP and over AMQP."""
    here = Bus(bus.connection_string)
    asyncio.run(_fill(here))
    wanted = EventRange("0", 0, 100)
    back = _away(bus)
    assert sum(each.num_rows for each in BulkReader(here, "clicks").batches(wanted)) == 100
    back.join()
    routes, stamp = ClaimRoutes(here, "orders"), uuid4().hex
    runs = [run[:2] for run in routes.take(stamp, 100, 1.0).runs]
    assert routes.hold(stamp, runs) == [(1, 100, None)]
    back = _away(bus)
    assert sum(1 for _ in routes.read(stamp, runs)) >= 1
    back.join()
    back = _away(bus)
    assert routes.settle(stamp, runs) == 0
    back.join()
    assert read_hub(here, "clicks").partitions["0"].next_number == 100
    back = _away(bus)
    assert read_hub(here, "clicks").partitions["0"].next_number == 100
    back.join()
    back = _away(bus)
    batches = AmqpReader(here, "clicks", "$Default", 10.0).batches(wanted)
    assert sum(each.num_rows for each in batches) == 100
    back.join()


async def _fill(bus: Bus) -> None:
    async with bus.client() as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage(b"m%d" % n) for n in range(100)])
        async with client.get_queue_sender("clicks/Partitions/0") as publisher:
            await publisher.send_messages([ServiceBusMessage(b"e%d" % n) for n in range(100)])


def test_many_questions_are_asked_over_one_connection(bus: RunningServer) -> None:
    """Kept connections: facts of a hub over AMQP, too, and no link is left behind."""
    here = Bus(bus.connection_string)
    read_hub(here, "clicks")
    client = bridge().client(here)
    wire = client.connection._wire
    for _ in range(600):
        read_hub(here, "clicks")
    assert client.connection._wire is wire
