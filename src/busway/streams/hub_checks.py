"""What an event hub's properties may be, at creation and at update (H-2…H-6, H-40).

Every refusal is a `BadArgument` (400, sub-code 40000) or a `QuotaExceeded`, whose sentence names the property.
"""

import re
from typing import Final

from busway.model.description_checks import BASIC, PREMIUM, check_rules
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument
from busway.model.limits import Limits
from busway.streams.hub_descriptions import (
    CLEANUP_POLICIES,
    DEFAULT_GROUP,
    DELETE,
    ENCODINGS,
    CaptureDescription,
    ConsumerGroupDescription,
    EventHubDescription,
    RetentionDescription,
)

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
