"""`busway eventhub create|show|list|update|delete` and `busway eventhub group create|list|delete`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from busway.cli.failures import WrongCall
from busway.cli.output import example, print_json, print_table, shown
from busway.cli.target import CaFileOption, ConnectionStringOption, DataOption, JsonOption, administration

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The event hub's name.")]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group's name.")]
PartitionsOption = Annotated[
    int | None, typer.Option("--partitions", min=1, metavar="N", help="How many; fixed at creation.")
]
RetentionOption = Annotated[
    int | None,
    typer.Option("--retention-hours", min=-1, metavar="N", help="How long events stay; -1 is for ever."),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        "--partition-size",
        min=0,
        metavar="BYTES",
        help="Above it a partition's oldest events leave; 0: never.",
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--cleanup-policy",
        metavar="WHICH",
        help="Delete by age, Compact to the last event of each key, or DeleteOrCompact.",
    ),
]
LagOption = Annotated[
    int | None,
    typer.Option("--compaction-lag-minutes", min=0, metavar="N", help="Younger events are not compacted."),
]
TombstoneOption = Annotated[
    int | None,
    typer.Option("--tombstone-hours", min=0, metavar="N", help="How long the mark of a deleted key stays."),
]
StatusOption = Annotated[
    str | None,
    typer.Option("--status", metavar="WHICH", help="Active, Disabled, SendDisabled or ReceiveDisabled."),
]
MetadataOption = Annotated[str | None, typer.Option("--user-metadata", metavar="TEXT", help="Free text.")]
CaptureOption = Annotated[
    str | None,
    typer.Option(
        "--capture",
        metavar="FORMAT",
        help="Write events to files: Avro, AvroDeflate or Parquet; none stops it.",
    ),
]
CaptureIntervalOption = Annotated[
    int | None,
    typer.Option(
        "--capture-interval", min=60, max=900, metavar="SECONDS", help="The longest window of a file."
    ),
]
CaptureSizeOption = Annotated[
    int | None,
    typer.Option("--capture-size", min=10_485_760, metavar="BYTES", help="A file ends above this size."),
]
CaptureDirectoryOption = Annotated[
    str | None,
    typer.Option("--capture-directory", metavar="NAME", help="Below the server's capture directory."),
]
SkipEmptyOption = Annotated[
    bool | None,
    typer.Option(
        "--skip-empty/--no-skip-empty", help="No files for windows without events.", show_default=False
    ),
]

_COLUMNS: Final = ("NAME", "STATUS", "PARTITIONS", "RETENTION-HOURS", "GROUPS")
_PARTITION_COLUMNS: Final = {
    "PARTITION": "partition",
    "STORE": "store",
    "HEALTH": "health",
    "FIRST": "beginSequenceNumber",
    "LAST": "lastSequenceNumber",
    "EVENTS": "events",
    "BYTES": "sizeInBytes",
}

family = typer.Typer(
    help="Create, show, list, change and delete event hubs and their consumer groups.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
groups = typer.Typer(
    help="Create, list and delete consumer groups.", no_args_is_help=True, rich_markup_mode=None
)
family.add_typer(groups, name="group", epilog=example("busway eventhub group create clicks billing"))


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="eventhub", epilog=example("busway eventhub create clicks --partitions 8"))


@family.command(
    "create",
    epilog=example("busway eventhub create clicks --partitions 8 --retention-hours 24 --group billing"),
)
def create(
    name: NameArgument,
    partitions: PartitionsOption = None,
    retention_hours: RetentionOption = None,
    partition_size: SizeOption = None,
    cleanup_policy: PolicyOption = None,
    compaction_lag_minutes: LagOption = None,
    tombstone_hours: TombstoneOption = None,
    status: StatusOption = None,
    user_metadata: MetadataOption = None,
    capture: CaptureOption = None,
    capture_interval: CaptureIntervalOption = None,
    capture_size: CaptureSizeOption = None,
    capture_directory: CaptureDirectoryOption = None,
    skip_empty: SkipEmptyOption = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="A consumer group besides $Default; may be repeated."),
    ] = None,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an event hub. It has 4 partitions and keeps events for 7 days unless you say otherwise."""
    properties = _given({"PartitionCount": partitions, "Status": status, "UserMetadata": user_metadata})
    retention = _retention(
        retention_hours, partition_size, cleanup_policy, compaction_lag_minutes, tombstone_hours
    )
    capturing = _capture(capture, capture_interval, capture_size, capture_directory, skip_empty)
    with administration(connection_string, ca_file, data) as client:
        made = client.hubs.create(name, {**properties, **_nested(retention, capturing, capture)}, group or ())
    _tell(made, f"Event hub {name} is created.", as_json)


@family.command("update", epilog=example("busway eventhub update clicks --retention-hours 48"))
def update(
    name: NameArgument,
    retention_hours: RetentionOption = None,
    partition_size: SizeOption = None,
    cleanup_policy: PolicyOption = None,
    compaction_lag_minutes: LagOption = None,
    tombstone_hours: TombstoneOption = None,
    status: StatusOption = None,
    user_metadata: MetadataOption = None,
    capture: CaptureOption = None,
    capture_interval: CaptureIntervalOption = None,
    capture_size: CaptureSizeOption = None,
    capture_directory: CaptureDirectoryOption = None,
    skip_empty: SkipEmptyOption = None,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change properties of an event hub; the others stay as they are."""
    properties = _given({"Status": status, "UserMetadata": user_metadata})
    retention = _retention(
        retention_hours, partition_size, cleanup_policy, compaction_lag_minutes, tombstone_hours
    )
    capturing = _capture(capture, capture_interval, capture_size, capture_directory, skip_empty)
    if not (properties or retention or capturing or capture):
        raise WrongCall("Nothing to change: give at least one property, for example --retention-hours 48.")
    with administration(connection_string, ca_file, data) as client:
        changed = client.hubs.update(name, {**properties, **_nested(retention, capturing, capture)})
    _tell(changed, f"Event hub {name} is changed.", as_json)


@family.command("show", epilog=example("busway eventhub show clicks --partitions"))
def show(
    name: NameArgument,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Show each partition: store, health, numbers, size.")
    ] = False,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an event hub's properties, or its partitions."""
    with administration(connection_string, ca_file, data) as client:
        found: object = client.hubs.partitions(name) if partitions else client.hubs.get(name)
    if as_json:
        print_json(_without_keys(found) if isinstance(found, dict) else found)
    elif isinstance(found, dict):
        for key, value in _without_keys(found).items():
            typer.echo(f"{key}: {shown(value)}")
    elif isinstance(found, list):
        rows = [[entry.get(key) for key in _PARTITION_COLUMNS.values()] for entry in found]
        print_table(tuple(_PARTITION_COLUMNS), rows)


@family.command("list", epilog=example("busway eventhub list"))
def list_hubs(
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all event hubs."""
    with administration(connection_string, ca_file, data) as client:
        hubs = client.hubs.list()
    if as_json:
        print_json([_without_keys(hub) for hub in hubs])
    else:
        print_table(_COLUMNS, [_row(hub) for hub in hubs])


@family.command("delete", epilog=example("busway eventhub delete clicks"))
def delete(
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Delete an event hub with all its events."""
    with administration(connection_string, ca_file, data) as client:
        client.hubs.delete(name)
    typer.echo(f"Event hub {name} is deleted.")


@groups.command("create", epilog=example("busway eventhub group create clicks billing"))
def create_group(
    hub: NameArgument,
    name: GroupArgument,
    user_metadata: MetadataOption = None,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a consumer group."""
    with administration(connection_string, ca_file, data) as client:
        made = client.hubs.create_group(hub, name, _given({"UserMetadata": user_metadata}))
    _tell(made, f"Consumer group {name} of {hub} is created.", as_json)


@groups.command("list", epilog=example("busway eventhub group list clicks"))
def list_groups(
    hub: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the consumer groups of an event hub."""
    with administration(connection_string, ca_file, data) as client:
        found = client.hubs.groups(hub)
    if as_json:
        print_json(list(found))
    else:
        rows = [[group.get(key) for key in ("Name", "UserMetadata", "CreatedAt")] for group in found]
        print_table(("NAME", "METADATA", "CREATED"), rows)


@groups.command("delete", epilog=example("busway eventhub group delete clicks billing"))
def delete_group(
    hub: NameArgument,
    name: GroupArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Delete a consumer group; its readers are disconnected."""
    with administration(connection_string, ca_file, data) as client:
        client.hubs.delete_group(hub, name)
    typer.echo(f"Consumer group {name} of {hub} is deleted.")


def _retention(
    hours: int | None, size: int | None, policy: str | None, lag: int | None, tombstone: int | None
) -> dict[str, object]:
    return _given(
        {
            "RetentionTimeInHours": hours,
            "PartitionSizeInBytes": size,
            "CleanupPolicy": policy,
            "MinCompactionLagTimeInMinutes": lag,
            "TombstoneRetentionTimeInHours": tombstone,
        }
    )


def _capture(
    form: str | None, interval: int | None, size: int | None, directory: str | None, skip_empty: bool | None
) -> dict[str, object]:
    if form is not None and form.lower() == "none":
        form = None
    given = _given(
        {
            "Encoding": form,
            "IntervalInSeconds": interval,
            "SizeLimitInBytes": size,
            "SkipEmptyArchives": skip_empty,
        }
    )
    if directory is not None:
        given["Destination"] = {"Name": directory}
    return given


def _nested(retention: dict[str, object], capture: dict[str, object], form: str | None) -> dict[str, object]:
    sent: dict[str, object] = {"RetentionDescription": retention} if retention else {}
    if form is not None and form.lower() == "none":
        sent["CaptureDescription"] = None
    elif capture:
        sent["CaptureDescription"] = capture
    return sent


def _object(present: Mapping[str, object], key: str) -> dict[str, object]:
    found = present.get(key)
    return found if isinstance(found, dict) else {}


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _without_keys(hub: Mapping[str, object]) -> dict[str, object]:
    """Keys stay behind: `busway key list --show-keys` has them."""
    rules = hub.get("AuthorizationRules")
    names = [rule.get("Name") for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
    return {**hub, "AuthorizationRules": names}


def _row(hub: Mapping[str, object]) -> Sequence[object]:
    retention, names = _object(hub, "RetentionDescription"), hub.get("ConsumerGroups")
    return (
        hub.get("Name"),
        hub.get("Status"),
        hub.get("PartitionCount"),
        retention.get("RetentionTimeInHours"),
        ", ".join(str(name) for name in names) if isinstance(names, list) else "",
    )


def _tell(made: Mapping[str, object], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(_without_keys(made))
    else:
        typer.echo(sentence)
