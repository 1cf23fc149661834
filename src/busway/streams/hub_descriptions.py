"""What an event hub and its consumer groups are, as users set and read them, and may be (H-2…H-6, H-40).

Descriptions are frozen; an update makes a new one. The JSON forms below are those of the management route, of the
catalogue and of config files: a property has one name everywhere.

Properties are checked at creation and at update. Every refusal is a `BadArgument` (400, sub-code 40000) or a
`QuotaExceeded`, whose sentence names the property.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway.model.description_checks import BASIC, PREMIUM, check_rules
from busway.model.descriptions import ACTIVE_STATUS, AuthorizationRule, rule_json, rules_of_json
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument
from busway.model.json_rows import Json, integer_at, list_at, text_at
from busway.model.limits import Limits

DELETE: Final = "Delete"
COMPACT: Final = "Compact"
DELETE_OR_COMPACT: Final = "DeleteOrCompact"
CLEANUP_POLICIES: Final = (DELETE, COMPACT, DELETE_OR_COMPACT)

AVRO: Final = "Avro"
AVRO_DEFLATE: Final = "AvroDeflate"
PARQUET: Final = "Parquet"
ENCODINGS: Final = (AVRO, AVRO_DEFLATE, PARQUET)

#: What users set of a hub, beside its name.
HUB_PROPERTIES: Final = (
    "PartitionCount",
    "MessageRetentionInDays",
    "RetentionDescription",
    "Status",
    "UserMetadata",
    "CaptureDescription",
    "RevokedPublishers",
    "AuthorizationRules",
)
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


_HUB_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,254}[A-Za-z0-9])?")
_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?")
_PUBLISHER: Final = re.compile(r"[A-Za-z0-9._~-]{1,256}")
_STATUSES: Final = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")
_PREMIUM_PARTITIONS_MAX: Final = 100
_PREMIUM_GROUPS_MAX: Final = 100
_HOURS_MAX: Final = 24 * 365 * 100
#: A directory below the capture directory: no dot-dot, nothing absolute.
_DESTINATION: Final = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)?")
_TOKENS: Final = (
    "{Namespace}",
    "{EventHub}",
    "{PartitionId}",
    "{Year}",
    "{Month}",
    "{Day}",
    "{Hour}",
    "{Minute}",
    "{Second}",
)
_NAME_FORMAT_REST: Final = re.compile(r"[A-Za-z0-9_=/-]*")


def check_hub(description: EventHubDescription, limits: Limits) -> None:
    """H-2, H-6. Raises BadArgument with a sentence."""
    if _HUB_NAME.fullmatch(description.path) is None:
        raise BadArgument(
            f"The name {shown(description.path)} of an event hub is not allowed: 1 to 256 letters, digits, '.', '-'"
            " and '_', with a letter or digit at either end."
        )
    most = limits.partitions_per_hub_max
    if limits.sku == PREMIUM:
        most = max(most, _PREMIUM_PARTITIONS_MAX)
    if not 1 <= description.partition_count <= most:
        raise BadArgument(
            f"PartitionCount: {description.partition_count} is not allowed; an event hub has 1 to {most} partitions."
        )
    if description.status not in _STATUSES:
        raise BadArgument(f"Status: {shown(description.status)} is none of {', '.join(_STATUSES)}.")
    _check_metadata(description.user_metadata, limits)
    _check_retention(description.retention)
    if description.capture is not None:
        _check_capture(description.capture)
    for name in description.revoked_publishers:
        if _PUBLISHER.fullmatch(name) is None:
            raise BadArgument(f"RevokedPublishers: {shown(name)} is no name of a publisher.")
    check_rules(description.authorization_rules, limits)


def check_hub_update(present: EventHubDescription, wanted: EventHubDescription, limits: Limits) -> None:
    """H-3: partitions may become more where the tier allows it, never fewer."""
    if wanted.partition_count < present.partition_count or (
        wanted.partition_count > present.partition_count and limits.sku != PREMIUM
    ):
        raise BadArgument(
            f"PartitionCount: {shown(present.path)} has {present.partition_count} partitions, and the number of"
            " partitions cannot be changed after creation."
        )
    check_hub(wanted, limits)


def _check_metadata(text: str | None, limits: Limits) -> None:
    if text is not None and len(text) > limits.user_metadata_characters_max:
        raise BadArgument(
            f"UserMetadata has {len(text)} characters; at most {limits.user_metadata_characters_max} are allowed."
        )


def _check_retention(retention: RetentionDescription) -> None:
    if retention.cleanup_policy not in CLEANUP_POLICIES:
        raise BadArgument(
            f"CleanupPolicy: {shown(retention.cleanup_policy)} is none of {', '.join(CLEANUP_POLICIES)}."
        )
    hours = retention.retention_hours
    if hours != -1 and not 1 <= hours <= _HOURS_MAX:
        raise BadArgument(f"RetentionTimeInHours: {hours} is not allowed; 1 or more hours, or -1 for ever.")
    for name, value in (
        ("TombstoneRetentionTimeInHours", retention.tombstone_retention_hours),
        ("MinCompactionLagTimeInMinutes", retention.min_compaction_lag_minutes),
        ("PartitionSizeInBytes", retention.partition_bytes_max),
    ):
        if value < 0:
            raise BadArgument(f"{name}: {value} is not allowed; 0 or more.")
    if retention.cleanup_policy == DELETE and retention.min_compaction_lag_minutes:
        raise BadArgument("MinCompactionLagTimeInMinutes: only a hub whose CleanupPolicy compacts has one.")


def _check_capture(capture: CaptureDescription) -> None:
    """H-40, H-41: encoding, window, destination and the tokens of the name."""
    if capture.encoding not in ENCODINGS:
        raise BadArgument(f"Encoding: {shown(capture.encoding)} is none of {', '.join(ENCODINGS)}.")
    if not 60 <= capture.interval_s <= 900:
        raise BadArgument(f"IntervalInSeconds: {capture.interval_s} is not allowed; 60 to 900 seconds.")
    if not 10_485_760 <= capture.size_limit_bytes <= 524_288_000:
        raise BadArgument(
            f"SizeLimitInBytes: {capture.size_limit_bytes} is not allowed; 10485760 to 524288000 bytes."
        )
    if len(capture.destination) > 256 or _DESTINATION.fullmatch(capture.destination) is None:
        raise BadArgument(
            f"Destination: {shown(capture.destination)} is no directory below the capture directory."
        )
    rest = capture.name_format
    for token in _TOKENS:
        if token not in rest:
            raise BadArgument(
                f"ArchiveNameFormat: {token} is missing; a file's name needs {', '.join(_TOKENS)}."
            )
        rest = rest.replace(token, "")
    outside = len(capture.name_format) > 512 or capture.name_format.startswith("/")
    if outside or _NAME_FORMAT_REST.fullmatch(rest) is None:
        raise BadArgument(
            "ArchiveNameFormat: letters, digits, '_', '-', '=' and '/' may stand between the tokens."
        )


def check_group(group: ConsumerGroupDescription, limits: Limits) -> None:
    """H-5: raises BadArgument with a sentence."""
    is_default = path_key(group.name) == path_key(DEFAULT_GROUP)
    if not is_default and _GROUP_NAME.fullmatch(group.name) is None:
        raise BadArgument(
            f"The name {shown(group.name)} of a consumer group is not allowed: 1 to 50 letters, digits, '.', '-' and"
            " '_', with a letter or digit at either end."
        )
    _check_metadata(group.user_metadata, limits)


def groups_max(limits: Limits) -> int:
    """H-5: how many consumer groups a hub may have, `$Default` included."""
    if limits.sku == BASIC:
        return 1
    return max(limits.groups_per_hub_max, _PREMIUM_GROUPS_MAX if limits.sku == PREMIUM else 0)
