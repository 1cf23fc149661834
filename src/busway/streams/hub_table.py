"""Every event hub of the namespace: its rows, and its logs as soon as a store of theirs is in service.

Rows in the catalogue:

  eventhub:<key>             a hub: its description, where the logs of its partitions lie, its incarnation
  consumergroup:<key>/<key>  a consumer group of a hub; `$Default` has a row too

The rules of `catalogue_rows` hold: a format that goes up when older readers would misread a row, and keys of newer
versions that are kept.

Theory of operation. A hub is loaded with the partitions whose stores are in service. It stays when a store goes,
without those partitions, and they are made anew when the store is back: a failed store takes only its own down.

When a store has lost commits that it had reported (F4), readers may have seen events of those commits and keep
checkpoints behind them. A log that gave their numbers out once more would show them other events under numbers
that they have read, and so leave those out for them. So its next number steps ahead of everything that can have
been lost (`step_ahead`), and the gap is told in the server's log. Readers step over it as over one that compaction
has left. How much was lost is not known exactly: the count of commits beside the store is up to a second behind.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.namespace.namespace import StoreKeeper
from busway.model.entity_path import path_key
from busway.model.errors import BadArgument, BrokerError
from busway.model.json_rows import Json, integer_at, list_at, object_at, read_row, text_at, written_row
from busway.store.contract import FragmentKey, LogCounters
from busway.streams.capture import Captures
from busway.streams.event_hub import EventHub
from busway.streams.hub_descriptions import (
    ConsumerGroupDescription,
    EventHubDescription,
    group_json,
    group_of_json,
    hub_json,
    hub_of_json,
)
from busway.streams.partition_log import PartitionLog, log_name

HUB_PREFIX: Final = "eventhub:"
GROUP_PREFIX: Final = "consumergroup:"


@dataclass(frozen=True)
class LogShare:
    """Where the log of one partition lies."""

    store_name: str
    log: FragmentKey


@dataclass(frozen=True)
class HubRow:
    key: str  #: `path_key` of its path
    description: EventHubDescription
    shares: tuple[LogShare, ...]  #: by partition
    #: The catalogue's version at its creation: a name created again is another hub.
    incarnation: int

    @property
    def row_key(self) -> str:
        return HUB_PREFIX + self.key

    @property
    def store_names(self) -> list[str]:
        return list(dict.fromkeys(share.store_name for share in self.shares))

    def text(self, previous: str | None) -> str:
        nested: Json = {} if previous is None else json.loads(previous)["description"]
        nested.pop("CaptureDescription", None)  # it is said only where there is one
        known: Json = {
            "description": {**nested, **hub_json(self.description)},
            "logs": [{"store": share.store_name, "log": share.log} for share in self.shares],
            "incarnation": self.incarnation,
        }
        return written_row(known, previous)

    @classmethod
    def parse(cls, row_key: str, text: str) -> HubRow:
        with read_row(row_key, text) as data:
            shares = tuple(_share_of(entry) for entry in list_at(data, "logs"))
            hub = hub_of_json(object_at(data, "description"))
            return cls(row_key.removeprefix(HUB_PREFIX), hub, shares, integer_at(data, "incarnation"))


@dataclass(frozen=True)
class GroupRow:
    hub_key: str
    description: ConsumerGroupDescription

    @property
    def key(self) -> str:
        return path_key(self.description.name)

    @property
    def row_key(self) -> str:
        return f"{GROUP_PREFIX}{self.hub_key}/{self.key}"

    def text(self, previous: str | None) -> str:
        return written_row({"hub": self.description.hub_path, **group_json(self.description)}, previous)

    @classmethod
    def parse(cls, row_key: str, text: str) -> GroupRow:
        with read_row(row_key, text) as data:
            description = group_of_json(text_at(data, "hub"), data)
        return cls(path_key(description.hub_path), description)


def _share_of(data: object) -> LogShare:
    if not isinstance(data, dict):
        raise BadArgument("logs: each entry must be an object.")
    return LogShare(text_at(data, "store"), FragmentKey(integer_at(data, "log")))


def hub_rows(rows: Mapping[str, str]) -> list[HubRow]:
    return [HubRow.parse(key, text) for key, text in rows.items() if key.startswith(HUB_PREFIX)]


def group_rows(rows: Mapping[str, str]) -> list[GroupRow]:
    return [GroupRow.parse(key, text) for key, text in rows.items() if key.startswith(GROUP_PREFIX)]


#: No commit holds as many events: its batch is bounded in bytes, and the smallest record has about a hundred.
_EVENTS_PER_COMMIT: Final = 1 << 20
#: For what was committed since the count was written last.
_UNCOUNTED_COMMITS: Final = 16
#: Where commits may be missing that nobody can count.
_EVENTS_MIN: Final = 1 << 30
#: More than this is a file from long ago; numbers must stay below 2**53, which is what JavaScript can count.
_COMMITS_MAX: Final = 1 << 24


class HubTable:
    """Every event hub of the namespace: its rows, and its logs as soon as a store of theirs is in service."""

    def __init__(
        self,
        namespace: Callable[[], str],
        runtime: BrokerRuntime,
        keeper_of: Callable[[str], StoreKeeper],
        captures: Captures,
    ) -> None:
        #: Its name, which a catalogue may change.
        self._namespace = namespace
        self._runtime = runtime
        self._keeper_of = keeper_of
        self.captures = captures
        self.rows: dict[str, HubRow] = {}
        #: Hub → its consumer groups by key.
        self._groups: dict[str, dict[str, GroupRow]] = {}
        self._loaded: dict[str, EventHub] = {}

    # -- rows

    def put(self, row: HubRow) -> None:
        """A hub is new or has changed."""
        previous = self.rows.get(row.key)
        self.rows[row.key] = row
        hub = self._loaded.get(row.key)
        if hub is None:
            return
        hub.replace_description(row.description)
        for index in range(hub.partition_count, len(row.shares)):
            hub.add_partition(self._log(row, index))
        if previous is None or previous.description.capture != row.description.capture:
            for log in hub.logs():
                self._capture(row, log)

    def put_group(self, row: GroupRow) -> None:
        self._groups.setdefault(row.hub_key, {})[row.key] = row
        if row.hub_key in self._loaded:
            self._loaded[row.hub_key].add_group(row.key)

    def remove(self, row: HubRow, error: BrokerError) -> None:
        """The hub is gone: whoever holds it is evicted with `error`."""
        self.rows.pop(row.key, None)
        self._groups.pop(row.key, None)
        self._runtime.flows.forget(row.description.path)
        for share in row.shares:
            self._keeper_of(share.store_name).counters.pop(share.log, None)
        self.captures.forget(row.key)
        hub = self._loaded.pop(row.key, None)
        if hub is not None:
            hub.close(error)

    def remove_group(self, row: GroupRow, error: BrokerError) -> None:
        self._groups.get(row.hub_key, {}).pop(row.key, None)
        hub = self._loaded.get(row.hub_key)
        if hub is not None:
            hub.remove_group(row.key, error)

    def replace_all(
        self, hubs: Iterable[HubRow], groups: Iterable[GroupRow], gone: Callable[[str], BrokerError]
    ) -> None:
        """The catalogue was read anew: only what differs is touched."""
        wanted = {row.key: row for row in hubs}
        for row in list(self.rows.values()):
            fresh = wanted.get(row.key)
            if fresh is None or fresh.incarnation != row.incarnation:
                self.remove(row, gone(row.description.path))
        for row in wanted.values():
            if self.rows.get(row.key) != row:
                self.put(row)
        self._replace_groups({(row.hub_key, row.key): row for row in groups}, gone)

    def _replace_groups(
        self, wanted: Mapping[tuple[str, str], GroupRow], gone: Callable[[str], BrokerError]
    ) -> None:
        present = [row for groups in self._groups.values() for row in groups.values()]
        for row in present:
            if (row.hub_key, row.key) not in wanted:
                self.remove_group(row, gone(row.description.name))
        for row in wanted.values():
            self.put_group(row)

    def groups(self, hub_key: str) -> list[GroupRow]:
        """By name."""
        return [row for _, row in sorted(self._groups.get(hub_key, {}).items())]

    def group(self, hub_key: str, name: str) -> GroupRow | None:
        return self._groups.get(hub_key, {}).get(path_key(name))

    # -- hubs

    def hub(self, row: HubRow) -> EventHub:
        """With the partitions whose stores are there."""
        hub = self._loaded.get(row.key)
        if hub is None:
            logs = [self._log(row, index) for index in range(len(row.shares))]
            groups = [group.key for group in self.groups(row.key)]
            hub = self._loaded[row.key] = EventHub(row.description, logs, groups, self._runtime)
            for log in hub.logs():
                self._capture(row, log)
        return hub

    def _capture(self, row: HubRow, log: PartitionLog) -> None:
        self.captures.begin(self._namespace(), row.key, row.description, row.incarnation, log)

    def loaded(self) -> list[EventHub]:
        return list(self._loaded.values())

    def _log(self, row: HubRow, index: int) -> PartitionLog | None:
        share = row.shares[index]
        keeper = self._keeper_of(share.store_name)
        if not keeper.is_open:
            return None
        counters = keeper.counters[share.log]
        return PartitionLog(share.log, index, counters, keeper.store, row.description, self._runtime)

    # -- stores

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        return {
            share.log for row in self.rows.values() for share in row.shares if share.store_name == store_name
        }

    def lose_store(self, store_name: str, error: BrokerError) -> None:
        """What memory holds of its logs is worth nothing any more."""
        for row, index, hub in self._partitions_in(store_name):
            self.captures.end(row.key, index)
            hub.lose_partition(index, error)

    def regain_store(self, store_name: str) -> None:
        """Its hubs are loaded, used or not: time works on their logs too (retention, capture)."""
        self._step_over_lost(self._keeper_of(store_name))
        for row, index, hub in self._partitions_in(store_name):
            log = self._log(row, index)
            if log is not None:
                hub.regain_partition(index, log)
                self._capture(row, log)
        for row in self.rows.values():
            if row.key not in self._loaded and store_name in row.store_names:
                self.hub(row)

    def _step_over_lost(self, keeper: StoreKeeper) -> None:
        """Written at once: the next opening does not know of the loss any more."""
        lost_commits = keeper.store.lost_commits
        if lost_commits == 0:
            return
        batch = keeper.store.batch()
        for row in self.rows.values():
            for index, share in enumerate(row.shares):
                if share.store_name == keeper.name:
                    counters = keeper.counters[share.log]
                    step_ahead(log_name(row.description.path, index), LogCounters(counters), lost_commits)
                    batch.counters[share.log] = counters

    def _partitions_in(self, store_name: str) -> list[tuple[HubRow, int, EventHub]]:
        return [
            (self.rows[key], index, hub)
            for key, hub in self._loaded.items()
            for index, share in enumerate(self.rows[key].shares)
            if share.store_name == store_name
        ]


_log = logging.getLogger(__name__)


def step_ahead(name: str, counters: LogCounters, lost_commits: int) -> None:
    """Puts a log's next number behind all that were lost. `name`: of the partition, for people."""
    lost_from = counters.next_number
    is_empty = counters.first_number >= lost_from
    events = (min(lost_commits, _COMMITS_MAX) + _UNCOUNTED_COMMITS) * _EVENTS_PER_COMMIT
    counters.next_number += max(events, _EVENTS_MIN)
    if is_empty:
        counters.first_number = counters.next_number
    _log.warning(
        "The store of %s has lost commits: events with numbers from %d on may be lost. The numbers %d to %d are not"
        " given out again; the next event gets %d.",
        name,
        lost_from,
        lost_from,
        counters.next_number - 1,
        counters.next_number,
    )
