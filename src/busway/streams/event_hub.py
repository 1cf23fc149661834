"""An event hub: its partitions, its consumer groups, and the links that hold it open. What gateways work with.

A partition whose store is away is missing for as long (`None`). Events without a key go elsewhere meanwhile (H-11);
those with a key or for a certain partition are refused (H-12).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from busway.broker.fragment.outlet import Attachment
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.namespace.namespace import Attachments
from busway.message.event_record import Event
from busway.model.entity_path import path_key, shown
from busway.model.errors import (
    ArgumentOutOfRange,
    BrokerError,
    EntityDisabled,
    EntityUpdated,
    InvalidOperation,
    PublisherRevoked,
    ServerBusy,
)
from busway.model.flow import FlowCounts
from busway.streams.hub_descriptions import EventHubDescription
from busway.streams.key_hash import PartitionIndex, partition_of_key
from busway.streams.partition_log import AppendDone, LogSettings, PartitionLog

#: Keys whose partition is remembered, and how long each may be.
_KNOWN_KEYS_MAX: Final = 512
_KNOWN_KEY_CHARACTERS_MAX: Final = 128


class EventHub:
    """An entity of the namespace. `description` is frozen and replaced on update."""

    def __init__(
        self,
        description: EventHubDescription,
        logs: Iterable[PartitionLog | None],
        groups: Iterable[str],
        runtime: BrokerRuntime,
    ) -> None:
        self.path = description.path
        self.description = description
        self._runtime = runtime
        self._settings = LogSettings(description, runtime.limits)
        self.flow: FlowCounts = runtime.flows.of_fragment(description.path)
        self._logs = list(logs)
        self._groups = {path_key(group) for group in groups}
        self._revoked = _names(description)
        self._attachments = Attachments()
        #: Of keys that came lately.
        self._index_of: dict[str, PartitionIndex] = {}
        #: The partition that took the last events without a key.
        self._turn = -1
        for log in self._logs:
            if log is not None:
                log.start()

    # -- partitions

    @property
    def partition_count(self) -> int:
        return len(self._logs)

    def partition_ids(self) -> list[str]:
        """H-4: "0" and so on."""
        return [str(index) for index in range(len(self._logs))]

    def partition(self, partition_id: str) -> PartitionLog:
        """By the name that clients give it. Raises ArgumentOutOfRange (H-12), ServerBusy while its store is away."""
        return self.partition_at(self.index_of(partition_id))

    def partition_at(self, index: PartitionIndex) -> PartitionLog:
        """Raises ServerBusy while its store is away."""
        log = self._logs[index]
        if log is None or not log.is_usable():
            raise self._away(index)
        return log

    def logs(self) -> list[PartitionLog]:
        """Those whose stores are there."""
        return [log for log in self._logs if log is not None]

    def present_partition(self, index: int) -> PartitionLog | None:
        """None while its store is away."""
        return self._logs[index]

    def index_of_key(self, key: str) -> PartitionIndex:
        """H-10: the partition that events with this key go to."""
        index = self._index_of.get(key)
        if index is None:
            index = partition_of_key(key, len(self._logs))
            if len(key) <= _KNOWN_KEY_CHARACTERS_MAX:
                if len(self._index_of) >= _KNOWN_KEYS_MAX:
                    self._index_of.clear()
                self._index_of[key] = index
        return index

    def index_of(self, partition_id: str) -> PartitionIndex:
        """Raises ArgumentOutOfRange (H-12)."""
        if partition_id.isascii() and partition_id.isdigit() and len(partition_id) <= 9:
            index = int(partition_id)
            if index < len(self._logs) and str(index) == partition_id:
                return PartitionIndex(index)
        raise ArgumentOutOfRange(
            "The specified partition is invalid for an EventHub partition sender or receiver."
            f" It should be between 0 and {len(self._logs) - 1}."
        )

    def _away(self, index: PartitionIndex) -> ServerBusy:
        return ServerBusy.without(f"The partition {index} of '{self.path}'")

    # -- publishing

    def publish(self, events: list[Event], done: AppendDone) -> None:
        """Without a key: all of them to the next partition that takes them (H-11, H-17)."""
        log = self._in_turn()
        if log is None:
            done(ServerBusy(f"No partition of '{self.path}' is available just now. Please try again."))
        else:
            log.append(events, done)

    def publish_keyed(self, key: str, events: list[Event], done: AppendDone) -> None:
        """H-10: to the partition of the key, which must be there."""
        index = self.index_of_key(key)
        log = self._logs[index]
        if log is None:
            done(self._away(index))
        else:
            log.append(events, done)

    def _in_turn(self) -> PartitionLog | None:
        """One that refuses, for it to say why, when all do; a slow one only when there is no other."""
        count = len(self._logs)
        slow, refusing = -1, -1
        for step in range(1, count + 1):
            index = (self._turn + step) % count
            log = self._logs[index]
            if log is None or not log.is_usable():
                continue
            if not log.takes_events():
                refusing = index
            elif not log.store.is_slow():
                self._turn = index
                return log
            elif slow < 0:
                slow = index
        chosen = slow if slow >= 0 else refusing
        if chosen < 0:
            return None
        self._turn = chosen
        return self._logs[chosen]

    def check_status(self, *, sends: bool) -> None:
        """Raises EntityDisabled."""
        if not (self._settings.allows_send if sends else self._settings.allows_receive):
            raise EntityDisabled

    def is_congested(self) -> bool:
        """A store of its partitions is writing at its limit: whoever sends should wait a little."""
        return any(log.store.is_congested() for log in self.logs())

    def check_publisher(self, name: str) -> None:
        """Raises PublisherRevoked (H-13)."""
        if path_key(name) in self._revoked:
            raise PublisherRevoked(f"The publisher {shown(name)} of '{self.path}' has been revoked.")

    # -- reading

    def has_group(self, name: str) -> bool:
        return path_key(name) in self._groups

    def add_group(self, name: str) -> None:
        self._groups.add(path_key(name))

    def remove_group(self, name: str, error: BrokerError) -> None:
        """Its readers are evicted."""
        self._groups.discard(path_key(name))
        for log in self.logs():
            self._attachments.discard_all(log.readers.of_group(name))
            log.readers.evict_group(name, error)

    # -- links

    def attach(self, attachment: Attachment, *, sends: bool) -> None:
        """Registers a link so that it is evicted when the hub changes under it. Raises EntityDisabled."""
        if not (self._settings.allows_send if sends else self._settings.allows_receive):
            raise EntityDisabled
        self._attachments.add(attachment, sends=sends)

    def detach(self, attachment: Attachment) -> None:
        self._attachments.discard(attachment)

    def close(self, error: BrokerError) -> None:
        """The hub is gone."""
        for index in range(len(self._logs)):
            self.lose_partition(index, error)
        self._attachments.evict(error)

    # -- changes

    def replace_description(self, description: EventHubDescription) -> None:
        """H-21: whoever holds the hub must attach again."""
        if description == self.description:
            return
        self.description = description
        self._settings = LogSettings(description, self._runtime.limits)
        self._revoked = _names(description)
        for log in self.logs():
            log.replace_description(description)
        if not self._settings.allows_send:
            self._attachments.evict(EntityDisabled(), sends=True)
        error = EntityUpdated() if self._settings.allows_receive else EntityDisabled()
        for log in self.logs():
            self._evict_readers(log, error)
        self._attachments.evict(error, sends=False)
        self._attachments.evict(EntityUpdated())

    def add_partition(self, log: PartitionLog | None) -> None:
        """H-3: one more behind the last."""
        self._logs.append(log)
        self._index_of.clear()
        if log is not None:
            log.start()

    def lose_partition(self, index: int, error: BrokerError) -> None:
        """Its store failed: those who read it are evicted."""
        log = self._logs[index]
        if log is not None:
            self._logs[index] = None
            self._attachments.discard_all(log.readers.all())
            log.close(error)

    def regain_partition(self, index: int, log: PartitionLog) -> None:
        """Its store is back."""
        present = self._logs[index]
        if present is not None:
            present.close(self._away(PartitionIndex(index)))
        self._logs[index] = log
        log.start()

    def _evict_readers(self, log: PartitionLog, error: BrokerError) -> None:
        self._attachments.discard_all(log.readers.all())
        log.evict(error)


def _names(description: EventHubDescription) -> frozenset[str]:
    return frozenset(path_key(name) for name in description.revoked_publishers)


def put_publisher(events: list[Event], publisher: str) -> None:
    """The publisher is the key of everything it sends, and readers see who it was. Raises InvalidOperation for an
    event with another key."""
    for event in events:
        if event.partition_key is None:
            event.set_partition_key(publisher)
        elif event.partition_key != publisher:
            raise InvalidOperation(
                "A publisher's name is the partition key of its events: they cannot have another one."
            )
        event.set_publisher(publisher)
