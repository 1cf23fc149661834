"""Who reads a partition, by consumer group (H-23…H-25).

A group has either readers without an epoch, as many as the limit allows, each of which gets all events; or one reader
with an epoch. One with an epoch takes the partition over from everybody whose epoch is not higher than its own. A
reader without one never takes over.
"""

from __future__ import annotations

from busway.broker.entity_path import path_key, shown
from busway.broker.errors import BrokerError, ReceiverStolen, TooManyReaders
from busway.streams.cursor import EventReader


class Readers:
    """Of one partition."""

    __slots__ = ("_groups", "_readers_max")

    def __init__(self, readers_max: int) -> None:
        self._readers_max = readers_max
        #: Group → its readers, the longest there first.
        self._groups: dict[str, dict[EventReader, None]] = {}

    def add(self, group: str, reader: EventReader) -> None:
        """Those who must give way are evicted. Raises ReceiverStolen, TooManyReaders: then nothing has changed."""
        key = path_key(group)
        present = self._groups.get(key, {})
        if reader.epoch < 0:
            self._check_without_epoch(present)
            self._groups.setdefault(key, {})[reader] = None
            return
        _check_epoch(present, reader)
        self._groups[key] = {reader: None}
        for other in present:
            other.evict(_taken_over(other, reader))

    def remove(self, group: str, reader: EventReader) -> None:
        """Idempotent."""
        key = path_key(group)
        present = self._groups.get(key)
        if present is not None:
            present.pop(reader, None)
            if not present:
                del self._groups[key]

    def forget(self, reader: EventReader) -> None:
        """In whatever group it is."""
        for group in list(self._groups):
            self.remove(group, reader)

    def of_group(self, group: str) -> list[EventReader]:
        return list(self._groups.get(path_key(group), ()))

    def all(self) -> list[EventReader]:
        return [reader for present in self._groups.values() for reader in present]

    def evict_group(self, group: str, error: BrokerError) -> None:
        """The consumer group is gone."""
        evicted = self._groups.pop(path_key(group), {})
        for reader in evicted:
            reader.evict(error)

    def clear(self) -> None:
        """Whoever calls it evicts them."""
        self._groups.clear()

    def _check_without_epoch(self, present: dict[EventReader, None]) -> None:
        for other in present:
            if other.epoch >= 0:
                raise ReceiverStolen(
                    f"At least one receiver for the endpoint is created with epoch of '{other.epoch}', and so"
                    " non-epoch receiver is not allowed. Either reconnect with a higher epoch, or make sure all"
                    " epoch receivers are closed or disconnected."
                )
        if len(present) >= self._readers_max:
            raise TooManyReaders(
                "Exceeded the maximum number of allowed receivers per partition in a consumer group which is"
                f" {self._readers_max}."
            )


def _check_epoch(present: dict[EventReader, None], reader: EventReader) -> None:
    for other in present:
        if other.epoch > reader.epoch:
            raise ReceiverStolen(
                f"Receiver {_name(other)} with a higher epoch '{other.epoch}' already exists. Receiver"
                f" {_name(reader)} with epoch {reader.epoch} cannot be created. Make sure you are creating receiver"
                " with increasing epoch value to ensure connectivity, or ensure all old epoch receivers are closed"
                " or disconnected."
            )


def _taken_over(old: EventReader, new: EventReader) -> ReceiverStolen:
    return ReceiverStolen(
        f"New receiver {_name(new)} with higher epoch of '{new.epoch}' is created hence current receiver"
        f" {_name(old)} with epoch '{old.epoch}' is getting disconnected. If you are recreating the receiver, make"
        " sure a higher epoch is used."
    )


def _name(reader: EventReader) -> str:
    return shown(reader.name or "nil")
