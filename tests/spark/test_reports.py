"""Reports of streams to a real bus, without Spark: what is noted, what is told, and that nobody waits for it."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway_spark.watching import reporter as reporting
from busway_spark.watching.reporter import Reporter, figures_text
from busway_spark.watching.watched import (
    QUERIES_MAX,
    RUNNING,
    BusListener,
    ReadPosition,
    Watched,
    positions_of,
)
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer

HUB_END = {"version": 1, "hub": "clicks", "createdAt": 5, "partitions": {"0": 7, "1": 0}}
HUB_LATEST = {**HUB_END, "partitions": {"0": 10, "1": 0}, "consumerGroup": "g", "bus": "here:1"}


def source(end: object, latest: object = None, rows: int | None = 0) -> Any:
    return SimpleNamespace(endOffset=end, latestOffset=latest, numInputRows=rows)


def progress(watched: Watched, query: str, name: str | None, entity: str = "clicks", number: int = 3) -> bool:
    return watched.went_on(
        query,
        "run-1",
        name,
        batch=number,
        rows=10,
        rows_per_s=100.0,
        batch_ms=100,
        positions=(ReadPosition(entity, "$Default", 0, {"0": number}),),
    )


@pytest.fixture
def name() -> str:
    return f"p-{uuid4().hex[:8]}"


@pytest.fixture
def told(server: RunningServer) -> Iterator[Callable[[str], dict[str, Any] | None]]:
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:

        def ask(name: str) -> dict[str, Any] | None:
            return next((dict(each) for each in admin.pipelines.list() if each["name"] == name), None)

        yield ask


def eventually(look: Callable[[], Any], seconds_max: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds_max
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


# -- what is noted


def test_sources_of_our_formats_on_this_bus_are_noted() -> None:
    """Pipelines: offsets as text (classic) or read already (Connect); other formats and buses are passed over."""
    hub = ReadPosition("clicks", "g", 5, {"0": 7, "1": 0}, {"0": 10, "1": 0})
    sources = [
        source(json.dumps(HUB_END), json.dumps(HUB_LATEST)),
        source(HUB_END, HUB_LATEST),
        source(HUB_END, {**HUB_LATEST, "bus": "elsewhere:1"}),
        source({"entity": "orders", "claim": 3, "stamp": "x"}, {"available": 4, "bus": "here:1"}, 9),
        source({"entity": "orders", "claim": 3, "stamp": "x"}),
        source("5"),
        source("{"),
        source(None),
        source({"topic": {"0": 5}}),
    ]
    assert positions_of(sources, "here:1") == [
        hub,
        hub,
        ReadPosition("orders", held=9, waiting=4),
        ReadPosition("orders"),
    ]
    assert hub.behind() == {"0": 3, "1": 0}
    assert len(positions_of(sources, None)) == 5


def test_a_query_that_is_started_again_goes_on_counting() -> None:
    """Pipelines: known by its id; rows, batches and failures are those of all its runs."""
    watched = Watched()
    watched.started("q", "run-0", "copy")
    assert watched.all() == []
    assert progress(watched, "q", "copy")
    assert not progress(watched, "q", "copy")
    watched.ended("q", "run-0", "It broke.")
    watched.started("q", "run-1", "copy")
    progress(watched, "q", "copy")
    (found,) = watched.all()
    assert (found.state, found.rows, found.batches, found.failures) == (RUNNING, 30, 3, 1)
    assert found.sentence == "It broke."


def test_a_driver_with_very_many_queries_keeps_those_that_run() -> None:
    """Pipelines: bounded; what has ended goes first."""
    watched = Watched()
    for number in range(QUERIES_MAX):
        progress(watched, f"q{number}", None)
        if number % 2:
            watched.ended(f"q{number}", "run-1", None)
    for number in range(QUERIES_MAX // 2):
        progress(watched, f"r{number}", None)
    assert len(watched.all()) == QUERIES_MAX
    assert {each.state for each in watched.all()} == {RUNNING}


def test_the_listener_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Pipelines: what Spark calls must not disturb it."""
    listener: Any = BusListener(Watched(), None, lambda: None)
    with caplog.at_level(logging.ERROR):
        for call in (listener.onQueryStarted, listener.onQueryProgress, listener.onQueryTerminated):
            call(object())
    assert len(caplog.records) == 3


def test_without_a_bus_prometheus_gets_what_spark_knows() -> None:
    """Pipelines: events behind, of each partition; nothing about bytes and seconds."""
    watched = Watched()
    watched.started("q", "run", "copy of clicks")
    figures = {"batch": 1, "rows": 5, "rows_per_s": 2.5, "batch_ms": 250}
    watched.went_on(
        "q", "run", None, positions=tuple(positions_of([source(HUB_END, HUB_LATEST)], None)), **figures
    )
    text = figures_text(watched.all()).decode()
    labels = '{pipeline="copy-of-clicks",entity="clicks",consumer_group="g",partition="0"}'
    assert f"busway_pipeline_lag_events{labels} 3.0\n" in text
    assert 'busway_pipeline_batch_seconds{pipeline="copy-of-clicks"} 0.25\n' in text
    assert "busway_pipeline_lag_bytes{" not in text


# -- what is told


def test_a_stream_that_runs_is_reported_again_and_again(
    server: RunningServer, name: str, told: Callable[[str], dict[str, Any] | None]
) -> None:
    """Pipelines: also while no batch ends, so that it is not taken for dead; its end is told at once."""
    watched = Watched()
    reporter = Reporter(Bus(server.connection_string), watched, every_s=0.05)
    progress(watched, "q", name)
    reporter.start()
    try:
        first = eventually(lambda: told(name))
        eventually(lambda: told(name)["reportedAtMs"] > first["reportedAtMs"])  # type: ignore[index]
        watched.ended("q", "run-1", "It broke.")
        reporter.news()
        ended = eventually(lambda: (found := told(name)) and found["state"] == "failed" and found)
        assert (ended["failures"], ended["sentence"]) == (1, "It broke.")
    finally:
        reporter.stop()


def test_the_second_stream_of_a_name_gets_one_of_its_own(
    server: RunningServer, name: str, told: Callable[[str], dict[str, Any] | None]
) -> None:
    """Pipelines: both are seen."""
    watched = Watched()
    reporter = Reporter(Bus(server.connection_string), watched)
    for query in ("11111111-1", "22222222-2"):
        progress(watched, query, name)
    reporter.news()
    reporter.start()
    try:
        assert eventually(lambda: told(f"{name}-22222222"))["query"] == "22222222-2"
        assert eventually(lambda: told(name))["query"] == "11111111-1"
    finally:
        reporter.stop()


def test_a_bus_that_never_answers_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines: it takes connections and says nothing. Batches are noted at once, and the program may end."""
    monkeypatch.setattr(reporting, "LAST_WORD_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
        watched = Watched()
        reporter = Reporter(Bus(text), watched, every_s=0.01)
        progress(watched, "q", "copy")
        reporter.start()
        silent.settimeout(30)
        peer, _ = silent.accept()
        with peer:
            began = time.monotonic()
            for _ in range(1_000):
                progress(watched, "q", "copy")
                reporter.news()
            reporter.stop()
            assert time.monotonic() - began < 5
    assert watched.all()[0].rows == 10_010


def test_while_the_bus_is_away_it_is_said_once_and_reports_go_on_when_it_is_back(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Pipelines: nothing is stored on either side, and nothing has to be."""
    with RunningServer(tmp_path_factory.mktemp("away")) as server:
        connection, watched = server.connection_string, Watched()
        reporter = Reporter(Bus(connection), watched, every_s=0.05)
        progress(watched, "q", "copy")
        server.kill()
        with caplog.at_level(logging.INFO, reporting.__name__):
            reporter.start()
            eventually(lambda: "tried every 0.05 s" in caplog.text)
            server.start()
            eventually(lambda: "again" in caplog.text)
            with ServiceBusAdministrationClient.from_connection_string(connection) as admin:
                assert [each["name"] for each in admin.pipelines.list()] == ["copy"]
            reporter.stop()
        assert caplog.text.count("tried every 0.05 s") == 1
