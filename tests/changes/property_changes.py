"""Every updatable property, on and off, out of the broker's own table: a new property is a new change, and one for
which no values are known here is an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Final

from busway.model.descriptions import PROPERTIES, DescribedProperty, PropertyKind
from busway.model.durations import FOREVER_MS
from busway.streams.hub_descriptions import (
    COMPACT,
    DELETE_OR_COMPACT,
    CaptureDescription,
    EventHubDescription,
    RetentionDescription,
)
from tests.changes.change import Administrator, Change, Step, Subject
from tests.changes.kinds import DESCRIBED_BY, HUB, KINDS, all_but, is_partitioned

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS

#: Two values each, so that one is never the usual one. Neither makes a message go that was to stay.
_VALUES: Final[dict[str, tuple[object, object]]] = {
    "LockDuration": (5 * _MINUTE_MS, _MINUTE_MS),
    "MaxSizeInMegabytes": (2_048, 1_024),
    "MaxMessageSizeInKilobytes": (2_048, 1_024),
    "DuplicateDetectionHistoryTimeWindow": (_HOUR_MS, 20 * _MINUTE_MS),
    "DefaultMessageTimeToLive": (_HOUR_MS, FOREVER_MS),
    "MaxDeliveryCount": (3, 2_000),
    "AutoDeleteOnIdle": (_HOUR_MS, FOREVER_MS),
    "UserMetadata": ("changed", "changed again"),
}
#: Names that mean more than one thing to try → the kinds that do not know each of them.
_STATUSES: Final[dict[str, tuple[str, ...]]] = {
    "Disabled": (),
    "SendDisabled": tuple(kind for kind in KINDS if kind.endswith("subscription")),
    "ReceiveDisabled": tuple(kind for kind in KINDS if kind.endswith("topic")),
}
_FORWARDS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
#: Kept and returned by hubs too.
_ALSO_OF_HUBS: Final = ("UserMetadata",)
_PREMIUM_ONLY: Final = ("MaxMessageSizeInKilobytes",)
_NOT_PARTITIONED_ON_PREMIUM: Final = "on Premium nothing is partitioned by itself"


class NoValues(Exception):
    """A property has been added to the broker and not to this file."""


def property_changes() -> list[Change]:
    """Of queues, topics and subscriptions, in the order of the broker's table."""
    entries: dict[str, DescribedProperty] = {}
    for table in PROPERTIES.values():
        entries.update({entry.name: entry for entry in table if not entry.fixed})
    return [change for entry in entries.values() for change in _changes_of(entry)]


def _changes_of(entry: DescribedProperty) -> list[Change]:
    impossible = _without(entry)
    if entry.name in _FORWARDS:
        return _forwarding(entry, impossible)
    if entry.name == "Status":
        return [_status(entry, status, without) for status, without in _STATUSES.items()]
    if entry.kind is PropertyKind.FLAG:
        values: tuple[object, object] = (True, False)
    elif entry.name in _VALUES:
        values = _VALUES[entry.name]
    else:
        raise NoValues(
            f"{entry.name}: which values shall be tried? Add two to tests/changes/property_changes.py."
        )
    sku = "Standard"
    if entry.name in _PREMIUM_ONLY:
        sku = "Premium"
        impossible.update({kind: _NOT_PARTITIONED_ON_PREMIUM for kind in KINDS if is_partitioned(kind)})
    needs = {"requires_duplicate_detection": False} if entry.name == "EnableExpress" else {}
    return [
        Change(
            entry.name,
            impossible,
            (_set_other(entry.field, values),),
            (_set_usual(entry.field),),
            sku=sku,
            needs=needs,
        )
    ]


def _without(entry: DescribedProperty) -> dict[str, str]:
    """The kinds that do not have the property."""
    lacking = {
        kind: f"it has no {entry.name}"
        for kind, described in DESCRIBED_BY.items()
        if entry not in PROPERTIES[described]
    }
    if entry.name not in _ALSO_OF_HUBS:
        lacking[HUB] = f"it has no {entry.name}"
    return lacking


def _status(entry: DescribedProperty, status: str, without: tuple[str, ...]) -> Change:
    return Change(
        f"{entry.name} {status}",
        {kind: f"it cannot be {status}" for kind in without},
        (_set(entry.field, status),),
        (_set_usual(entry.field),),
    )


def _forwarding(entry: DescribedProperty, impossible: Mapping[str, str]) -> list[Change]:
    """Whether it forwards usually or not: each of them sets, moves or removes it with messages on their way."""
    name, field = entry.name, entry.field
    first, second, none = _set_target(field, 0), _set_target(field, 1), _set(field, None)
    usual = (_set_usual(field),)
    return [
        Change(f"{name} set", impossible, (none, first), usual),
        Change(f"{name} moved", impossible, (first, second), usual),
        Change(f"{name} removed", impossible, (first, none), usual),
    ]


# -- steps


def _set(name: str, value: object) -> Step:
    async def step(administrator: Administrator, subject: Subject) -> None:
        await administrator.update(subject.path, **{name: value})

    return step


def _set_other(name: str, values: tuple[object, object]) -> Step:
    """To a value that it does not have usually."""

    async def step(administrator: Administrator, subject: Subject) -> None:
        value = values[0] if subject.usual(name) != values[0] else values[1]
        await administrator.update(subject.path, **{name: value})

    return step


def _set_usual(name: str) -> Step:
    async def step(administrator: Administrator, subject: Subject) -> None:
        await administrator.update(subject.path, **{name: subject.usual(name)})

    return step


def _set_target(name: str, place: int) -> Step:
    async def step(administrator: Administrator, subject: Subject) -> None:
        await administrator.update(subject.path, **{name: subject.targets[place]})

    return step


# -- hubs

#: What has no row of its own here → why.
_HUB_FIELDS_ELSEWHERE: Final = {
    "path": "an entity keeps its name",
    "created_at_ms": "set by the bus",
    "updated_at_ms": "set by the bus",
    "authorization_rules": "keys rotated",
    "status": "as all kinds",
    "user_metadata": "as all kinds",
    "retention": "its fields have rows",
}
_HUB_VALUES: Final[dict[str, tuple[object, object]]] = {
    "capture": (CaptureDescription(interval_s=60), None),
    "revoked_publishers": (("somebody", "else"), ()),
}
_RETENTIONS: Final[dict[str, Mapping[str, object]]] = {
    "cleanup_policy": {"cleanup_policy": DELETE_OR_COMPACT},
    "retention_hours": {"retention_hours": 1},
    "tombstone_retention_hours": {"tombstone_retention_hours": 1},
    "min_compaction_lag_minutes": {"cleanup_policy": COMPACT, "min_compaction_lag_minutes": 1},
    "partition_bytes_max": {"partition_bytes_max": 1 << 20},
}


def hub_changes() -> list[Change]:
    """Of event hubs, by the fields of their descriptions."""
    only = {kind: "only hubs have it" for kind in all_but(HUB)}
    made: list[Change] = []
    for entry in fields(EventHubDescription):
        if entry.name in _HUB_FIELDS_ELSEWHERE:
            continue
        if entry.name == "partition_count":  # H-3: more, never fewer
            made.append(Change("hub partition_count", only, (_set(entry.name, 6),), (), sku="Premium"))
            continue
        if entry.name not in _HUB_VALUES:
            raise NoValues(f"hub {entry.name}: which values shall be tried?")
        step = _set_other(entry.name, _HUB_VALUES[entry.name])
        made.append(Change(f"hub {entry.name}", only, (step,), (_set_usual(entry.name),)))
    for inner in fields(RetentionDescription):
        if inner.name not in _RETENTIONS:
            raise NoValues(f"hub retention {inner.name}: which values shall be tried?")
        changed = _set_retention(_RETENTIONS[inner.name])
        made.append(Change(f"hub retention {inner.name}", only, (changed,), (_set_usual("retention"),)))
    return made


def _set_retention(values: Mapping[str, object]) -> Step:
    async def step(administrator: Administrator, subject: Subject) -> None:
        usual = subject.usual("retention")
        assert isinstance(usual, RetentionDescription)
        # The values are those of the table above.
        await administrator.update(subject.path, retention=replace(usual, **values))  # type: ignore[arg-type]

    return step
