"""Batch reading of hubs by `format("eventhubs")`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import bodies, expected, fill, frame, publish, rich, texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def position(**fields: object) -> str:
    return json.dumps(fields)


def test_the_columns_are_those_of_the_known_connector(
    spark: SparkSession, server: RunningServer, hub: str
) -> None:
    """H-20: names, order and types of azure-event-hubs-spark."""
    rows = frame(spark, server.connection_string, hub)
    assert [(field.name, field.dataType.simpleString()) for field in rows.schema] == [
        ("body", "binary"),
        ("partition", "string"),
        ("offset", "string"),
        ("sequenceNumber", "bigint"),
        ("enqueuedTime", "timestamp"),
        ("publisher", "string"),
        ("partitionKey", "string"),
        ("properties", "map<string,string>"),
        ("systemProperties", "map<string,string>"),
    ]
    assert rows.count() == 0


def test_everything_in_a_hub_is_read(spark: SparkSession, server: RunningServer, hub: str) -> None:
    """H-1, H-20: every event of every partition, once, and reading takes nothing away."""
    fill(server.connection_string, hub, 700)
    rows = frame(spark, server.connection_string, hub)
    assert texts(rows) == expected(700)
    assert texts(rows) == expected(700)


@pytest.mark.parametrize("transport", ["bulk", "amqp"])
def test_an_event_comes_with_all_that_it_has(
    spark: SparkSession, server: RunningServer, hub: str, transport: str
) -> None:
    """H-16: both ways of reading give the same rows: bare events, keys, properties, bodies of other kinds."""
    from busway.amqp.sections import VALUE, AmqpMessage, encode_message

    value = encode_message(AmqpMessage("a value", VALUE))
    two = encode_message(AmqpMessage([b"two ", b"sections"], 0x75))
    publish(
        server.connection_string,
        hub,
        1,
        [*bodies(1, 1), rich(7, partition_key="k", message_id="m"), value, two],
    )
    rows = (
        frame(spark, server.connection_string, hub, transport=transport).orderBy("sequenceNumber").collect()
    )
    assert [bytes(row.body) for row in rows] == [b"1-0", b"rich 7", b"a value", b"two sections"]
    assert [(row.partition, row["offset"], row.sequenceNumber) for row in rows] == [
        ("1", str(number), number) for number in range(4)
    ]
    assert [row.partitionKey for row in rows] == [None, "k", None, None]
    assert rows[0].properties == {} == rows[0].systemProperties
    assert rows[1].properties == {"number": "7", "text": '"ä"', "flag": "true"}
    assert rows[1].systemProperties == {"x-opt-partition-key": '"k"', "message-id": '"m"'}
    assert rows[0].enqueuedTime <= rows[3].enqueuedTime


def test_positions_cut_a_batch(spark: SparkSession, server: RunningServer, hub: str) -> None:
    """H-20, H-22: from and to a number or an offset, for all partitions and for one."""
    fill(server.connection_string, hub, 20)
    middle = frame(
        spark,
        server.connection_string,
        hub,
        startingPosition=position(seqNo=5, isInclusive=True),
        startingPositions=json.dumps(
            {position(ehName=hub, partitionId=1): {"offset": "14", "isInclusive": False}}
        ),
        endingPosition=position(seqNo=17, isInclusive=True),
    )
    assert texts(middle) == sorted([f"0-{n}" for n in range(5, 17)] + [f"1-{n}" for n in range(15, 17)])
    behind = frame(
        spark, server.connection_string, hub, startingPosition=position(offset="19", isInclusive=False)
    )
    assert texts(behind) == []
    late = frame(
        spark, server.connection_string, hub, startingPosition=position(enqueuedTime="2100-01-01T00:00:00Z")
    )
    early = frame(
        spark, server.connection_string, hub, startingPosition=position(enqueuedTime="2020-01-01T00:00:00Z")
    )
    assert (late.count(), early.count()) == (0, 40)


def test_filters_shrink_what_is_read(spark: SparkSession, server: RunningServer, hub: str) -> None:
    """H-20: filters on number, offset, time and partition leave ranges; what they select stays the same."""
    fill(server.connection_string, hub, 50)
    rows = frame(spark, server.connection_string, hub)
    chosen = rows.where("partition = '1' and sequenceNumber >= 10 and sequenceNumber < 13")
    assert texts(chosen) == ["1-10", "1-11", "1-12"]
    assert chosen.rdd.getNumPartitions() == 1
    assert texts(rows.where("offset = '7'")) == ["0-7", "1-7"]
    assert texts(rows.where("sequenceNumber in (3, 40) and partition in ('0', '9')")) == ["0-3", "0-40"]
    first = rows.where("sequenceNumber = 0 and partition = '0'").collect()[0].enqueuedTime
    assert rows.where(rows.enqueuedTime >= first).where("partition = '0'").count() == 50
    assert rows.where(rows.enqueuedTime < first).where("partition = '0'").count() == 0


def test_large_ranges_are_cut_into_tasks(spark: SparkSession, server: RunningServer, hub: str) -> None:
    """H-20: minPartitions gives at least so many tasks, and each event to one of them."""
    fill(server.connection_string, hub, 100)
    rows = frame(spark, server.connection_string, hub, minPartitions="6")
    assert rows.rdd.getNumPartitions() == 6
    assert texts(rows) == expected(100)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"eventhubs.maxEventsPerTriger": "1"}, "maxEventsPerTriger"),
        ({"maxEventsPerTrigger": "many"}, "maxEventsPerTrigger"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ({"startingPosition": "{"}, "startingPosition"),
        ({"startingPosition": '{"seqNo": -1}'}, "startingPosition"),
        ({"startingPositions": '{"x": {"offset": "-1"}}'}, "startingPositions"),
        ({"receiverTimeout": "soon"}, "receiverTimeout"),
        ({"transport": "pigeon"}, "transport"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(
    spark: SparkSession, server: RunningServer, options: dict[str, str], name: str
) -> None:
    """H-20: when the frame is made, not when it is read; and no key shows."""
    with pytest.raises(Exception, match=f"(?i){name}") as caught:
        frame(spark, server.connection_string, "hub", **options)
    assert server.connection_string.split("SharedAccessKey=")[1][:20] not in str(caught.value)


def test_a_hub_that_is_missing_is_named(spark: SparkSession, server: RunningServer) -> None:
    """ERR-1: the server's own sentence reaches the reader."""
    with pytest.raises(Exception, match="no-such-hub"):
        frame(spark, server.connection_string, "no-such-hub").count()
