"""What a store promises about logs, the append-only partitions of event hubs. Part of `contract`.

A log belongs to a fragment key, as messages do; its fragment row keeps its counters. Its events lie in *chunks*
(`message.event_chunk`): one row each, never changed in place. Chunks of a log do not overlap, their numbers and times
grow. A store knows of a chunk what stands in `ChunkHead` and keeps the rest as opaque bytes under a checksum.

Writing. A chunk joins a batch while it is still gathering: the store takes its bytes when the batch closes. Deletions
of a batch come before its new chunks, so a chunk can be put in the place of others (compaction). Two chunks of a log
that end with the same number are refused with their batch. A chunk without events is none.

Reading. Reads show durable chunks only, nothing that has merely joined. They may show chunks whose deletion has
joined and is not durable yet; they are true still. Of a log whose drop has joined they show nothing. A chunk whose
checksum does not fit is never returned as one: it is named in `ChunkPage.damaged`, and the page goes on behind it.
Its bytes count, so a page holds at least one chunk when any is left, but that may be a damaged one.
"""

from __future__ import annotations

from busway.message.event_chunk import ChunkBuilder


class ChunkHead:
    """What is known of a stored chunk without its bytes."""

    __slots__ = ("events", "first_at_ms", "first_number", "last_at_ms", "last_number", "size_bytes")

    def __init__(
        self,
        first_number: int,
        last_number: int,
        first_at_ms: int,
        last_at_ms: int,
        events: int,
        size_bytes: int,
    ) -> None:
        self.first_number = first_number
        self.last_number = last_number
        self.first_at_ms = first_at_ms
        self.last_at_ms = last_at_ms
        #: Fewer than the numbers it spans once it was compacted.
        self.events = events
        self.size_bytes = size_bytes


class ChunkPage:
    """An answer of chunks, in ascending number."""

    __slots__ = ("chunks", "damaged", "more")

    def __init__(self, chunks: list[bytes], damaged: list[ChunkHead], more: bool) -> None:
        #: The bytes of each, as `busway.message.event_chunk.Chunk` reads them.
        self.chunks = chunks
        self.damaged = damaged
        #: True when the answer was cut, by its size or where the store found it handy: there may be more behind the
        #: last of either list.
        self.more = more


class ProducerRow:
    """What a log remembers of an idempotent producer (H-18, H-19)."""

    __slots__ = ("epoch", "groups", "last_sequence", "producer_id", "used_at_ms")

    def __init__(
        self, producer_id: int, epoch: int, last_sequence: int, used_at_ms: int, groups: bytes = b""
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        #: -1 before the first event.
        self.last_sequence = last_sequence
        self.used_at_ms = used_at_ms
        #: By what its last groups of events are known again; opaque to a store.
        self.groups = groups


class LogChanges:
    """The part of a commit batch that is about logs; a batch has one from the first such change on."""

    __slots__ = ("chunks", "deleted", "producers", "producers_purged")

    def __init__(self) -> None:
        #: (log, chunk); live objects, their bytes are taken when the batch closes.
        self.chunks: list[tuple[int, ChunkBuilder]] = []
        #: (log, first number of the chunk). One that is not there is no error.
        self.deleted: list[tuple[int, int]] = []
        #: (log, row), laid over what is there.
        self.producers: list[tuple[int, ProducerRow]] = []
        #: (log, forget producers last used before); after the rows above.
        self.producers_purged: list[tuple[int, int]] = []
