"""What an event hub and its consumer groups are, as users set and read them (H-2…H-6, H-40).

Descriptions are frozen; an update makes a new one. The JSON forms below are those of the management route, of the
catalogue and of config files: a property has one name everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway.model.descriptions import (
    ACTIVE_STATUS,
    AuthorizationRule,
    Json,
    integer_at,
    list_at,
    rule_json,
    rules_of_json,
    text_at,
)
from busway.model.errors import BadArgument

DELETE: Final = "Delete"
COMPACT: Final = "Compact"
DELETE_OR_COMPACT: Final = "DeleteOrCompact"
CLEANUP_POLICIES: Final = (DELETE, COMPACT, DELETE_OR_COMPACT)

AVRO: Final = "Avro"
AVRO_DEFLATE: Final = "AvroDeflate"
PARQUET: Final = "Parquet"
ENCODINGS: Final = (AVRO, AVRO_DEFLATE, PARQUET)

#: H-5: it always exists.
DEFAULT_GROUP: Final = "$Default"
#: H-41
NAME_FORMAT_DEFAULT: Final = (
    "{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}"
)


@dataclass(frozen=True)
class RetentionDescription:
    cleanup_policy: str = DELETE
    retention_hours: int = 7 * 24  #: -1 = for ever
    #: How long a compacted hub keeps the mark that a key is gone.
    tombstone_retention_hours: int = 24
    #: Younger events are not compacted away.
    min_compaction_lag_minutes: int = 0
    #: Ours: the oldest events of a partition leave above this size; 0 = never.
    partition_bytes_max: int = 0


@dataclass(frozen=True)
class CaptureDescription:
    enabled: bool = True
    encoding: str = AVRO
    interval_s: int = 300
    size_limit_bytes: int = 314_572_800
    skip_empty_archives: bool = False
    #: A directory below the server's capture directory.
    destination: str = ""
    name_format: str = NAME_FORMAT_DEFAULT


@dataclass(frozen=True)
class EventHubDescription:
    path: str
    partition_count: int = 4
    retention: RetentionDescription = field(default_factory=RetentionDescription)
    status: str = ACTIVE_STATUS
    user_metadata: str | None = None
    capture: CaptureDescription | None = None
    #: H-13: publishers that may not send any more.
    revoked_publishers: tuple[str, ...] = ()
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    created_at_ms: int = 0
    updated_at_ms: int = 0


@dataclass(frozen=True)
class ConsumerGroupDescription:
    hub_path: str
    name: str
    user_metadata: str | None = None
    created_at_ms: int = 0
    updated_at_ms: int = 0


# -- JSON


def hub_properties(description: EventHubDescription) -> Json:
    """What users set, under its outside names."""
    retention = description.retention
    written: Json = {
        "PartitionCount": description.partition_count,
        "RetentionDescription": {
            "CleanupPolicy": retention.cleanup_policy,
            "RetentionTimeInHours": retention.retention_hours,
            "TombstoneRetentionTimeInHours": retention.tombstone_retention_hours,
            "MinCompactionLagTimeInMinutes": retention.min_compaction_lag_minutes,
            "PartitionSizeInBytes": retention.partition_bytes_max,
        },
        "Status": description.status,
        "UserMetadata": description.user_metadata,
        "RevokedPublishers": list(description.revoked_publishers),
    }
    if description.capture is not None:
        written["CaptureDescription"] = _capture_json(description.capture)
    return written


def hub_json(description: EventHubDescription) -> Json:
    """The catalogue's form: all of it."""
    return {
        "Name": description.path,
        **hub_properties(description),
        "AuthorizationRules": [rule_json(rule) for rule in description.authorization_rules],
        "CreatedAtMs": description.created_at_ms,
        "UpdatedAtMs": description.updated_at_ms,
    }


def hub_of_json(data: Mapping[str, object]) -> EventHubDescription:
    """Reads `hub_json`, and what people write of it, back; what is not said has its default. Raises BadArgument."""
    plain = EventHubDescription("")
    return EventHubDescription(
        path=text_at(data, "Name"),
        partition_count=_whole(data, "PartitionCount", plain.partition_count),
        retention=_retention_of(data),
        status=text_at(data, "Status", plain.status),
        user_metadata=_optional_text(data, "UserMetadata"),
        capture=_capture_of(data.get("CaptureDescription")),
        revoked_publishers=tuple(_texts(data, "RevokedPublishers")),
        authorization_rules=rules_of_json(data.get("AuthorizationRules", [])),
        created_at_ms=integer_at(data, "CreatedAtMs"),
        updated_at_ms=integer_at(data, "UpdatedAtMs"),
    )


def changed_hub(present: EventHubDescription, said: Mapping[str, object]) -> EventHubDescription:
    """With what `said` names; everything else, inside its objects too, stays as it is. Raises BadArgument."""
    known = hub_json(present)
    merged: Json = {**known, **said, "Name": present.path}
    for name in ("RetentionDescription", "CaptureDescription"):
        inner, before = said.get(name), known.get(name)
        if isinstance(inner, dict) and isinstance(before, dict):
            merged[name] = {**before, **inner}
    days, retention = said.get("MessageRetentionInDays"), merged["RetentionDescription"]
    if days is not None and "RetentionDescription" not in said and isinstance(retention, dict):
        hours = 24 * _whole(said, "MessageRetentionInDays", 7)
        merged["RetentionDescription"] = {**retention, "RetentionTimeInHours": hours}
    return hub_of_json(merged)


def group_json(group: ConsumerGroupDescription) -> Json:
    return {
        "Name": group.name,
        "UserMetadata": group.user_metadata,
        "CreatedAtMs": group.created_at_ms,
        "UpdatedAtMs": group.updated_at_ms,
    }


def group_of_json(hub_path: str, data: Mapping[str, object]) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        hub_path,
        text_at(data, "Name"),
        _optional_text(data, "UserMetadata"),
        integer_at(data, "CreatedAtMs"),
        integer_at(data, "UpdatedAtMs"),
    )


def _retention_of(data: Mapping[str, object]) -> RetentionDescription:
    """`MessageRetentionInDays` is the older way to say it; where both stand the description counts (H-2)."""
    plain = RetentionDescription()
    hours = plain.retention_hours
    days = data.get("MessageRetentionInDays")
    if days is not None:
        hours = 24 * _whole(data, "MessageRetentionInDays", 7)
    said = data.get("RetentionDescription")
    if said is None:
        return RetentionDescription(retention_hours=hours)
    if not isinstance(said, dict):
        raise BadArgument("RetentionDescription: an object is expected.")
    return RetentionDescription(
        text_at(said, "CleanupPolicy", plain.cleanup_policy),
        _whole(said, "RetentionTimeInHours", hours),
        _whole(said, "TombstoneRetentionTimeInHours", plain.tombstone_retention_hours),
        _whole(said, "MinCompactionLagTimeInMinutes", plain.min_compaction_lag_minutes),
        _whole(said, "PartitionSizeInBytes", plain.partition_bytes_max),
    )


def _capture_json(capture: CaptureDescription) -> Json:
    return {
        "Enabled": capture.enabled,
        "Encoding": capture.encoding,
        "IntervalInSeconds": capture.interval_s,
        "SizeLimitInBytes": capture.size_limit_bytes,
        "SkipEmptyArchives": capture.skip_empty_archives,
        "Destination": {"Name": capture.destination, "ArchiveNameFormat": capture.name_format},
    }


def _capture_of(data: object) -> CaptureDescription | None:
    if data is None:
        return None
    if not isinstance(data, dict):
        raise BadArgument("CaptureDescription: an object is expected.")
    plain = CaptureDescription()
    destination = data.get("Destination", {})
    if not isinstance(destination, dict):
        raise BadArgument("CaptureDescription.Destination: an object is expected.")
    return CaptureDescription(
        _flag(data, "Enabled", plain.enabled),
        text_at(data, "Encoding", plain.encoding),
        _whole(data, "IntervalInSeconds", plain.interval_s),
        _whole(data, "SizeLimitInBytes", plain.size_limit_bytes),
        _flag(data, "SkipEmptyArchives", plain.skip_empty_archives),
        text_at(destination, "Name", plain.destination),
        text_at(destination, "ArchiveNameFormat", plain.name_format),
    )


def _whole(data: Mapping[str, object], key: str, default: int) -> int:
    """A whole number; the emulator's files have some of them in quotes."""
    value = data.get(key, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(f"{key}: a whole number is expected.")
    return value


def _flag(data: Mapping[str, object], key: str, default: bool) -> bool:
    value = data.get(key, default)
    if not isinstance(value, bool):
        raise BadArgument(f"{key}: true or false is expected.")
    return value


def _optional_text(data: Mapping[str, object], key: str) -> str | None:
    return None if data.get(key) is None else text_at(data, key) or None


def _texts(data: Mapping[str, object], key: str) -> list[str]:
    texts = list_at(data, key)
    if not all(isinstance(text, str) for text in texts):
        raise BadArgument(f"{key}: a list of texts is expected.")
    return [str(text) for text in texts]
