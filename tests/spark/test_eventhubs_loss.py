"""What a stream does about events that are gone: decisions by what the hub tells."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from busway_spark.eventhubs import reader as stream_reader
from busway_spark.eventhubs.offsets import DataLoss, EventRange, HubFacts, HubOffset, PartitionFacts
from busway_spark.eventhubs.options import BULK, EventHubsOptions
from busway_spark.eventhubs.ranges import RangePartition
from busway_spark.eventhubs.reader import EventHubsStreamReader, HubWatch

CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"


def facts(first: int, next_number: int, created_at_ms: int = 1) -> HubFacts:
    partition = PartitionFacts("0", first, next_number, str(next_number - 1), 0)
    return HubFacts("hub", created_at_ms, 1, {"0": partition})


def latest(monkeypatch: pytest.MonkeyPatch, hub: HubFacts, at: int, fails: bool) -> dict[str, object]:
    monkeypatch.setattr(HubWatch, "look", lambda *_: hub)
    given = {"connectionString": CONNECTION, "name": "hub", "failOnDataLoss": str(fails).lower()}
    reader = EventHubsStreamReader(EventHubsOptions.parse(given))
    return reader.latestOffset(HubOffset("hub", 1, {"0": at}).to_json(), ReadAllAvailable())


@pytest.mark.parametrize(
    ("hub", "cause"),
    [
        (facts(50, 80), "Events 10 to 49 of partition 0 .* retention"),
        (facts(0, 80, created_at_ms=2), "was deleted and made again"),
        (facts(0, 4), "came back with older data"),
    ],
)
def test_each_cause_of_loss_has_its_name(monkeypatch: pytest.MonkeyPatch, hub: HubFacts, cause: str) -> None:
    """H-22, H-30: retention, a hub made again, a server restored from older data; or reading goes on."""
    with pytest.raises(DataLoss, match=cause):
        latest(monkeypatch, hub, 10, fails=True)
    end = HubOffset.of_json(latest(monkeypatch, hub, 10, fails=False))
    assert end.next_numbers["0"] == hub.partitions["0"].next_number
    assert end.is_of(hub)


def test_nothing_lost_is_nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """H-22: a reader exactly at the oldest event, or at the end, goes on."""
    assert latest(monkeypatch, facts(10, 80), 10, fails=True)["partitions"] == {"0": 80}
    assert latest(monkeypatch, facts(80, 80), 80, fails=True)["partitions"] == {"0": 80}


def test_a_first_batch_that_is_repeated_begins_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """H-22: Spark asks for the beginning again, and "latest" is behind the batch by then; nothing of it is lost."""
    monkeypatch.setattr(stream_reader, "transport_of", lambda _: BULK)
    ends = iter([facts(0, 10), facts(0, 14), facts(0, 20), facts(0, 20), facts(0, 20)])
    monkeypatch.setattr(HubWatch, "look", lambda *_: next(ends))

    async def initial(*_: object) -> HubOffset:
        hub = next(ends)
        return HubOffset("hub", 1, {"0": hub.partitions["0"].next_number})

    monkeypatch.setattr(EventHubsStreamReader, "_initial", initial)

    def reader() -> EventHubsStreamReader:
        return EventHubsStreamReader(EventHubsOptions.parse({"connectionString": CONNECTION, "name": "hub"}))

    first = reader()
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    again = reader()
    (planned,) = again.partitions(again.initialOffset(), end)
    assert isinstance(planned, RangePartition)
    assert planned.events == EventRange("0", 10, 14)
    behind = again.latestOffset(end, ReadAllAvailable())
    assert behind == HubOffset("hub", 1, {"0": 20}).to_json()


def test_a_hub_without_news_has_the_same_offset_in_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """H-22: Spark compares texts; it would run batches without rows for ever."""
    start = HubOffset("hub", 1, {"0": 14}, {"0": 10}).to_json()
    monkeypatch.setattr(HubWatch, "look", lambda *_: facts(0, 14))
    reader = EventHubsStreamReader(EventHubsOptions.parse({"connectionString": CONNECTION, "name": "hub"}))
    assert reader.latestOffset(start, ReadAllAvailable()) == start
