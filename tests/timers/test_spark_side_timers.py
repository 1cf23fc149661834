"""Waits of Spark's side and of long verbs: how often they try, and what ends them. No Spark is started here."""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from busway.client import management as client_management
from busway.client.connection_string import ConnectionString
from busway.client.errors import LockLost, Refused, Unreachable
from busway.client.management import HeldLocks
from busway_spark.pipeline.deadletters import move as deadletters_move
from busway_spark.pipeline.deadletters.move import Mover
from busway_spark.pipeline.job import JobProgress
from busway_spark.servicebus import bulk_claims, stock_claims
from busway_spark.servicebus.bulk_claims import BulkReading, _Renewal
from busway_spark.servicebus.stock_claims import ClaimSteps
from busway_spark.start import session
from busway_spark.wire import patience
from busway_spark.wire.bus import HTTP_TIMEOUT_S, Bus
from busway_spark.writing import two_phase


class Naps:
    """In place of the module `time`: nobody sleeps, and everybody believes he did."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.now = 1_000.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    made = Naps()
    for module in (patience, two_phase, deadletters_move, bulk_claims, stock_claims, client_management):
        monkeypatch.setattr(module, "time", made, raising=False)
    monkeypatch.setattr(patience.random, "random", lambda: 0.0)
    monkeypatch.setattr(asyncio, "sleep", made.sleep_async)
    return made


def test_a_read_of_a_claim_is_taken_up_where_it_broke_until_its_time_is_over(naps: Naps) -> None:
    """Waiting: for what is still missing; a frame that came begins the time anew."""
    asked: list[object] = []

    def read(_stamp: str, runs: object) -> list[bytes]:
        asked.append(runs)
        raise Unreachable("It is away.")

    reading = BulkReading.__new__(BulkReading)
    reading._routes = SimpleNamespace(read=read)  # type: ignore[assignment]
    reading._authority, reading._operation_s = "somewhere", 0.5
    with pytest.raises(Unreachable, match="It was tried 4 times in 0 s"):
        list(reading.batches("stamp", [1, 2, 3], {2, 3}))
    assert (sum(naps.slept), len(naps.slept)) == (pytest.approx(0.5), 3)
    assert asked == [[(1, 3)], [(2, 2)], [(2, 2)], [(2, 2)]]


def test_locks_are_renewed_until_somebody_stops_it_although_the_server_was_away_once(naps: Naps) -> None:
    """Found by review: one connection that broke ended the renewing for good."""
    naps.now = time.time()
    renewed, twice = list[str](), threading.Event()

    def renew(stamp: str) -> None:
        renewed.append(stamp)
        if len(renewed) == 1:
            raise Unreachable("It is away.")
        twice.set()

    monkey = pytest.MonkeyPatch()
    monkey.setattr(bulk_claims, "_RENEWAL_S_MIN", 0.001)
    renewal = _Renewal(SimpleNamespace(renew=renew), "stamp", 0)  # type: ignore[arg-type]
    monkey.undo()
    assert twice.wait(10)
    renewal.stop()
    assert not renewal._thread.is_alive()


@pytest.mark.parametrize(("error", "tries"), [(Unreachable("away"), 3), (LockLost("gone"), 1)])
def test_renewing_goes_on_unless_the_lock_is_lost(error: Exception, tries: int, naps: Naps) -> None:
    """Found by review: also over links; a lost lock cannot be had back."""
    asked: list[float] = []

    async def renew() -> None:
        asked.append(naps.now)
        if len(asked) < 3:
            raise error
        raise LockLost("gone")

    asyncio.run(stock_claims._renew(renew, 20.0))
    assert (len(asked), naps.slept) == (tries, [20.0] * tries)


def test_a_session_that_somebody_else_has_is_tried_for_a_minute(naps: Naps) -> None:
    """Waiting: he may be our own former life, whose lock has to end."""
    refused = Refused("held", "com.microsoft:session-cannot-be-locked")
    opened: list[float] = []

    async def open_() -> None:
        opened.append(naps.now)
        raise refused

    steps: Any = ClaimSteps.__new__(ClaimSteps)
    steps._sessions, steps._address = {}, "q"
    steps._client = SimpleNamespace(get_queue_receiver=lambda *_, **__: SimpleNamespace(open=open_))
    with pytest.raises(Refused):
        asyncio.run(steps._session("blue"))
    assert 60 <= opened[-1] - opened[0] <= 61


def test_a_mover_tries_again_after_its_connection_broke(naps: Naps) -> None:
    """Waiting: longer and longer, and not for ever."""
    mover: Any = Mover.__new__(Mover)
    mover.moved, released = 0, list[int]()

    async def breaks() -> None:
        raise Unreachable("away")

    async def release() -> None:
        released.append(1)

    mover._work, mover._held = breaks, SimpleNamespace(release=release)
    with pytest.raises(Unreachable):
        asyncio.run(mover.run())
    assert naps.slept == [number / 2 for number in range(1, len(naps.slept) + 1)]
    assert released == [1]


def test_held_locks_are_renewed_at_half_of_their_time(naps: Naps) -> None:
    """Waiting: not sooner, and again after another half."""
    times: list[float] = []

    async def renew(_tokens: object) -> None:
        times.append(naps.now)

    management: Any = SimpleNamespace(renew_message_locks=renew)
    held = HeldLocks(management)
    first: Any = SimpleNamespace(locked_until_ms=(naps.now + 60) * 1000)
    held.received([first])
    held.keep([uuid4()])

    async def run() -> None:
        for _ in range(90):
            await held.renew()
            naps.sleep(1)

    begun = naps.now
    asyncio.run(run())
    assert times == [begun + 30, begun + 60]


def test_a_wait_of_a_job_ends_when_it_is_stopped() -> None:
    """Waiting: at once."""
    progress = JobProgress()
    threading.Timer(0.02, progress.stop).start()
    begun = time.monotonic()
    assert progress.wait(30)
    assert time.monotonic() - begun < 10


def test_a_java_that_does_not_answer_is_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting: half a minute, then another one is looked for."""

    def hangs(*_: object, timeout: float, **__: object) -> None:
        raise subprocess.TimeoutExpired("java", timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert session._version_of(Path("java")) == 0


def test_requests_of_spark_have_a_minute() -> None:
    """Waiting: a server that hangs fails the task, which Spark repeats."""
    bus = Bus.__new__(Bus)
    bus.__dict__["target"] = ConnectionString("localhost", 1, "r", "k", emulator=True)
    connection = bus.http_connection()
    assert isinstance(connection, http.client.HTTPConnection)
    assert connection.timeout == HTTP_TIMEOUT_S == 60


@pytest.mark.parametrize(("kinds", "can"), [(("azure", "busway"), True), (("azure", "azure"), False)])
def test_who_answers_by_amqp_alone_is_asked_twice_before_rows_may_come_twice(
    kinds: tuple[str, str], can: bool, naps: Naps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two-phase sinks: a server that is just being started opens its doors one after the other."""
    told = list(kinds)
    monkeypatch.setattr(Bus, "kind", lambda *_: told.pop(0))
    monkeypatch.setattr(two_phase, "_silent", set())
    bus = Bus("Endpoint=sb://localhost:5671;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0")
    assert two_phase.can_stage(bus) is can
    assert naps.slept == [0.5]
    if not can:
        told.append("azure")
        assert not two_phase.can_stage(bus)
        assert naps.slept == [0.5], "that is remembered"
