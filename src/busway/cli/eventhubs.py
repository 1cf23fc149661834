"""`busway eventhub create|update|show|list|delete` and `busway eventhub group create|list|delete`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from busway.cli.entity_family import (
    ChangeVerb,
    Client,
    Deletion,
    EntityFamily,
    Given,
    Listing,
    Names,
    Parts,
    Show,
    option,
)

if TYPE_CHECKING:
    from busway.client.administration import Json

_PARTITION_COLUMNS: Final = {
    "PARTITION": "partition",
    "STORE": "store",
    "HEALTH": "health",
    "FIRST": "beginSequenceNumber",
    "LAST": "lastSequenceNumber",
    "EVENTS": "events",
    "BYTES": "sizeInBytes",
}
_METADATA: Final = option("user_metadata", str | None, "--user-metadata", metavar="TEXT", help="Free text.")
_PARTITIONS: Final = option(
    "partitions", int | None, "--partitions", min=1, metavar="N", help="How many; fixed at creation."
)
_GROUPS: Final = option(
    "group",
    list[str] | None,
    "--group",
    metavar="NAME",
    help="A consumer group besides $Default; may be repeated.",
)
_CHANGEABLE: Final = (
    option(
        "retention_hours",
        int | None,
        "--retention-hours",
        min=-1,
        metavar="N",
        help="How long events stay; -1 is for ever.",
    ),
    option(
        "partition_size",
        int | None,
        "--partition-size",
        min=0,
        metavar="BYTES",
        help="Above it a partition's oldest events leave; 0: never.",
    ),
    option(
        "cleanup_policy",
        str | None,
        "--cleanup-policy",
        metavar="WHICH",
        help="Delete by age, Compact to the last event of each key, or DeleteOrCompact.",
    ),
    option(
        "compaction_lag_minutes",
        int | None,
        "--compaction-lag-minutes",
        min=0,
        metavar="N",
        help="Younger events are not compacted.",
    ),
    option(
        "tombstone_hours",
        int | None,
        "--tombstone-hours",
        min=0,
        metavar="N",
        help="How long the mark of a deleted key stays.",
    ),
    option(
        "status",
        str | None,
        "--status",
        metavar="WHICH",
        help="Active, Disabled, SendDisabled or ReceiveDisabled.",
    ),
    _METADATA,
    option(
        "capture",
        str | None,
        "--capture",
        metavar="FORMAT",
        help="Write events to files: Avro, AvroDeflate or Parquet; none stops it.",
    ),
    option(
        "capture_interval",
        int | None,
        "--capture-interval",
        min=60,
        max=900,
        metavar="SECONDS",
        help="The longest window of a file.",
    ),
    option(
        "capture_size",
        int | None,
        "--capture-size",
        min=10_485_760,
        metavar="BYTES",
        help="A file ends above this size.",
    ),
    option(
        "capture_directory",
        str | None,
        "--capture-directory",
        metavar="NAME",
        help="Below the server's capture directory.",
    ),
    option(
        "skip_empty",
        bool | None,
        "--skip-empty/--no-skip-empty",
        help="No files for windows without events.",
        show_default=False,
    ),
)
_RETENTION: Final = "RetentionDescription"
_CAPTURE: Final = "CaptureDescription"
#: Where the value of each option stands in what is sent.
_PLACES: Final = {
    "partitions": ("PartitionCount",),
    "group": ("ConsumerGroups",),
    "status": ("Status",),
    "user_metadata": ("UserMetadata",),
    "retention_hours": (_RETENTION, "RetentionTimeInHours"),
    "partition_size": (_RETENTION, "PartitionSizeInBytes"),
    "cleanup_policy": (_RETENTION, "CleanupPolicy"),
    "compaction_lag_minutes": (_RETENTION, "MinCompactionLagTimeInMinutes"),
    "tombstone_hours": (_RETENTION, "TombstoneRetentionTimeInHours"),
    "capture": (_CAPTURE, "Encoding"),
    "capture_interval": (_CAPTURE, "IntervalInSeconds"),
    "capture_size": (_CAPTURE, "SizeLimitInBytes"),
    "capture_directory": (_CAPTURE, "Destination", "Name"),
    "skip_empty": (_CAPTURE, "SkipEmptyArchives"),
}


def register(app: typer.Typer) -> None:
    GROUP.register(HUB.register(app))


def _wish(names: Names, given: Given) -> "Json":
    del names
    wish: dict[str, Any] = {}
    for parameter, value in given.items():
        *folders, last = _PLACES[parameter]
        inside = wish
        for folder in folders:
            inside = inside.setdefault(folder, {})
        inside[last] = value
    if given.get("capture", "").lower() == "none":
        wish[_CAPTURE] = None
    return wish


def _create(client: Client, names: Names, wish: "Json") -> "Json":
    groups = wish.get("ConsumerGroups")
    return client.hubs.create(names[0], wish, groups if isinstance(groups, list) else ())


def _create_group(client: Client, names: Names, wish: "Json") -> "Json":
    """As JSON a new group has always had a list of rules like a hub, an empty one."""
    return _as_object(client.hubs.create_group(names[0], names[1], wish))


def _as_object(hub: "Json") -> "Json":
    """Keys stay behind: `busway key list --show-keys` has them."""
    rules = hub.get("AuthorizationRules")
    names = [rule.get("Name") for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
    return {**hub, "AuthorizationRules": names}


def _row(hub: "Json") -> Sequence[object]:
    retention, groups = hub.get(_RETENTION), hub.get("ConsumerGroups")
    return (
        hub.get("Name"),
        hub.get("Status"),
        hub.get("PartitionCount"),
        retention.get("RetentionTimeInHours") if isinstance(retention, dict) else None,
        ", ".join(str(name) for name in groups) if isinstance(groups, list) else "",
    )


HUB: "Final[EntityFamily[Json, Json]]" = EntityFamily(
    word="eventhub",
    about="Create, show, list, change and delete event hubs and their consumer groups.",
    example="busway eventhub create clicks --partitions 8",
    subject="Event hub {name}",
    arguments={"name": ("NAME", "The event hub's name.")},
    as_object=_as_object,
    create=ChangeVerb(
        "Create an event hub. It has 4 partitions and keeps events for 7 days unless you say otherwise.",
        "busway eventhub create clicks --partitions 8 --retention-hours 24 --group billing",
        (_PARTITIONS, *_CHANGEABLE, _GROUPS),
        _wish,
        _create,
    ),
    update=ChangeVerb(
        "Change properties of an event hub; the others stay as they are.",
        "busway eventhub update clicks --retention-hours 48",
        _CHANGEABLE,
        _wish,
        lambda client, names, wish: client.hubs.update(names[0], wish),
        hint="--retention-hours 48",
    ),
    show=Show(
        "Show an event hub's properties, or its partitions.",
        "busway eventhub show clicks --partitions",
        lambda client, names: client.hubs.get(*names),
        Parts(
            "--partitions",
            "Show each partition: store, health, numbers, size.",
            lambda client, names: client.hubs.partitions(*names),
            _PARTITION_COLUMNS,
        ),
    ),
    listing=Listing(
        "List all event hubs.",
        "busway eventhub list",
        lambda client, _: client.hubs.list(),
        ("NAME", "STATUS", "PARTITIONS", "RETENTION-HOURS", "GROUPS"),
        _row,
    ),
    deletion=Deletion(
        "Delete an event hub with all its events.",
        "busway eventhub delete clicks",
        lambda client, names: client.hubs.delete(*names),
    ),
)

GROUP: "Final[EntityFamily[Json, Json]]" = EntityFamily(
    word="group",
    about="Create, list and delete consumer groups.",
    example="busway eventhub group create clicks billing",
    subject="Consumer group {name} of {hub}",
    arguments={"hub": ("NAME", "The event hub's name."), "name": ("GROUP", "The consumer group's name.")},
    as_object=lambda group: group,
    create=ChangeVerb(
        "Create a consumer group.",
        "busway eventhub group create clicks billing",
        (_METADATA,),
        _wish,
        _create_group,
    ),
    listing=Listing(
        "List the consumer groups of an event hub.",
        "busway eventhub group list clicks",
        lambda client, names: client.hubs.groups(*names),
        ("NAME", "METADATA", "CREATED"),
        lambda group: [group.get(key) for key in ("Name", "UserMetadata", "CreatedAt")],
    ),
    deletion=Deletion(
        "Delete a consumer group; its readers are disconnected.",
        "busway eventhub group delete clicks billing",
        lambda client, names: client.hubs.delete_group(*names),
    ),
)
