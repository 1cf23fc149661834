"""What events bring beside their bodies, as columns: publisher, partition key, properties, system properties.

Theory of operation. Names and values are found by `MessageCut` and become arrays place by place: the first
annotations of all events, the second ones, and so on, then the properties and the application properties
(`HeadArrays`). An event that is built unusually is decoded alone (`HeadColumns`), where maps are gathered flat: all
names, all texts, and how many belong to each event. The arrays are made from what is known so far; when that shows
further unusual events (a partition key that is no text), they are made once more without those.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from busway.amqp.sections import AmqpMessage, decode_message
from busway.amqp.types import Array, Described
from busway.client.messages import ENQUEUED_TIME, PARTITION_KEY, SEQUENCE_NUMBER
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import (
    ANNOTATIONS,
    APPLICATION,
    PROPERTIES,
    Column,
    Entries,
    Longs,
    MessageCut,
    Values,
)
from busway_spark.amqp_arrays.value_arrays import (
    STRING,
    RowColumn,
    RowMaps,
    is_text,
    is_whole,
    json_texts,
    rows_with_others,
    texts,
    whole_numbers,
)
from busway_spark.property_types import PLAIN_FORMS, types_of

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


class HeadArrays:
    """Of the messages of a cut. Numbers, offsets and times are told only when they are wanted."""

    def __init__(self, cut: MessageCut, *, with_positions: bool = False) -> None:
        self._cut = cut
        self._with_positions = with_positions
        #: Those that were decoded alone.
        self.odd: dict[int, AmqpMessage] = {}
        self._annotations = cut.entries(cut.section(ANNOTATIONS))
        self._fields = cut.fields(cut.section(PROPERTIES))
        self._application = cut.entries(cut.section(APPLICATION))
        self._mark_nameless()
        try:
            self._build()
        except pa.ArrowInvalid:
            # Some text is none: the decoder finds out whose.
            cut.mark_odd(np.arange(len(cut.starts)))
            self._build()

    def _mark_nameless(self) -> None:
        for each in (*self._annotations, *self._application):
            self._cut.mark_unusual(each.names, is_text(self._cut, each.names))
        for values in self._fields[len(FIELDS) :]:
            self._cut.mark_odd(values.rows)

    def _build(self) -> None:
        """Until no further event turns out to be unusual."""
        odd_before = -1
        while odd_before != int(self._cut.is_odd.sum()):
            odd_before = int(self._cut.is_odd.sum())
            self._build_once()
        self._put_odd()

    def _build_once(self) -> None:
        count = len(self._cut.starts)
        self._named = {name: RowColumn(count, STRING) for name in (PARTITION_KEY, PUBLISHER, OFFSET)}
        self.numbers: Longs = np.full(count, -1, np.int64)
        self.times_ms: Longs = np.zeros(count, np.int64)
        self._system = RowMaps(count)
        self._properties = RowMaps(count)
        for each in self._annotations:
            self._put_annotations(self._cut.usual_entries(each))
        for name, values in zip(FIELDS, self._fields, strict=False):
            self._put_field(name, self._cut.usual(values))
        for each in self._application:
            self._put_properties(self._cut.usual_entries(each))

    def _put_annotations(self, entries: Entries) -> None:
        names = texts(self._cut, entries.names)
        found, places = arrow.words(names)
        is_told = np.isin(places, [at for at, name in enumerate(found) if name in TOLD_ELSEWHERE])
        for at, name in enumerate(found):
            if name in (PARTITION_KEY, PUBLISHER) or (self._with_positions and name in TOLD_ELSEWHERE):
                self._put_named(name, entries.values.where(places == at))
        if is_told.all():
            return
        rest = entries.values.where(~is_told)
        self._system.add(rest.rows, names.filter(pa.array(~is_told)), self._json(rest))

    def _put_named(self, name: str, values: Values) -> None:
        is_usual = (is_text if name in self._named else is_whole)(self._cut, values)
        self._cut.mark_unusual(values, is_usual)
        values = values.where(is_usual)
        if name in self._named:
            self._named[name].add(values.rows, texts(self._cut, values))
        elif name == SEQUENCE_NUMBER:
            self.numbers[values.rows] = whole_numbers(self._cut, values)
        elif name == ENQUEUED_TIME:
            self.times_ms[values.rows] = whole_numbers(self._cut, values)

    def _put_field(self, name: str, values: Values) -> None:
        if len(values):
            self._system.add(values.rows, arrow.repeated(name, STRING, len(values)), self._json(values))

    def _put_properties(self, entries: Entries) -> None:
        if len(entries.values):
            names = texts(self._cut, entries.names)
            self._properties.add(entries.values.rows, names, self._json(entries.values))

    def _json(self, values: Values) -> Column:
        return json_texts(self._cut, values, json_text)

    def _put_odd(self) -> None:
        """Raises DecodeError."""
        rows = np.flatnonzero(self._cut.is_odd)
        if not len(rows):
            return
        cut, heads = self._cut, HeadColumns(len(rows))
        for place, row in enumerate(rows.tolist()):
            message = decode_message(cut.message(row))
            self.odd[row] = message
            heads.put_message(place, message)
            annotations = message.message_annotations or {}
            if self._with_positions:
                self.numbers[row] = int(annotations.get(SEQUENCE_NUMBER, -1))
                self.times_ms[row] = int(annotations.get(ENQUEUED_TIME, 0))
        offsets = [str((each.message_annotations or {}).get(OFFSET)) for each in self.odd.values()]
        self._named[OFFSET].add(rows, pa.array(offsets, STRING))
        self._named[PARTITION_KEY].add(rows, heads.partition_keys())
        self._named[PUBLISHER].add(rows, heads.publishers())
        self._system.add_runs(rows, *heads.system_runs())
        self._properties.add_runs(rows, *heads.property_runs())

    # -- columns

    def publishers(self) -> Column:
        return self._named[PUBLISHER].array()

    def partition_keys(self) -> Column:
        return self._named[PARTITION_KEY].array()

    def offsets(self) -> Column:
        return self._named[OFFSET].array()

    def properties(self) -> Column:
        return self._properties.array(STRING)

    def system(self) -> Column:
        return self._system.array(STRING)

    def property_types(self) -> Column:
        """Event by event, of those with a property whose JSON does not tell its type."""
        cut = self._cut
        rare = rows_with_others(cut, self._application, PLAIN_FORMS)
        rows = np.union1d(np.flatnonzero(cut.is_odd), rare)
        payloads = (cut.message(row) for row in rows.tolist())
        found = [types_of(decode_message(payload).application_properties or {}) for payload in payloads]
        column = RowColumn(len(cut.starts), STRING)
        column.add(rows, pa.array(found, STRING))
        return column.array()
