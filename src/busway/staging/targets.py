"""Queues, topics and event hubs as rows go to them: a row is checked and its fragment chosen when it is staged;
a slice of rows joins that fragment when it is published.

An entity has its fragments by index. A row with a key has its fragment by it. Rows without one go together, all
of a part, to a fragment that follows from the stage and the part: parts go round, and a repeated part begins
where its first try did.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Protocol

from busway.broker.fragment.admission import fault_of, has_keys
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.outlet import FragmentSettings
from busway.broker.namespace.namespace import EntityRow, Namespace, fragment_of_key, key_of
from busway.message.event_chunk import Chunk
from busway.message.event_record import event_of
from busway.message.message import Message
from busway.model.descriptions import SubscriptionDescription, TopicDescription
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument, BrokerError, EntityDisabled, InvalidOperation, ServerBusy
from busway.model.limits import Limits
from busway.staging.slices import Slice
from busway.staging.stage import EntityName
from busway.staging.staged_record import MessageRecords, event_record, events_in, messages_in
from busway.store.contract import FragmentKey
from busway.streams.event_hub import EventHub
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_rows import HubRow
from busway.streams.key_hash import partition_of_key

#: Of a row that may go anywhere.
LOOSE: Final = -1
_NO_KEY: Final = (
    "A message to a partitioned entity that detects duplicates needs a PartitionKey or a MessageId."
)


class MessageCodec(Protocol):
    """Payloads → messages, as a link would bring them."""

    def message(self, payload: bytes, wants_message_id: bool, limits: Limits) -> Message: ...


class Target(ABC):
    """An entity, for one step: who waits looks it up again. No protocol: compiled, a call of one is looked up by
    name, and `row` is called for each row."""

    name: EntityName

    @abstractmethod
    def is_same(self, other: Target) -> bool:
        """Nothing was changed in between that a check may have looked at."""

    @abstractmethod
    def places(self) -> list[tuple[str, FragmentKey]]:
        """Store and key of each fragment."""

    @abstractmethod
    def check_open(self) -> None:
        """Raises why nothing can be sent to it."""

    @abstractmethod
    def row(self, payload: bytes) -> tuple[int, bytes, int]:
        """Its fragment or LOOSE, what is stored of it, the bytes that count. Raises BrokerError, DecodeError."""

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
    def __init__(self, namespace: Namespace, hubs: EventHubs | None, codec: MessageCodec) -> None:
        self._namespace = namespace
        self._hubs = hubs
        self._codec = codec
        #: The queue or topic that was looked up last: publishing asks for the same one slice by slice.
        self._last: MessageTarget | None = None

    def find(self, path: str, partition: str | None) -> Target:
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

    def named(self, name: EntityName) -> Target | None:
        """None when it is gone, or was made again."""
        key = path_key(name.path)
        hub = None if self._hubs is None else self._hubs.row(name.path)
        if hub is not None and hub.row_key == name.row_key and hub.incarnation == name.incarnation:
            return self._of_hub(hub, None)
        row = self._namespace.contents.entities.rows.get(key)
        if row is None or row.row_key != name.row_key or row.incarnation != name.incarnation:
            return None
        return self._of_row(row)

    def _of_row(self, row: EntityRow) -> Target:
        last = self._last
        if last is None or not last.is_of(row):
            last = self._last = MessageTarget(self._namespace, row, self._codec)
        return last

    def _of_hub(self, row: HubRow, partition: str | None) -> Target:
        assert self._hubs is not None
        return HubTarget(self._hubs, row, partition, self._namespace.limits)


class MessageTarget(Target):
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

    def is_same(self, other: Target) -> bool:
        return isinstance(other, MessageTarget) and other._entity_row is self._entity_row

    def places(self) -> list[tuple[str, FragmentKey]]:
        return [(share.store_name, share.main) for share in self._entity_row.shares]

    def check_open(self) -> None:
        if not self._settings.allows_send:
            raise EntityDisabled

    def row(self, payload: bytes) -> tuple[int, bytes, int]:
        detects = self._detects_duplicates
        message = self._codec.message(payload, detects, self._limits)
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
        return index, self._records.record(message), size

    def _fragment(self, index: int) -> Fragment:
        """Raises ServerBusy."""
        return self._namespace.contents.entities.entity(self._entity_row).inlet.member(index)

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


class HubTarget(Target):
    def __init__(self, hubs: EventHubs, row: HubRow, partition: str | None, limits: Limits) -> None:
        self.name = EntityName(row.row_key, row.description.path, row.incarnation)
        self._hubs = hubs
        self._hub_row = row
        self._limits = limits
        self._partition = LOOSE if partition is None else self._hub().index_of(partition)

    def is_same(self, other: Target) -> bool:
        return isinstance(other, HubTarget) and other._hub_row is self._hub_row

    def places(self) -> list[tuple[str, FragmentKey]]:
        return [(share.store_name, share.log) for share in self._hub_row.shares]

    def _hub(self) -> EventHub:
        return self._hubs.hub(self._hub_row.description.path)

    def check_open(self) -> None:
        self._hub().check_status(sends=True)

    def row(self, payload: bytes) -> tuple[int, bytes, int]:
        event = event_of(payload)
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
        return index, event_record(event), size

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
