"""What a reader is told about its partition with every event, when it asked for it (H-26): the delivery annotations
that stand before the record, or beside those that the sender has given to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.decode import skip_value
from busway.amqp.encode import append_map, encode_value
from busway.amqp.sections import DELIVERY_ANNOTATIONS, compound_start
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


def has_annotations(data: bytes, at: int) -> bool:
    """Whether the record there begins with delivery annotations of its sender."""
    return data[at + 2] == DELIVERY_ANNOTATIONS


def with_metric(metric: bytes, record: bytes) -> bytes:
    """The record with the metric in it, or before it."""
    if not has_annotations(record, 0):
        return metric + record
    own_end = skip_value(record, len(_SECTION), len(record))
    own_count, own_at = compound_start(record, len(_SECTION), own_end)
    count, at = compound_start(metric, len(_SECTION), len(metric))
    out = bytearray(_SECTION)
    append_map(out, record[own_at:own_end] + metric[at:], own_count + count)
    return bytes(out) + record[own_end:]
