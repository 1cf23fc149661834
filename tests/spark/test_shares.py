"""Who gets how much of a micro-batch: hub partitions, bytes, and what a claim may cost Spark's log."""

from __future__ import annotations

import json
import random
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxBytes

from busway.amqp.sections import AmqpMessage, encode_message
from busway_spark.eventhubs.offsets import HubOffset, limited, read_hub
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.reader import EventHubsStreamReader
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import note_text, read_note
from busway_spark.pipeline.job import JobFailed
from busway_spark.servicebus.claim import OFFSET_BYTES_MAX, Claim, WrongOffset
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import fill, publish, stream, texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAITING = st.dictionaries(st.integers(0, 40).map(str), st.integers(0, 1 << 40), min_size=1, max_size=40)


def test_a_partition_with_little_waiting_is_in_every_batch() -> None:
    """H-20: next to ten million events one event came at trigger 10,001."""
    start, end = {"0": 7, "1": 0}, {"0": 8, "1": 10_000_000}
    assert limited(start, end, 1_000) == {"0": 8, "1": 999}


@given(WAITING, st.integers(1, 10_000))
def test_every_partition_goes_on_and_the_limit_holds(waiting: dict[str, int], events_max: int) -> None:
    """H-20: at least one event each, the rest by backlog; only a limit below the number of partitions is exceeded,
    by one event for each of them, as in azure-event-hubs-spark."""
    start = {name: 5 for name in waiting}
    end = {name: 5 + count for name, count in waiting.items()}
    shares = {name: number - 5 for name, number in limited(start, end, events_max).items()}
    filled = [name for name, count in waiting.items() if count]
    assert all(1 <= shares[name] <= waiting[name] for name in filled)
    assert sum(shares.values()) == min(sum(waiting.values()), max(events_max, len(filled)))
    for name in filled:
        others = [other for other in filled if waiting[other] > waiting[name]]
        assert all(shares[other] >= shares[name] for other in others)


@pytest.mark.parametrize("transport", ["amqp", "bulk"])
def test_bytes_of_a_batch_are_counted_by_the_events_that_come(
    server: RunningServer, hub: str, transport: str
) -> None:
    """H-20: over AMQP each event was taken for 1 KiB, so batches were as many times too large as events were."""
    payloads = [encode_message(AmqpMessage([bytes(20_000)], 0x75))] * 40
    publish(server.connection_string, hub, 0, payloads)
    publish(server.connection_string, hub, 1, payloads[:2])
    given = {"connectionString": server.connection_string, "name": hub, "transport": transport}
    reader = EventHubsStreamReader(EventHubsOptions.parse({**given, "startingPosition": '{"offset": "-1"}'}))
    end = HubOffset.of_json(reader.latestOffset(reader.initialOffset(), ReadMaxBytes(200_000)))
    assert 7 <= sum(end.next_numbers.values()) <= 11
    assert end.next_numbers["1"] == 1


def _many_sessions(count: int, spread: int) -> Claim:
    chance = random.Random(7)
    numbers = chance.sample(range(1, count * spread), count)
    return Claim("orders").next_of((f"customer-{number}@example.com", number) for number in numbers)


@pytest.mark.parametrize("spread", [1, 2, 1_000, 50_000])
def test_twenty_thousand_sessions_fit_into_an_offset(spread: int) -> None:
    """X-13: an offset is a line in Spark's log and in every progress; whose session it is stays on the bus."""
    claim = _many_sessions(20_000, spread + 1)
    text = json.dumps(claim.offset())
    assert len(text) <= OFFSET_BYTES_MAX == 64 * 1024
    assert "customer" not in text
    again = Claim.of_offset(json.loads(text), "orders")
    assert again.numbers() == claim.numbers()
    assert again.has_sessions
    assert not again.knows_sessions


def test_a_claim_that_no_offset_can_hold_is_cut() -> None:
    """X-13: what is left out is given back when the rest is held."""
    claim = _many_sessions(60_000, 1 << 30)
    cut = claim.fitting()
    assert len(json.dumps(cut.offset())) <= OFFSET_BYTES_MAX
    assert 10_000 < len(cut.numbers()) < 60_000
    assert cut.held.items() <= claim.held.items()
    small = _many_sessions(10, 2)
    assert small.fitting() is small


#: As commit a3987cb wrote them.
OLD_HUB = {"hub": "orders", "createdAt": 1763200000000, "partitions": {"0": 17, "1": 4}}
OLD_CLAIM = {
    "entity": "orders",
    "claim": 7,
    "stamp": "5f0c",
    "held": [[1041, 2, "a"], [1300, 1, "a"], [1043, 1, "b"]],
}
OLD_PLAIN = {"entity": "orders", "claim": 7, "stamp": "5f0c", "held": [[1041, 250], [1300, 12]]}


def test_offsets_written_before_they_had_versions_are_read() -> None:
    """H-21: checkpoints of earlier versions go on."""
    assert HubOffset.of_json(OLD_HUB) == HubOffset("orders", 1763200000000, {"0": 17, "1": 4})
    old = Claim.of_offset(OLD_CLAIM, "orders")
    assert old.held == {"a": [1041, 1042, 1300], "b": [1043]}
    assert old.has_sessions
    assert old.knows_sessions
    plain = Claim.of_offset(OLD_PLAIN, "orders")
    assert plain.numbers() == [*range(1041, 1291), *range(1300, 1312)]
    assert not plain.has_sessions


def test_an_offset_of_a_later_version_is_refused_in_a_sentence() -> None:
    """H-21: a number that means something else tomorrow is not guessed at."""
    hub, claim = HubOffset("orders", 1, {"0": 17}).to_json(), _many_sessions(3, 2).offset()
    assert (hub["version"], claim["version"]) == (1, 2)
    with pytest.raises(ValueError, match="later version of Busway"):
        HubOffset.of_json({**hub, "version": 2})
    with pytest.raises(WrongOffset, match="later version of Busway"):
        Claim.of_offset({**claim, "version": 3}, "orders")


#: What Spark wrote for a stream of commit a3987cb that had read the first events of a hub and was then killed, the
#: second batch planned and not committed.
LOGS = {
    "metadata": '{"id":"0b0a9a3e-0a53-4a9c-a6a7-6b4f8a8f0c11"}',
    "offsets/0": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{OFFSET 2 1}',
    "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    "offsets/1": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":2,"conf":{}}\n{OFFSET 5 1}',
}


def test_a_checkpoint_of_an_earlier_version_goes_on(
    spark: SparkSession, server: RunningServer, hub: str, tmp_path: Path
) -> None:
    """H-21: the batch that was planned comes as it was planned, and then the rest."""
    fill(server.connection_string, hub, 8)
    created = read_hub(Bus(server.connection_string), hub).created_at_ms
    for name, text in LOGS.items():
        path = tmp_path / "old" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for first, second in ((2, 1), (5, 1)):
            offset = {"hub": hub, "createdAt": created, "partitions": {"0": first, "1": second}}
            text = text.replace(f"{{OFFSET {first} {second}}}", json.dumps(offset))
        path.write_text(text)
    batches: dict[int, list[str]] = {}

    def keep(rows: DataFrame, batch: int) -> None:
        batches[batch] = texts(rows)

    writer = stream(spark, server.connection_string, hub).load().writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", str(tmp_path / "old")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert batches.pop(1) == ["0-2", "0-3", "0-4"]
    rest = sorted(body for batch in batches.values() for body in batch)
    assert rest == ["0-5", "0-6", "0-7", *(f"1-{at}" for at in range(1, 8))]


@pytest.mark.parametrize(
    "held", ["", "!", "0" * 100, 7, [[0, 0]], [[5, 1 << 40]], [[1, -1]], [["1", 1]], None]
)
def test_a_damaged_offset_is_refused(held: Any) -> None:
    """H-21: also one that would be enormous when it is unpacked."""
    with pytest.raises(WrongOffset):
        Claim.of_offset({**_many_sessions(3, 2).offset(), "held": held}, "orders")


def test_notes_of_jobs_have_versions_and_later_ones_are_refused(tmp_path: Path) -> None:
    """H-21: notes as commit a3987cb wrote them are read; one of a later version is not guessed at."""
    root, path = CaptureRoot(str(tmp_path)), PurePosixPath("note.json")
    facts = {"query": "q", "batch": 3}
    (tmp_path / "note.json").write_text(json.dumps(facts))
    assert read_note(root, path) == facts
    (tmp_path / "note.json").write_text(note_text(facts))
    assert read_note(root, path) == facts
    (tmp_path / "note.json").write_text(json.dumps({**facts, "version": 2}))
    with pytest.raises(JobFailed, match="later version of Busway"):
        read_note(root, path)
