"""What events bring beside their bodies: publisher, partition key, properties, system properties; event by event.

For events that are built unusually; all others are read at once (`head_arrays`). Maps are gathered flat: all names,
all texts, and how many belong to each event.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from busway.amqp.sections import AmqpMessage
from busway.amqp.types import Array, Described
from busway.client.messages import PARTITION_KEY
from busway_spark.amqp_arrays.message_cut import Column, Longs

PUBLISHER: Final = "x-opt-publisher"
OFFSET: Final = "x-opt-offset"
#: They have columns of their own.
TOLD_ELSEWHERE: Final = frozenset({"x-opt-sequence-number", OFFSET, "x-opt-enqueued-time"})
#: The fields of the properties section.
FIELDS: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
_STRING: Final = pa.string()


class HeadColumns:
    """Events are put in the order of their indexes; one that is left out brings nothing."""

    def __init__(self, count: int) -> None:
        self._publishers: list[str | None] = [None] * count
        self._partition_keys: list[str | None] = [None] * count
        self._properties = _MapRuns(count)
        self._system = _MapRuns(count)

    def put_message(self, index: int, message: AmqpMessage) -> None:
        annotations = message.message_annotations or {}
        self._put_named(index, annotations)
        for name, value in annotations.items():
            if str(name) not in TOLD_ELSEWHERE:
                self._system.put(index, str(name), json_text(value))
        properties = message.properties
        for field in () if properties is None else dataclasses.fields(properties):
            value = getattr(properties, field.name)
            if value is not None:
                self._system.put(index, field.name.replace("_", "-"), json_text(value))
        for name, value in (message.application_properties or {}).items():
            self._properties.put(index, str(name), json_text(value))

    def _put_named(self, index: int, annotations: dict[Any, Any]) -> None:
        key, publisher = annotations.get(PARTITION_KEY), annotations.get(PUBLISHER)
        self._partition_keys[index] = None if key is None else str(key)
        self._publishers[index] = None if publisher is None else str(publisher)

    # -- columns

    def publishers(self) -> Column:
        return pa.array(self._publishers, _STRING)

    def partition_keys(self) -> Column:
        return pa.array(self._partition_keys, _STRING)

    def property_runs(self) -> tuple[Longs, Column, Column]:
        return self._properties.runs()

    def system_runs(self) -> tuple[Longs, Column, Column]:
        return self._system.runs()


class _MapRuns:
    def __init__(self, count: int) -> None:
        self._counts = [0] * count
        self._names: list[str] = []
        self._texts: list[str] = []

    def put(self, index: int, name: str, text: str) -> None:
        self._counts[index] += 1
        self._names.append(name)
        self._texts.append(text)

    def runs(self) -> tuple[Longs, Column, Column]:
        """How many entries each event has, and all names and texts."""
        counts = np.array(self._counts, np.int64)
        return counts, pa.array(self._names, _STRING), pa.array(self._texts, _STRING)


# -- JSON


def json_text(value: object) -> str:
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        # Maps may have keys that JSON has not.
        return json.dumps(str(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """What JSON has no form for: bytes and decimals in base64, everything else as its text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Described):
        return value.value
    if isinstance(value, Array):
        return value.items
    return str(value) if isinstance(value, UUID) else repr(value)
