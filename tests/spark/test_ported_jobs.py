"""Jobs in the style of azure-event-hubs-spark, run with only the format's name changed; and the formats in SQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import bodies, frame, publish, texts
from tests.spark.ported_jobs import JOBS, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = [f"{partition}-{number}" for partition in range(2) for number in range(4)]
READING = '{"device": "d1", "reading": 21}'


@pytest.fixture(scope="module")
def source(server: RunningServer) -> str:
    """A hub with bare events in both partitions, and one with all that an event may have."""
    name = f"hub-{uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as administration:
        administration.hubs.create(name, {"PartitionCount": 2})
    rich = ServiceBusMessage(
        READING.encode(),
        {"kind": "reading", "n": 7},
        partition_key="the key",
        message_id="m1",
        content_type="application/json",
    )
    for partition in range(2):
        publish(server.connection_string, name, partition, bodies(partition, 4))
    publish(server.connection_string, name, 1, [rich.encode()])
    return name


@pytest.fixture
def place(spark: SparkSession, server: RunningServer, source: str, hub: str, checkpoint: str) -> Place:
    connection = server.connection_string
    return Place(
        spark,
        "eventhubs",
        f"{connection};EntityPath={source}",
        f"{connection};EntityPath={hub}",
        source,
        checkpoint,
    )


#: With state, or several jobs of Spark for each batch.
SLOW = ("windows", "each_batch", "bodies_alone")
RICH = (
    READING.encode(),
    None,
    "the key",
    {"kind": '"reading"', "n": "7"},
    {"x-opt-partition-key": '"the key"', "message-id": '"m1"', "content-type": '"application/json"'},
)
EXPECTED: dict[str, Any] = {
    "body_as_text": sorted([*PLAIN, READING]),
    "positions_of_partitions": ["0-2", "0-3"],
    "tuned_stream": sorted([*PLAIN, READING]),
    "windows": 9,
    "json_bodies": [("d1", 21, "reading", '"application/json"')],
    "bodies_alone": 9,
    "keyed": [("a", "red"), ("b", "blue"), ("c", "red")],
    "to_partitions": [
        ("0", "0", {"n": '"0"'}),
        ("0", "2", {"n": '"2"'}),
        ("1", "1", {"n": '"1"'}),
        ("1", "3", {"n": '"3"'}),
    ],
    "each_batch": sorted(text.upper() for text in [*PLAIN, READING]),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
        for name in JOBS
        if name != "copied"
    ],
)
def test_a_job_written_for_the_known_connector_runs(place: Place, name: str) -> None:
    """Ported jobs: options, columns and their meaning are those of azure-event-hubs-spark."""
    assert JOBS[name](place) == EXPECTED[name]


def test_a_hub_is_copied_as_it_is(place: Place) -> None:
    """H-16: a frame that was read can be written: places, keys, properties and fields stay what they were."""
    found = JOBS["copied"](place)
    bare = [(text.encode(), text[0], None, {}, {}) for text in PLAIN]
    assert sorted(row for row in found if row[2] is None) == sorted(bare)
    (rich,) = (row for row in found if row[2] is not None)
    assert (rich[0], *rich[2:]) == (RICH[0], *RICH[2:])


# -- SQL


def test_sql_names_a_connection_and_chooses_columns(
    spark: SparkSession, server: RunningServer, source: str, hub: str, tmp_path: Path
) -> None:
    """SQL clients: tables hold no key, queries bring options by WITH (…), and INSERT does too."""
    Path(os.environ["BUSWAY_CONNECTIONS"]).write_text(
        f'[prod]\nconnectionString = "{server.connection_string}"\n'
    )
    table = f"clicks_{uuid4().hex[:8]}"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        spark.sql(f"CREATE TABLE {table} USING eventhubs LOCATION '{tmp_path.as_uri()}/{table}'")
        read = f"{table} WITH (connection 'prod', name '{source}')"
        counted = spark.sql(f"SELECT count(*) FROM {read} WHERE partition = '0'")  # noqa: S608
        assert counted.collect()[0][0] == 4
        written = f"{table} WITH (connection 'prod', name '{hub}')"
        spark.sql(f"INSERT INTO {written} SELECT * FROM {read}")  # noqa: S608
        assert texts(frame(spark, server.connection_string, hub)) == sorted([*PLAIN, READING])
        with pytest.raises(Exception, match="WITH \\(connection"):
            spark.sql(f"SELECT count(*) FROM {table}").collect()  # noqa: S608
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        spark.sql(f"DROP TABLE IF EXISTS {table}")
    few = frame(spark, server.connection_string, source, columns="sequenceNumber, partition")
    assert (few.columns, few.count()) == (["sequenceNumber", "partition"], 9)
    without = frame(spark, server.connection_string, source, includeBody="false").where(
        "partitionKey is not null"
    )
    assert [(row.body, row.properties["n"]) for row in without.collect()] == [(None, "7")]
