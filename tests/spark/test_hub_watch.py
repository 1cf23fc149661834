"""What an idle stream costs: how often it asks, over how many connections, and how soon it sees an event. Without
Spark, by the calls that Spark makes; at the end once with it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from busway.client.administration import ServiceBusAdministrationClient
from busway_spark.eventhubs import reader as stream_reader
from busway_spark.eventhubs.options import BadOption, EventHubsOptions
from busway_spark.eventhubs.reader import EventHubsStreamReader
from busway_spark.servicebus.claim_reader import ClaimStreamReader
from busway_spark.servicebus.columns import readable_schema
from busway_spark.servicebus.options import read_options
from busway_spark.wire import http_client as keeping
from busway_spark.wire.bus import close_bridge
from busway_spark.wire.http_client import HttpClient, Question
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import fill, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: As often as Spark asks where there is nothing to do.
POLL_S = 0.01


class Counted:
    """Requests and new connections of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.connections = 0
        send, connected = HttpClient._send, keeping.connect

        def counted_send(door: HttpClient, question: Question, *more: Any) -> Any:
            self.asked.append(question.target)
            return send(door, question, *more)

        def counted_connected(*given: object) -> object:
            self.connections += 1
            return connected(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(HttpClient, "_send", counted_send)
        monkeypatch.setattr("busway_spark.wire.http_client.connect", counted_connected)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    keeping.connection_pool().close()
    yield Counted(monkeypatch)
    close_bridge()


def opened(server: RunningServer, hub: str, **more: str) -> EventHubsStreamReader:
    text = f"{server.connection_string};EntityPath={hub}"
    return EventHubsStreamReader(EventHubsOptions.parse({"connectionString": text, **more}))


def test_an_idle_stream_asks_once_a_second_over_one_connection(
    server: RunningServer, hub: str, counted: Counted
) -> None:
    """A good neighbour: at most two requests a second and no new connection."""
    reader = opened(server, hub)
    start = reader.initialOffset()
    reader.latestOffset(start, ReadAllAvailable())
    counted.connections = 0
    counted.asked.clear()
    began = time.monotonic()
    while time.monotonic() - began < 3:
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        time.sleep(POLL_S)
    assert len(counted.asked) <= 2 * (time.monotonic() - began)
    assert counted.connections == 0


def test_an_idle_stream_of_a_queue_asks_twice_a_second_over_one_connection(
    server: RunningServer, admin: ServiceBusAdministrationClient, counted: Counted
) -> None:
    """A good neighbour: the server waits for messages, not the stream."""
    admin.create_queue("idle")
    options = read_options({"connectionString": server.connection_string, "queue": "idle"})
    reader = ClaimStreamReader(readable_schema(options), options, is_durable=True)
    start = reader.initialOffset()
    reader.latestOffset(start, ReadAllAvailable())
    counted.connections = 0
    counted.asked.clear()
    began = time.monotonic()
    while time.monotonic() - began < 3:
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        time.sleep(POLL_S)
    assert len(counted.asked) <= 2 * (time.monotonic() - began)
    assert counted.connections == 0
    reader.stop()


def test_an_event_ends_the_wait(server: RunningServer, hub: str, counted: Counted) -> None:
    """A good neighbour: whoever waits sees an event as soon as one who asks all the time."""
    reader = opened(server, hub, idleWait="PT10S")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    threading.Timer(0.2, fill, (server.connection_string, hub, 1)).start()
    began = time.monotonic()
    assert reader.latestOffset(start, ReadAllAvailable()) != start
    assert time.monotonic() - began < 8
    assert "wait=10.000" in counted.asked[-1]


def test_a_source_beside_a_busy_one_does_not_wait(server: RunningServer, hub: str, counted: Counted) -> None:
    """A good neighbour: Spark asks one source after the other; batches that others bring show by `commit`."""
    reader = opened(server, hub)
    start = reader.initialOffset()
    for _ in range(5):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        reader.commit(start)
    assert not any("wait" in target for target in counted.asked)


@pytest.mark.parametrize("how", ["availableNow", "idleWait=0"])
def test_a_stream_that_must_not_wait_does_not(
    server: RunningServer, hub: str, counted: Counted, how: str
) -> None:
    """A good neighbour: one that ends with what is there, and one whose options say so."""
    reader = opened(server, hub, **({"idleWait": "0"} if how == "idleWait=0" else {}))
    start = reader.initialOffset()
    if how == "availableNow":
        reader.prepareForTriggerAvailableNow()
    for _ in range(3):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert not any("wait" in target for target in counted.asked)


def test_over_amqp_the_pause_is_the_clients(
    server: RunningServer, hub: str, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A good neighbour: a server that cannot wait is asked as seldom."""
    naps: list[float] = []
    monkeypatch.setattr(stream_reader, "BUSWAY", "another")
    monkeypatch.setattr(stream_reader, "time", type("Naps", (), {"sleep": naps.append}))
    reader = opened(server, hub)
    start = reader.initialOffset()
    for _ in range(4):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert (naps, counted.asked) == ([1.0, 1.0, 1.0], [])


@pytest.mark.parametrize("text", ["PT11S", "soon", "-1"])
def test_a_wait_that_nobody_could_stop_is_refused(text: str) -> None:
    """Bad input: `stop()` waits for it, and so do the other sources of the query."""
    given = {"connectionString": "Endpoint=sb://x;SharedAccessKeyName=k;SharedAccessKey=a2V5;EntityPath=h"}
    with pytest.raises(BadOption, match=r"^eventhubs\.idleWait: .*at most 10 seconds"):
        EventHubsOptions.parse({**given, "idleWait": text})


def test_several_idle_sources_are_stopped_soon_and_each_event_arrives(
    spark: SparkSession,
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    tmp_path: Path,
) -> None:
    """A good neighbour: three hubs in one query; `stop()` waits for one question at most."""
    hubs = ["idle-a", "idle-b", "idle-c"]
    for name in hubs:
        admin.hubs.create(name, {"PartitionCount": 2})
    sources = [
        stream(spark, server.connection_string, name, startingPosition=json.dumps({"offset": "-1"})).load()
        for name in hubs
    ]
    rows: list[str] = []
    query = (
        sources[0].union(sources[1]).union(sources[2])
        .writeStream.foreachBatch(lambda frame, _: rows.extend(row[0] for row in frame.select("body").collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )  # fmt: skip
    try:
        query.processAllAvailable()
        for name in hubs:
            fill(server.connection_string, name, 3)
            query.processAllAvailable()
        assert len(rows) == 18
        time.sleep(1.5)  # now all of them wait, one after the other
    finally:
        began = time.monotonic()
        query.stop()
        spent_s = time.monotonic() - began
    assert spent_s < 5
