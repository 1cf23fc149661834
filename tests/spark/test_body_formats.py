"""`bodyFormat` in both formats, through Spark; and keys, which show nowhere."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from busway.client.messages import ServiceBusMessage
from busway_spark.eventhubs.options import KNOWN, PORTED, REFUSED, BadOption, EventHubsOptions
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import frame, publish, stream
from tests.spark.servicebus_rig import ServiceBusRig

CLICK = "page INT, user STRUCT<id: BIGINT, tags: ARRAY<STRING>>, at TIMESTAMP"
CLICKS = [
    b'{"page": 1, "user": {"id": 10, "tags": ["a", "b"]}, "at": "2026-11-15T10:00:00Z"}',
    b'{"page": "two"}',
    b'{"page": 3, "unknown": true}',
    b"\xff not even text",
]
SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
CONNECTION = f"Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey={SECRET};EntityPath=clicks"


@pytest.fixture
def rig(spark: SparkSession, server: RunningServer) -> ServiceBusRig:
    return ServiceBusRig(spark, server.connection_string)


def events(bodies: list[bytes]) -> list[bytes]:
    return [ServiceBusMessage(body).encode() for body in bodies]


# -- event hubs


@pytest.mark.parametrize("transport", ["bulk", "amqp"])
def test_bodies_of_a_hub_become_columns(
    spark: SparkSession, server: RunningServer, hub: str, transport: str
) -> None:
    publish(server.connection_string, hub, 0, events(CLICKS))
    given = {"bodyFormat": "json", "bodySchema": CLICK, "transport": transport}
    rows = frame(spark, server.connection_string, hub, **given)
    assert rows.schema["body"].dataType.simpleString() == (
        "struct<page:int,user:struct<id:bigint,tags:array<string>>,at:timestamp>"
    )
    found = rows.selectExpr(
        "body.page",
        "body.user.tags[1]",
        "unix_seconds(body.at)",
        "cast(_corrupt as string) is null",
        "sequenceNumber",
    )
    assert [tuple(row) for row in found.orderBy("sequenceNumber").collect()] == [
        (1, "b", 1_794_736_800, True, 0),
        (None, None, None, False, 1),
        (3, None, None, True, 2),
        (None, None, None, False, 3),
    ]
    kept = frame(spark, server.connection_string, hub, **given, badRecords="drop").where("sequenceNumber > 0")
    assert [row.page for row in kept.selectExpr("body.page").collect()] == [3]


def test_variants_and_avro_of_a_hub_arrive_as_spark_knows_them(
    spark: SparkSession, server: RunningServer, hub: str, tmp_path: Path
) -> None:
    text = b'{"b": {"z": [1, 2.50, "x", null, true]}, "a": "\xc3\xa4", "n": 12345678901, "big": 1e300}'
    publish(server.connection_string, hub, 0, events([text, b"nope", b"7"]))
    rows = frame(spark, server.connection_string, hub, bodyFormat="variant").orderBy("sequenceNumber")
    queries = ("to_json(body)", "body:b.z[1]::string", "schema_of_variant(body)", "_corrupt")
    expected = spark.sql(f"SELECT parse_json('{text.decode()}') AS body, null AS _corrupt").selectExpr(
        *queries
    )
    found = rows.selectExpr(*queries).collect()
    assert tuple(found[0]) == tuple(expected.collect()[0])
    assert [row[0] for row in found] == [found[0][0], None, "7"]
    assert bytes(found[1]["_corrupt"]) == b"nope"

    schema = {"type": "record", "name": "R", "fields": [
        {"name": "page", "type": "int"}, {"name": "ratio", "type": ["null", "double"]}]}  # fmt: skip
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(schema))
    record = io.BytesIO()
    fastavro.schemaless_writer(record, schema, {"page": 5, "ratio": 0.5})
    publish(server.connection_string, hub, 1, events([record.getvalue(), b"\x0a"]))
    rows = frame(
        spark, server.connection_string, hub, bodyFormat="avro", bodySchema=str(file), badRecords="drop"
    )
    assert [row.asDict() for row in rows.where("partition = '1'").select("body.*").collect()] == [
        {"page": 5, "ratio": 0.5}
    ]


def test_a_stream_of_a_hub_ends_at_a_bad_body_and_goes_on_with_another_policy(
    spark: SparkSession, server: RunningServer, hub: str, checkpoint: str
) -> None:
    publish(server.connection_string, hub, 0, events(CLICKS))
    seen: list[int] = []

    def keep(rows: DataFrame, _: int) -> None:
        seen.extend(row.page for row in rows.selectExpr("body.page").orderBy("page").collect())

    def run(policy: str) -> None:
        rows = stream(
            spark, server.connection_string, hub, bodyFormat="json", bodySchema=CLICK, badRecords=policy,
            startingPosition='{"offset": "-1"}',
        ).load()  # fmt: skip
        query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(PySparkException, match="sequence number 1 in partition 0") as caught:
        run("fail")
    assert "two" not in str(caught.value)
    assert seen == []
    run("drop")
    assert seen == [1, 3]


# -- service bus


def test_bodies_of_a_queue_become_columns(rig: ServiceBusRig, tmp_path: Path) -> None:
    queue = rig.queue()
    rig.send(queue, [ServiceBusMessage(body) for body in CLICKS])
    given = {"queue": queue, "bodyFormat": "json", "bodySchema": CLICK}
    rows = rig.read(**given, columns="_corrupt,body,messageId")
    assert rows.columns == ["_corrupt", "body", "messageId"]
    found = rows.selectExpr("body.page", "_corrupt").collect()
    assert [(row.page, row[1] is None) for row in found] == [
        (1, True),
        (None, False),
        (3, True),
        (None, False),
    ]
    with pytest.raises(PySparkException, match=f"of '{queue}' is not json: field 'page'"):
        rig.read(**given, columns="body", badRecords="fail").collect()
    assert rig.read(**given, columns="sequenceNumber", badRecords="fail").count() == 4, "nothing is decoded"
    assert [row[0] for row in rig.read(**given, includeBody="false").select("body").collect()] == [None] * 4

    batches: list[Any] = []

    def keep(batch: DataFrame, _: int) -> None:
        batches.append(
            [(row[0], row[1]) for row in batch.selectExpr("body.page", "_corrupt is null").collect()]
        )

    rig.run_now(rig.read_stream(**given), str(tmp_path / "claims"), keep)
    assert [sorted(batch, key=str) for batch in batches] == [
        [(1, True), (3, True), (None, False), (None, False)]
    ]
    assert rig.peek(queue) == []
    rig.send(queue, [ServiceBusMessage(b"\xc3\xa4")])
    drained = rig.read(
        queue=queue, mode="receiveAndDelete", allowDestructive="true", bodyFormat="text", columns="body"
    )
    assert [row.body for row in drained.collect()] == ["ä"]


def test_a_body_format_is_for_reading(rig: ServiceBusRig, spark: SparkSession, hub: str) -> None:
    rows = spark.sql("SELECT 'x' AS body")
    with pytest.raises(PySparkException, match="bodyFormat"):
        rig.write(rows, queue="q", bodyFormat="text")
    with pytest.raises(PySparkException, match="bodyFormat"):
        rows.write.format("eventhubs").mode("append").options(
            connectionString=rig.connection_string, name=hub, bodyFormat="text"
        ).save()


# -- keys


def test_keys_show_neither_in_plans_nor_in_errors(
    rig: ServiceBusRig, spark: SparkSession, hub: str, checkpoint: str
) -> None:
    key = re.search("SharedAccessKey=([^;]+)", rig.connection_string)
    assert key is not None
    shown = io.StringIO()
    queue = rig.queue()
    rows = rig.read(queue=queue, columns="body")
    with contextlib.redirect_stdout(shown):
        rows.explain(mode="extended")
        rows.explain(mode="formatted")
        frame(spark, rig.connection_string, hub).explain(mode="extended")
        spark.sql(
            "EXPLAIN EXTENDED CREATE TEMPORARY VIEW shown USING eventhubs OPTIONS"
            f" ('eventhubs.connectionString' '{rig.connection_string}', 'eventhubs.name' '{hub}')"
        ).show(truncate=False)
        print(repr(rows), rows.schema, EventHubsOptions.parse({"connectionString": CONNECTION}))
    texts = [shown.getvalue()]
    for wrong in ({"queue": "no-such-queue"}, {"queue": queue, "quue": "q"}, {"queue": queue, "mode": "x"}):
        with pytest.raises(PySparkException) as caught:
            rig.read(**wrong).collect()
        texts.append(str(caught.value) + repr(caught.value))
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW") as refused:
        spark.sql(
            f"CREATE TABLE kept USING servicebus OPTIONS (connectionString '{rig.connection_string}', queue 'q')"
        )
    writing = rig.read_stream(queue=queue, columns="body").writeStream.format("eventhubs")
    query = writing.options(
        connectionString=rig.connection_string, name="no-such-hub", checkpointLocation=checkpoint
    ).start()
    rig.send_numbered(queue, 1)
    with pytest.raises(PySparkException) as failed:
        query.awaitTermination()
    texts += [str(refused.value), str(failed.value), str(query.lastProgress), str(query.status)]
    assert all(text for text in texts)
    assert [text for text in texts if key.group(1) in text or SECRET in text] == []


# -- options of azure-event-hubs-spark


def test_positions_of_partitions_count(spark: SparkSession, server: RunningServer, hub: str) -> None:
    """The keys are texts of JSON inside of JSON, as azure-event-hubs-spark writes them."""
    for partition in (0, 1):
        publish(server.connection_string, hub, partition, events([b"0", b"1", b"2", b"3"]))

    def at(partition: int) -> str:
        return json.dumps({"ehName": hub, "partitionId": partition})

    def position(number: int) -> dict[str, object]:
        return {"offset": None, "seqNo": number, "enqueuedTime": None, "isInclusive": True}

    rows = frame(
        spark,
        server.connection_string,
        hub,
        **{
            "eventhubs.startingPositions": json.dumps({at(0): position(1)}),
            "eventhubs.startingPosition": json.dumps({**position(-1), "offset": "-1"}),
            "eventhubs.endingPositions": json.dumps({at(1): position(2)}),
            **dict.fromkeys(("useExclusiveReceiver", "slowPartitionAdjustment"), "true"),
            "eventhubs.operationTimeout": "PT5M",
            "eventhubs.prefetchCount": "500",
        },
    )
    found = rows.selectExpr("partition", "sequenceNumber").collect()
    assert sorted(map(tuple, found)) == [("0", 1), ("0", 2), ("0", 3), ("1", 0), ("1", 1)]


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("threadPoolSize", "16", "0"),
        ("useExclusiveReceiver", "False", "maybe"),
        ("receiverTimeout", "PT1M30S", "soon"),
        ("operationTimeout", "PT300S", "PT"),
        ("prefetchCount", "4000", "4001"),
        ("maxSilentTime", "60", "-1"),
        ("dynamicPartitionDiscovery", "true", "1"),
        ("slowPartitionAdjustment", "true", ""),
        ("maxAcceptableBatchReceiveTime", "PT30S", "30 s"),
        ("throttlingStatusPlugin", "org.example.Plugin$Inner", "rm -rf /"),
        ("metricPlugin", "Plugin", "a..b"),
        ("partitionPreferredLocationStrategy", "BalancedHash", "Random"),
        ("maxRatePerPartition", "1000", "x"),
        ("useSimulatedClient", "false", "no"),
    ],
)
def test_options_of_other_jobs_are_taken_and_checked(name: str, right: str, wrong: str) -> None:
    for spelling in (name, f"eventhubs.{name}", f"EventHubs.{name.upper()}"):
        options = EventHubsOptions.parse({"connectionString": CONNECTION, spelling: right})
        assert options.hub == "clicks"
        with pytest.raises(BadOption, match=f"^eventhubs.{name}: "):
            EventHubsOptions.parse({"connectionString": CONNECTION, spelling: wrong})


def test_what_cannot_be_done_is_refused_by_its_name() -> None:
    for name in (*REFUSED, "maxEventsPerTriger", "eventhubs.Foo"):
        with pytest.raises(BadOption, match=f"^eventhubs.{name.removeprefix('eventhubs.')}: "):
            EventHubsOptions.parse({"connectionString": CONNECTION, name: "true"})
    with pytest.raises(BadOption, match=r"^eventhubs\.bodySchema: "):
        EventHubsOptions.parse({"connectionString": CONNECTION, "bodyFormat": "json", "bodySchema": "page"})
    assert not set(KNOWN) & set(PORTED)
