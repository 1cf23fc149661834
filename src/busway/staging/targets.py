"""Queues, topics and event hubs as rows go to them: in parts when staged, in slices when published.

A row is checked and its fragment chosen when it is staged; a slice of rows joins that fragment when it is
published. An entity has its fragments by index. A row with a key has its fragment by it. Rows without one go
together, all of a part, to a fragment that follows from the stage and the part: parts go round, and a repeated
part begins where its first try did.

A part of a stage is the rows of one request, checked and laid into chunks, some in each turn of the loop, so that
they can join the batches of their stores in one step.

A slice is some rows of a log on their way into their entity. It is told when they join a batch, in parts where a
topic joins them in parts, and takes them out of the log in that very batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from busway.amqp.byte_writer import i64, read_i32_le
from busway.amqp.decode import DecodeError
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.intake import fault_of, has_keys
from busway.broker.fragment.outlet import FragmentSettings
from busway.broker.namespace.namespace import EntityRow, Namespace, fragment_of_key, key_of
from busway.message.event_chunk import BODY_ELSEWHERE, Chunk, ChunkBuilder
from busway.message.event_record import event_in
from busway.message.message import Message
from busway.model.descriptions import SubscriptionDescription, TopicDescription
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument, BrokerError, EntityDisabled, InvalidOperation, ServerBusy
from busway.model.limits import Limits
from busway.staging.decisions import RowRefused, TooManyRows
from busway.staging.stage_table import EntityName
from busway.staging.staged_record import EventRecords, MessageRecords, events_in, messages_in
from busway.store.contract import CommitBatch, FragmentIndex, FragmentKey
from busway.streams.event_hub import EventHub
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_table import HubRow
from busway.streams.key_hash import partition_of_key

_BYTES: Final = 512 * 1024

#: Told once, when everything about it is certain.
SliceOver = Callable[["Slice"], None]


def slice_end(chunk: Chunk, at: int, rows_max: int) -> int:
    """Behind the rows from there on that fit into a slice: one at least."""
    return min(at + rows_max, chunk.index_ending(chunk.start(at) + _BYTES) + 1, chunk.count)


class Leaving(Protocol):
    """The log that rows leave."""

    def leave(self, batch: CommitBatch, upto: int, size_bytes: int) -> None:
        """Rows before this number have joined the batch elsewhere."""


class Slice:
    __slots__ = (
        "_log",
        "_messages",
        "_over",
        "_places",
        "_sizes",
        "bytes",
        "end",
        "error",
        "first",
        "is_over",
        "next",
    )

    def __init__(self, log: Leaving, first: int, sizes: list[int], over: SliceOver) -> None:
        self._log = log
        self._over = over
        self._sizes = sizes
        self._messages: list[Message] = []
        #: Of each message; made when it is asked for, as most slices join whole.
        self._places: dict[int, int] = {}
        self.first = first
        self.end = first + len(sizes)
        self.bytes = sum(sizes)
        #: Of the first row that has not left.
        self.next = first
        self.is_over = False
        #: Why it has not left, or not all of it; that is tried again.
        self.error: BrokerError | None = None

    def carries(self, messages: list[Message]) -> None:
        """What the rows became, in order."""
        self._messages = messages

    def joined(self, batch: CommitBatch, messages: list[Message], store_name: str) -> None:
        """`broker.origin.Origin`."""
        del store_name
        if not messages:
            return
        last = messages[-1]
        if last is self._messages[-1]:
            self._leave(batch, self.end)
            return
        if not self._places:
            self._places = {id(message): place for place, message in enumerate(self._messages)}
        self._leave(batch, self.first + self._places[id(last)] + 1)

    def joined_whole(self, batch: CommitBatch) -> None:
        self._leave(batch, self.end)

    def rest_leaves(self, batch: CommitBatch) -> None:
        """What is left of it is known in its entity already: duplicates at its end."""
        self._leave(batch, self.end)

    def _leave(self, batch: CommitBatch, upto: int) -> None:
        sizes = self._sizes[self.next - self.first : upto - self.first]
        self.next = upto
        self._log.leave(batch, upto, sum(sizes))

    def appended(self, error: BrokerError | None) -> None:
        """`streams.partition_log.AppendDone`."""
        self.done([] if error is None else [(0, error)])

    def done(self, refused: list[tuple[int, BrokerError]]) -> None:
        """`broker.settlement.RunDone`. No single row is refused, since all were accepted when they were staged:
        it is the entity or the store that cannot take them, or the commit has failed in which they were to
        leave."""
        if self.is_over:
            return
        self.is_over = True
        if refused:
            self.error = refused[0][1]
        self._over(self)


#: Of a row that may go anywhere.
LOOSE: Final = -1
#: Its fragment or LOOSE, what is stored of it in two pieces, the bytes that count.
StagedRow = tuple[int, bytes, bytes, int]
_NO_KEY: Final = (
    "A message to a partitioned entity that detects duplicates needs a PartitionKey or a MessageId."
)


class MessageCodec(Protocol):
    """Payloads → messages, as a link would bring them."""

    def message(self, payload: bytes, wants_message_id: bool, limits: Limits) -> Message: ...


class StagingTarget(ABC):
    """An entity, for one step: who waits looks it up again. No protocol: compiled, a call of one is looked up by
    name, and `row` is called for each row."""

    name: EntityName

    @abstractmethod
    def is_same(self, other: StagingTarget) -> bool:
        """Nothing was changed in between that a check may have looked at."""

    @abstractmethod
    def places(self) -> list[tuple[str, FragmentKey]]:
        """Store and key of each fragment."""

    @abstractmethod
    def check_open(self) -> None:
        """Raises why nothing can be sent to it."""

    @abstractmethod
    def row(self, body: bytes, start: int, end: int) -> StagedRow:
        """Of a message in a part of the body. Raises BrokerError, DecodeError."""

    @abstractmethod
    def fault(self, index: int, size_bytes: int) -> BrokerError | None:
        """Why so many bytes cannot be staged for that fragment now."""

    @abstractmethod
    def touch(self, index: int, now_ms: int) -> None:
        """Something was staged for the fragment, which is a use of the entity (E-41)."""

    @abstractmethod
    def is_eager(self, index: int) -> bool:
        """A slice joins in the very step in which it is handed over, or is refused in it."""

    @abstractmethod
    def publish(self, index: int, chunk: Chunk, first: int, end: int, piece: Slice) -> None:
        """Hands a slice over: rows of a chunk, from one index to another. Raises ServerBusy while the fragment is
        not there."""


class Targets:
    """Queues, topics and event hubs as rows go to them: a row is checked and its fragment chosen when it is
    staged; a slice of rows joins that fragment when it is published."""

    def __init__(self, namespace: Namespace, hubs: EventHubs | None, codec: MessageCodec) -> None:
        self._namespace = namespace
        self._hubs = hubs
        self._codec = codec
        #: The queue or topic that was looked up last: publishing asks for the same one slice by slice.
        self._last: MessageTarget | None = None

    def find(self, path: str, partition: str | None) -> StagingTarget:
        """Raises EntityNotFound, InvalidOperation, ArgumentOutOfRange."""
        hub = None if self._hubs is None else self._hubs.row(path)
        if hub is not None:
            return self._of_hub(hub, partition)
        description = self._namespace.description(path)
        if isinstance(description, SubscriptionDescription):
            raise InvalidOperation(f"Nobody can send to the subscription {shown(path)}: send to its topic.")
        if partition is not None:
            raise BadArgument(f"partition: {shown(path)} is no event hub.")
        return self._of_row(self._namespace.contents.entities.rows[path_key(path)])

    def exists(self, path: str) -> bool:
        return self._namespace.exists(path) or (self._hubs is not None and self._hubs.exists(path))

    def named(self, name: EntityName) -> StagingTarget | None:
        """None when it is gone, or was made again."""
        key = path_key(name.path)
        hub = None if self._hubs is None else self._hubs.row(name.path)
        if hub is not None and hub.row_key == name.row_key and hub.incarnation == name.incarnation:
            return self._of_hub(hub, None)
        row = self._namespace.contents.entities.rows.get(key)
        if row is None or row.row_key != name.row_key or row.incarnation != name.incarnation:
            return None
        return self._of_row(row)

    def _of_row(self, row: EntityRow) -> StagingTarget:
        last = self._last
        if last is None or not last.is_of(row):
            last = self._last = MessageTarget(self._namespace, row, self._codec)
        return last

    def _of_hub(self, row: HubRow, partition: str | None) -> StagingTarget:
        assert self._hubs is not None
        return HubTarget(self._hubs, row, partition, self._namespace.limits)


class MessageTarget(StagingTarget):
    """A queue or a topic."""

    def __init__(self, namespace: Namespace, row: EntityRow, codec: MessageCodec) -> None:
        self.name = EntityName(row.row_key, row.description.path, row.incarnation)
        self._namespace = namespace
        self._entity_row = row
        self._codec = codec
        self._records = MessageRecords()
        self._limits = namespace.limits
        settings = self._settings = _settings(row, namespace.limits)
        # Of these each row asks.
        self._bytes_max = settings.message_bytes_max
        self._requires_session = settings.requires_session
        self._detects_duplicates = settings.detects_duplicates
        self._is_partitioned = settings.is_partitioned

    def is_of(self, row: EntityRow) -> bool:
        return self._entity_row is row

    def is_same(self, other: StagingTarget) -> bool:
        return isinstance(other, MessageTarget) and other._entity_row is self._entity_row

    def places(self) -> list[tuple[str, FragmentKey]]:
        return [(share.store_name, share.main) for share in self._entity_row.shares]

    def check_open(self) -> None:
        if not self._settings.allows_send:
            raise EntityDisabled

    def row(self, body: bytes, start: int, end: int) -> StagedRow:
        detects = self._detects_duplicates
        message = self._codec.message(body[start:end], detects, self._limits)
        size = message.size()
        if size > self._bytes_max or self._requires_session or has_keys(message):
            fault = fault_of(message, size, self._settings, self._limits)
            if fault is not None:
                raise fault
        index = 0
        if self._is_partitioned:
            key = key_of(message, detects)
            if key is None and detects:
                raise InvalidOperation(_NO_KEY)
            index = LOOSE if key is None else fragment_of_key(key, len(self._entity_row.shares))
        return index, self._records.front(message), message.bare, size

    def _fragment(self, index: int) -> Fragment:
        """Raises ServerBusy."""
        return self._namespace.contents.entities.entity(self._entity_row).inlet.member(FragmentIndex(index))

    def fault(self, index: int, size_bytes: int) -> BrokerError | None:
        try:
            fragment = self._fragment(index)
        except ServerBusy as error:
            return error
        if fragment.store.is_stuck():
            return ServerBusy("The store takes very long to write just now. Please try again later.")
        return fragment.intake.staging_fault(size_bytes)

    def touch(self, index: int, now_ms: int) -> None:
        self._fragment(index).touch(now_ms)

    def is_eager(self, index: int) -> bool:
        del index
        is_topic = isinstance(self._entity_row.description, TopicDescription)
        return not is_topic and not self._settings.detects_duplicates

    def publish(self, index: int, chunk: Chunk, first: int, end: int, piece: Slice) -> None:
        fragment = self._fragment(index)
        messages = messages_in(chunk, first, end)
        piece.carries(messages)
        fragment.intake.append_admitted(messages, piece.done, piece)


class HubTarget(StagingTarget):
    def __init__(self, hubs: EventHubs, row: HubRow, partition: str | None, limits: Limits) -> None:
        self.name = EntityName(row.row_key, row.description.path, row.incarnation)
        self._hubs = hubs
        self._hub_row = row
        self._records = EventRecords()
        self._limits = limits
        self._partition = LOOSE if partition is None else self._hub().index_of(partition)

    def is_same(self, other: StagingTarget) -> bool:
        return isinstance(other, HubTarget) and other._hub_row is self._hub_row

    def places(self) -> list[tuple[str, FragmentKey]]:
        return [(share.store_name, share.log) for share in self._hub_row.shares]

    def _hub(self) -> EventHub:
        return self._hubs.hub(self._hub_row.description.path)

    def check_open(self) -> None:
        self._hub().check_status(sends=True)

    def row(self, body: bytes, start: int, end: int) -> StagedRow:
        event = event_in(body, start, end)
        size, key, limits = event.size_bytes(), event.partition_key, self._limits
        if size > limits.event_bytes_max:
            raise BadArgument(
                f"An event of {size} bytes is larger than the {limits.event_bytes_max} bytes that are allowed."
            )
        if key is not None and len(key) > limits.key_characters_max:
            raise BadArgument(
                f"PartitionKey is {len(key)} characters long; at most {limits.key_characters_max} are allowed."
            )
        index = self._partition
        if index == LOOSE and key is not None:
            index = partition_of_key(key, len(self._hub_row.shares))
        return index, self._records.front(event), event.bare, size

    def fault(self, index: int, size_bytes: int) -> BrokerError | None:
        del size_bytes  # what is too old leaves: a hub is never full
        log = self._hub().present_partition(index)
        if log is None:
            return ServerBusy(f"The partition {index} of '{self.name.path}' is not available just now.")
        return log.refusal()

    def touch(self, index: int, now_ms: int) -> None:
        """Nobody deletes a hub for want of use."""

    def is_eager(self, index: int) -> bool:
        del index
        return True

    def publish(self, index: int, chunk: Chunk, first: int, end: int, piece: Slice) -> None:
        log = self._hub().present_partition(index)
        if log is None:
            raise ServerBusy(f"The partition {index} of '{self.name.path}' is not available just now.")
        log.append(events_in(chunk, first, end), piece.appended)
        if not piece.is_over:  # it has joined the batch that is open
            piece.joined_whole(log.batch())


def _settings(row: EntityRow, limits: Limits) -> FragmentSettings:
    description = row.description
    if isinstance(description, TopicDescription):
        return FragmentSettings.of_topic(description, limits)
    assert not isinstance(description, SubscriptionDescription), "nobody sends to one"
    return FragmentSettings.of_queue(description, limits)


ROWS_MAX: Final = 10_000
#: A chunk with so many bytes of payloads takes no more. Theirs and not its own: so a part of as many bytes is one
#: chunk, not one and a crumb.
CHUNK_BYTES_MAX: Final = 1024 * 1024
#: Of the number before each row: how long it is.
_LENGTH_BYTES: Final = 4
_LENGTH_MAX: Final = 0xFFFF_FFFF
#: Taken apart in one turn of the loop.
_PIECE_ROWS: Final = 400
_PIECE_BYTES: Final = 256 * 1024


class FragmentRows:
    """What a part has for one fragment."""

    __slots__ = ("_payload_bytes", "builders", "bytes", "first", "rows")

    def __init__(self, first: int) -> None:
        self.builders: list[ChunkBuilder] = []
        #: The number of its first row in the log.
        self.first = first
        self.rows = 0
        self.bytes = 0
        #: In the last builder.
        self._payload_bytes = 0

    def add(self, at_ms: int, front: bytes, bare: bytes, size: int, payload_bytes: int) -> None:
        if not self.builders or self._payload_bytes >= CHUNK_BYTES_MAX:
            self.builders.append(ChunkBuilder())
            self._payload_bytes = 0
        self._payload_bytes += payload_bytes
        self.builders[-1].add_event(self.first + self.rows, at_ms, front, bare, BODY_ELSEWHERE)
        self.rows += 1
        self.bytes += size


class StagePart:
    """`body`: the rows, each behind its length. `loose`: the fragment of rows without a key, LOOSE when an earlier
    try has staged them. `skipped`: fragments whose rows with a key it has. `firsts`: how many rows each fragment's
    log has already."""

    def __init__(
        self, target: StagingTarget, body: bytes, loose: int, skipped: set[int], firsts: list[int], at_ms: int
    ) -> None:
        self._target = target
        self._body = body
        #: So much of it is read.
        self._at = 0
        self.loose = loose
        self._skipped = skipped
        self._firsts = firsts
        self._at_ms = at_ms
        #: By fragment.
        self.shares: dict[int, FragmentRows] = {}
        self.has_loose_rows = False
        #: Rows in the body, and the bytes of those that are to be staged.
        self.rows = 0
        self.bytes = 0

    def read_some(self) -> bool:
        """As much as one turn of the loop has time for. False at the end. Raises RowRefused, TooManyRows,
        BadArgument."""
        body, at = self._body, self._at
        end = min(at + _PIECE_BYTES, len(body))
        rows_max = self.rows + _PIECE_ROWS
        while at < end and self.rows < rows_max:
            if self.rows >= ROWS_MAX:
                raise TooManyRows(f"A part has at most {ROWS_MAX} rows.")
            start = at + _LENGTH_BYTES
            if start > len(body):
                raise BadArgument("The body ends within a length.")
            at = start + (i64(read_i32_le(body, at)) & _LENGTH_MAX)
            if at > len(body):
                raise BadArgument("The body ends within a message.")
            self._read_row(start, at)
        self._at = at
        return at < len(body)

    def _read_row(self, start: int, end: int) -> None:
        try:
            index, front, bare, size = self._target.row(self._body, start, end)
        except DecodeError as error:
            raise RowRefused(self.rows, f"It is no message: {error}.") from error
        except BrokerError as refusal:  # another name: compiled, one has one type
            raise RowRefused(self.rows, refusal.sentence) from refusal
        self.rows += 1
        if index == LOOSE:
            index = self.loose
            self.has_loose_rows = self.has_loose_rows or index != LOOSE
        elif index in self._skipped:
            return
        if index == LOOSE:
            return
        share = self.shares.get(index)
        if share is None:
            share = self.shares[index] = FragmentRows(self._firsts[index])
        share.add(self._at_ms, front, bare, size, end - start)
        self.bytes += size
