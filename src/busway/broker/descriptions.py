"""What an entity is: its properties, as users set and read them (behaviour.md section 1.2).

Descriptions are frozen; an update makes a new one. Durations are milliseconds, `FOREVER_MS` is the largest
duration a client can write. Validation raises `BadArgument` with a sentence that names property and value.
"""

from dataclasses import dataclass, field
from typing import Final

#: P10675199DT2H48M5.4775807S in whole milliseconds: .NET's TimeSpan maximum.
FOREVER_MS: Final = 922_337_203_685_477


@dataclass(frozen=True)
class AuthorizationRule:
    """A SAS rule (A-1). Keys are text; the text itself is the HMAC key (A-4)."""

    name: str
    rights: frozenset[str]  # of "Manage", "Send", "Listen"
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    created_at_ms: int = 0
    modified_at_ms: int = 0
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"


@dataclass(frozen=True)
class QueueDescription:
    path: str
    lock_duration_ms: int = 60_000  # E-20
    max_size_in_megabytes: int = 1024  # E-21
    max_message_size_in_kilobytes: int = 256  # E-22
    requires_duplicate_detection: bool = False  # E-23
    duplicate_detection_history_time_window_ms: int = 600_000  # E-24
    requires_session: bool = False  # E-25
    default_message_time_to_live_ms: int = FOREVER_MS  # E-26
    dead_lettering_on_message_expiration: bool = False  # E-27
    max_delivery_count: int = 10  # E-28
    enable_batched_operations: bool = True  # E-29
    auto_delete_on_idle_ms: int = FOREVER_MS  # E-30
    enable_partitioning: bool = False  # E-31
    enable_express: bool = False  # E-32
    forward_to: str | None = None  # E-33
    forward_dead_lettered_messages_to: str | None = None  # E-34
    status: str = "Active"  # E-35
    user_metadata: str | None = None  # E-36
    authorization_rules: tuple[AuthorizationRule, ...] = ()  # E-37
    support_ordering: bool = True  # E-38
    is_anonymous_accessible: bool = False  # E-39
    unknown_elements: tuple[str, ...] = ()  # E-44: XML kept and returned
    created_at_ms: int = 0
    updated_at_ms: int = 0


@dataclass(frozen=True)
class RuntimeCounts:
    """Read-only numbers of an entity (E-40, E-100…E-102)."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    deferred: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0
    accessed_at_ms: int = 0
    availability: str = "Available"

    @property
    def total(self) -> int:
        """MessageCount (E-101)."""
        return self.active + self.dead_letter + self.scheduled + self.deferred + self.transfer
