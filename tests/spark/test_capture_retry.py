"""A capture that follows many entities: one that fails is started again by itself, the others go on. Without Spark,
by queries that fail when a test says so; at the end once with it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway_spark.pipeline.capture import capture as capturing
from busway_spark.pipeline.capture.capture import CaptureOptions, _Capture, _watch, capture
from busway_spark.pipeline.job import HUB, EntityFacts, JobFailed, JobPlace, JobProgress
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Query:
    """As much of a streaming query as is looked at."""

    def __init__(self, failure: str | None = None, batches: int = 0) -> None:
        self.failure = failure
        self.recentProgress = [
            SimpleNamespace(json=json.dumps({"batchId": number, "numInputRows": 10}))
            for number in range(batches)
        ]

    @property
    def isActive(self) -> bool:
        return self.failure is None

    def exception(self) -> Exception | None:
        return None if self.failure is None else Exception(f"a.b.DataLoss: {self.failure}")


class Scene:
    """Time that passes only in waits; what is told, and what is started again, with when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until_s: float) -> None:
        self.now = 0.0
        self.told: list[tuple[float, str]] = []
        self.started: list[tuple[float, str]] = []
        self.answers: dict[str, list[Query | JobFailed]] = {}
        self.progress = JobProgress(lambda sentence, _: self.told.append((round(self.now), sentence)))
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(capturing, "time", clock)

        def wait(seconds: float) -> bool:
            self.now += seconds
            if self.now >= until_s:
                self.progress.stop()
            return self.progress.is_stopping

        monkeypatch.setattr(self.progress, "wait", wait)

    def start_again(self, entity: EntityFacts) -> Any:
        self.started.append((round(self.now), entity.name))
        found = self.answers[entity.name]
        answer = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(answer, JobFailed):
            raise answer
        return answer


def captured(name: str, query: Query) -> _Capture:
    return _Capture(query, EntityFacts(name, HUB), "checkpoint")  # type: ignore[arg-type]


def test_one_that_fails_is_started_again_while_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience: with its sentence in the progress, after pauses that double, until a batch goes well."""
    scene = Scene(monkeypatch, until_s=60)
    sick, well = captured("sick", Query("Events are gone.")), captured("well", Query(batches=2))
    scene.answers["sick"] = [Query("Still gone."), JobFailed("It cannot start."), Query(batches=1)]
    _watch([sick, well], scene.progress, scene.start_again)
    assert scene.started == [(1, "sick"), (3, "sick"), (7, "sick")]
    failures = [(at, said) for at, said in scene.told if "started again" in said]
    assert failures == [
        (0, "The capture of 'sick' stopped: Events are gone. It is started again in 1 s."),
        (1, "The capture of 'sick' stopped: Still gone. It is started again in 2 s."),
        (3, "It cannot start. It is started again in 4 s."),
    ]
    assert (sick.rows, well.rows) == (10, 20)
    sick.query = Query("Once more.")  # type: ignore[assignment]
    assert sick.retry.failed() == 1.0  # a batch went well


def test_a_capture_of_which_nothing_is_left_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience: all have failed, ten times in a row; not while one of them goes on."""
    scene = Scene(monkeypatch, until_s=10_000)
    scene.answers = {"one": [Query("Gone for good.")], "two": [Query("Gone too.")]}
    both = [captured("one", Query("Gone.")), captured("two", Query("Gone."))]
    with pytest.raises(JobFailed, match=r"^The capture of 'one' stopped: Gone for good\.$"):
        _watch(both, scene.progress, scene.start_again)
    assert len(scene.started) == 18
    assert scene.now < 400
    scene = Scene(monkeypatch, until_s=3_600)
    scene.answers["one"] = [Query("Gone for good.")]
    _watch([captured("one", Query("Gone.")), captured("two", Query())], scene.progress, scene.start_again)
    assert 60 < len(scene.started) < 70


def test_a_capture_that_does_not_follow_fails_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience: who captures what is there wants to know at once."""
    scene = Scene(monkeypatch, until_s=60)
    with pytest.raises(JobFailed, match="Events are gone"):
        _watch([captured("one", Query("Events are gone."))], scene.progress, None)
    assert scene.told == []


def test_a_capture_goes_on_when_the_bus_was_away_and_one_hub_was_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Patience: the bus is killed and comes back after five seconds; a hub that is deleted fails alone."""
    assert spark is not None
    with RunningServer(tmp_path / "bus") as server:
        with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
            for name in ("stays", "goes"):
                admin.hubs.create(name, {"PartitionCount": 2})
        fill(server.connection_string, "stays", 5)
        fill(server.connection_string, "goes", 5)
        told: list[Mapping[str, object]] = []
        seen = threading.Condition()

        def tell(_sentence: str, figures: Mapping[str, object]) -> None:
            with seen:
                told.append(figures)
                seen.notify_all()

        progress = JobProgress(tell)

        def wait_for(entity: str, **wanted: object) -> None:
            def has_come() -> bool:
                return any(
                    each.get("entity") == entity and wanted.items() <= {**each}.items() for each in told
                )

            with seen:
                assert seen.wait_for(has_come, 200), told

        def play() -> None:
            wait_for("stays", captured=10)
            wait_for("goes", captured=10)
            server.kill()
            time.sleep(5)
            server.start()
            fill(server.connection_string, "stays", 5, first=5)
            wait_for("stays", captured=20)
            assert not any("failed" in each for each in told), told
            with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
                admin.hubs.delete("goes")
            wait_for("goes", again_in_seconds=1.0)
            fill(server.connection_string, "stays", 5, first=10)
            wait_for("stays", captured=30)

        options = CaptureOptions(("stays", "goes"), str(tmp_path / "lake"), follows=True, every_s=0.2)
        with ThreadPoolExecutor(1) as beside:  # Spark knows its session by the thread
            played = beside.submit(play)
            played.add_done_callback(lambda _: progress.stop())
            result = capture(JobPlace(Bus(server.connection_string)), options, progress)
            played.result()
        assert result.rows == {"stays": 30, "goes": 10}
