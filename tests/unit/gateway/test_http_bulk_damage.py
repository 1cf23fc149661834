"""Reading in bulk where stored chunks are damaged: nothing is left out in silence."""

import json

import pytest

from busway.message.event_chunk import Chunk
from busway.store.contract import ChunkHead, ChunkPage, FragmentKey, StoreError
from tests.harness.memory_store import MemoryStore
from tests.unit.gateway.http_exchange import Exchange
from tests.unit.gateway.test_http_hubs import events

EVENTS = 6


def filled(exchange: Exchange, monkeypatch: pytest.MonkeyPatch, *damaged: int) -> None:
    """A partition with six events, each a chunk of its own, some of which cannot be read."""
    exchange.request("PUT", "/$eventhubs/clicks", json.dumps({"PartitionCount": 1}))
    for number in range(EVENTS):
        exchange.request("POST", "/clicks/messages", b"event %d" % number)
    read = MemoryStore.chunks

    async def chunks(self: MemoryStore, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        page = await read(self, log, from_number, bytes_max)
        good = [data for data in page.chunks if Chunk(data).first_number not in damaged]
        bad = [ChunkHead(number, number, 0, 0, 1, 100) for number in damaged if number >= from_number]
        return ChunkPage(good, bad, page.more)

    monkeypatch.setattr(MemoryStore, "chunks", chunks)


def test_an_answer_ends_before_what_is_damaged(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """H-20: whoever asks again from there is told what is lost, and whoever begins behind it reads on."""
    filled(exchange, monkeypatch, 2)
    assert [number for number, _ in events(exchange)] == [0, 1]
    assert [number for number, _ in events(exchange, query="?from=1")] == [1]
    refusal = exchange.request("GET", "/clicks/partitions/0/events?from=2")
    assert refusal.status == 500
    assert "Events 2 to 2 of partition 0 of 'clicks' cannot be read" in refusal.text
    assert [number for number, _ in events(exchange, query="?from=3")] == [3, 4, 5]


@pytest.mark.parametrize("page_bytes", [1, 400])
def test_damage_ends_an_answer_on_every_page(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch, page_bytes: int
) -> None:
    """H-20: however many pages are read for it."""
    filled(exchange, monkeypatch, 3, 4)
    monkeypatch.setattr("busway.gateway.http.bulk.bulk_route.PAGE_BYTES", page_bytes)
    assert [number for number, _ in events(exchange)] == [0, 1, 2]
    assert exchange.request("GET", "/clicks/partitions/0/events?from=3").status == 500
    assert exchange.request("GET", "/clicks/partitions/0/events?from=4").status == 500
    assert [number for number, _ in events(exchange, query="?from=5")] == [5]


def test_a_range_that_ends_before_the_damage_is_whole(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-20: a range that ends before the damage is whole."""
    filled(exchange, monkeypatch, 3)
    assert [number for number, _ in events(exchange, query="?from=0&to=3")] == [0, 1, 2]
    assert events(exchange, query="?from=3&to=3") == []


@pytest.mark.parametrize("page_bytes", [1, 400])
def test_an_answer_ends_before_what_the_store_cannot_read(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch, page_bytes: int
) -> None:
    """F4, H-20: as before damage, and whoever begins there is told from which number on."""
    filled(exchange, monkeypatch)
    monkeypatch.setattr("busway.gateway.http.bulk.bulk_route.PAGE_BYTES", page_bytes)
    read = MemoryStore.chunks

    async def chunks(self: MemoryStore, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        if 3 <= from_number < 5:
            raise StoreError("The database disk image is malformed.")
        page = await read(self, log, from_number, bytes_max)
        if from_number >= 5:
            return page
        return ChunkPage([data for data in page.chunks if Chunk(data).first_number < 3], [], True)

    monkeypatch.setattr(MemoryStore, "chunks", chunks)
    assert [number for number, _ in events(exchange)] == [0, 1, 2]
    refusal = exchange.request("GET", "/clicks/partitions/0/events?from=3")
    assert refusal.status == 500
    assert "Events from number 3 on of partition 0 of 'clicks' cannot be read" in refusal.text
    assert [number for number, _ in events(exchange, query="?from=5")] == [5]
