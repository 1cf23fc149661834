"""What a reader is told about its partition with every event, when it asked for it (H-26): the delivery annotations
that stand before the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.encode import encode_value
from busway.amqp.types import Long, Symbol, Timestamp

if TYPE_CHECKING:
    from busway.streams.partition_log import LogInfo

RUNTIME_METRIC: Final = Symbol("com.microsoft:enable-receiver-runtime-metric")
_SECTION: Final = b"\x00\x53\x71"
_LAST_NUMBER: Final = Symbol("last_enqueued_sequence_number")
_LAST_OFFSET: Final = Symbol("last_enqueued_offset")
_LAST_TIME: Final = Symbol("last_enqueued_time_utc")
_RETRIEVED: Final = Symbol("runtime_info_retrieval_time_utc")


def runtime_metric(info: LogInfo, now_ms: int) -> bytes:
    """The encoded section."""
    return _SECTION + encode_value(
        {
            _LAST_NUMBER: Long(info.last_number),
            _LAST_OFFSET: info.last_offset,
            _LAST_TIME: Timestamp(info.last_at_ms),
            _RETRIEVED: Timestamp(now_ms),
        }
    )
