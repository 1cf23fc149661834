"""Messages as columns, all messages of a page at once.

Theory of operation. What the columns need is found by `MessageCut`, place by place of the header, the annotations,
the properties and the application properties, and becomes arrays. A message that is built unusually, or has a value
that a column does not usually hold (an id that is a number), is read alone (`message_columns`), so both must agree.
Which messages those are is known before anything is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from busway.client.messages import (
    DEAD_LETTER_SOURCE,
    ENQUEUED_NUMBER,
    ENQUEUED_TIME,
    MESSAGE_STATE,
    PARTITION_KEY,
    SCHEDULED_TIME,
    SEQUENCE_NUMBER,
    STATES,
)
from busway.message.dotnet_time import LAST_INSTANT_MS
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import (
    ANNOTATIONS,
    APPLICATION,
    DATA,
    HEADER,
    PROPERTIES,
    Column,
    Entries,
    Flags,
    Longs,
    MessageCut,
    Values,
)
from busway_spark.amqp_arrays.value_arrays import (
    RowColumn,
    RowMaps,
    contents,
    is_text,
    is_whole,
    quoted,
    rows_with_others,
    shown_texts,
    texts,
    whole_numbers,
)
from busway_spark.property_types import PLAIN_FORMS
from busway_spark.servicebus.variant import SCALAR_METADATA, json_values, variants

STRING: Final = pa.string()
_BINARY: Final = pa.binary()
#: The last instant that a timestamp of Spark shows without an overflow: the end of the year 9999.
TIME_MS_MAX: Final = LAST_INSTANT_MS
#: How many bits of a sequence number count inside a fragment (P-55).
FRAGMENT_SHIFT: Final = 48
_TTL: Final = 2
_DELIVERY_COUNT: Final = 4
_TEXT_FIELDS: Final = {
    0: "messageId", 2: "to", 3: "subject", 4: "replyTo", 5: "correlationId", 6: "contentType", 10: "sessionId",
    12: "replyToSessionId",
}  # fmt: skip
_TEXT_ANNOTATIONS: Final = {PARTITION_KEY: "partitionKey", DEAD_LETTER_SOURCE: "deadLetterSource"}
_WHOLE_ANNOTATIONS: Final = (
    SEQUENCE_NUMBER, ENQUEUED_NUMBER, ENQUEUED_TIME, SCHEDULED_TIME, MESSAGE_STATE,
)  # fmt: skip
_TEXT_PROPERTIES: Final = {
    "DeadLetterReason": "deadLetterReason",
    "DeadLetterErrorDescription": "deadLetterErrorDescription",
}
#: The columns that `text` gives.
MESSAGE_TEXTS: Final = frozenset(
    (*_TEXT_FIELDS.values(), *_TEXT_ANNOTATIONS.values(), *_TEXT_PROPERTIES.values())
)


class MessageArrays:
    """The columns of a page of messages, by name; null in the rows of odd messages."""

    def __init__(self, cut: MessageCut, wanted: set[str], *, hidden_property: str | None) -> None:
        self._cut = cut
        self.count = len(cut.starts)
        self._hidden_property = hidden_property
        self._texts: dict[str, list[Values]] = {}
        self._numbers: dict[str, list[Values]] = {}
        self._header = cut.fields(cut.section(HEADER))
        self._application = cut.entries(cut.section(APPLICATION))
        self._find_fields(wanted)
        self._find_annotations()
        self._find_properties()
        self._mark_unusual()

    # -- finding

    def _find_fields(self, wanted: set[str]) -> None:
        for place, values in enumerate(self._cut.fields(self._cut.section(PROPERTIES))):
            name = _TEXT_FIELDS.get(place)
            if name is not None and name in wanted:
                self._texts[name] = [values]
        for place in (_TTL, _DELIVERY_COUNT):
            self._numbers[str(place)] = self._header[place : place + 1]

    def _find_annotations(self) -> None:
        for entries in self._cut.entries(self._cut.section(ANNOTATIONS)):
            self._cut.mark_unusual(entries.names, is_text(self._cut, entries.names))
            for name, values in _by_name(self._cut, self._cut.usual_entries(entries)):
                if name in _TEXT_ANNOTATIONS:
                    self._texts.setdefault(_TEXT_ANNOTATIONS[name], []).append(values)
                elif name in _WHOLE_ANNOTATIONS:
                    self._numbers.setdefault(name, []).append(values)

    def _find_properties(self) -> None:
        for entries in self._application:
            self._cut.mark_unusual(entries.names, is_text(self._cut, entries.names))
            for name, values in _by_name(self._cut, self._cut.usual_entries(entries)):
                if name in _TEXT_PROPERTIES:
                    given = values.where(self._cut.byte(values.at) != 0x40)
                    self._texts.setdefault(_TEXT_PROPERTIES[name], []).append(given)

    def _mark_unusual(self) -> None:
        for found in self._texts.values():
            for values in found:
                self._cut.mark_unusual(values, is_text(self._cut, values))
        for found in self._numbers.values():
            for values in found:
                self._cut.mark_unusual(values, is_whole(self._cut, values))

    # -- rows

    def rows(self) -> Longs:
        """Of all messages that are not odd."""
        return np.flatnonzero(~self._cut.is_odd)

    def rows_with_rare_properties(self) -> Longs:
        """Of messages with a property whose JSON does not tell its type."""
        return rows_with_others(self._cut, self._application, PLAIN_FORMS)

    def message(self, row: int) -> bytes:
        return self._cut.message(row)

    # -- columns

    def text(self, name: str) -> Column:
        column = RowColumn(self.count, STRING)
        for values in self._texts.get(name, []):
            usual = self._cut.usual(values)
            column.add(usual.rows, shown_texts(self._cut, usual))
        return column.array()

    def body(self) -> Column:
        """Empty for a message without one."""
        sections = self._cut.section(DATA)
        column = RowColumn(self.count, _BINARY)
        column.add(sections.rows, contents(self._cut, sections))
        return arrow.filled(column.array(), b"")

    def number(self, name: str) -> Column:
        numbers, is_known = self._whole(name)
        return pa.array(numbers, mask=~is_known)

    def time(self, name: str) -> Column:
        return instants(*self._whole(name))

    def expiry(self) -> Column:
        """M-17: from the time it was enqueued and the life that it has."""
        enqueued, has_time = self._whole(ENQUEUED_TIME)
        life, has_life = self._whole(str(_TTL))
        return instants(enqueued + life, has_time & has_life)

    def delivery_count(self) -> Column:
        return pa.array(self._whole(str(_DELIVERY_COUNT))[0].astype(np.int32))

    def state(self) -> Column:
        numbers, _ = self._whole(MESSAGE_STATE)
        places = np.where((numbers >= 0) & (numbers < len(STATES)), numbers, 0)
        return arrow.taken(pa.array(list(STATES.values()), STRING), places)

    def fragment(self) -> Column:
        numbers, is_known = self._whole(SEQUENCE_NUMBER)
        return pa.array((numbers >> FRAGMENT_SHIFT).astype(np.int32), mask=~is_known)

    def variant_maps(self, kind: pa.DataType) -> Column:
        """`kind`: the map's own, for its names of fields and what may be null."""
        maps = self._maps(variants)
        offsets, names, values = maps.parts(_BINARY)
        metadata = arrow.repeated(SCALAR_METADATA, _BINARY, len(values))
        return arrow.variant_maps(kind, offsets, names, values, metadata)

    def json_objects(self) -> Column:
        maps = self._maps(json_values)
        offsets, names, values = maps.parts(STRING)
        members = arrow.joined_texts(quoted(names), ": ", values)
        return arrow.joined_texts("{", arrow.list_texts(offsets, members, ", "), "}")

    def _maps(self, read: Callable[[MessageCut, Values], Column]) -> RowMaps:
        maps = RowMaps(self.count)
        for each in self._application:
            entries = self._cut.usual_entries(each)
            if not len(entries.values):
                continue
            names = texts(self._cut, entries.names)
            if self._hidden_property is not None:
                is_shown = arrow.flags(arrow.differs(names, self._hidden_property))
                names, entries = arrow.filtered(names, is_shown), entries.where(is_shown)
            maps.add(entries.values.rows, names, read(self._cut, entries.values))
        return maps

    def _whole(self, name: str) -> tuple[Longs, Flags]:
        """Numbers, and which of them are there; 0 for the others."""
        numbers: Longs = np.zeros(self.count, np.int64)
        is_known: Flags = np.zeros(self.count, np.bool_)
        for values in self._numbers.get(name, []):
            usual = self._cut.usual(values)
            numbers[usual.rows] = whole_numbers(self._cut, usual)
            is_known[usual.rows] = True
        return numbers, is_known


def _by_name(cut: MessageCut, entries: Entries) -> list[tuple[str, Values]]:
    """The values of entries that stand at one place, by their names."""
    names, places = arrow.words(texts(cut, entries.names))
    if len(names) == 1:
        return [(names[0], entries.values)]
    return [(name, entries.values.where(places == at)) for at, name in enumerate(names)]


def instants(ms: Longs, is_known: Flags | None = None) -> Column:
    """Null where it is not known."""
    micros = np.clip(ms, 0, TIME_MS_MAX) * 1000
    return pa.array(micros, mask=None if is_known is None else ~is_known).cast(pa.timestamp("us", tz="UTC"))
