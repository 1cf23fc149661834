"""Messages as columns, all messages of a page at once; a message as a row, and a row as a message.

Reading builds Arrow columns, because rows of tuples cost Spark about twice the time. What is not known is null.

Theory of operation. What the columns need is found by `MessageCut`, place by place of the header, the annotations,
the properties and the application properties, and becomes arrays. A message that is built unusually, or has a
value that a column does not usually hold (an id that is a number), is read alone (`MessageColumns`), so both must
agree. Which messages those are is known before anything is built.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, VariantVal

from busway.client.messages import (
    DEAD_LETTER_SOURCE,
    ENQUEUED_NUMBER,
    ENQUEUED_TIME,
    MESSAGE_STATE,
    PARTITION_KEY,
    SCHEDULED_TIME,
    SEQUENCE_NUMBER,
    STATES,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
)
from busway.message.message import LAST_INSTANT_MS
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
    joined,
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
from busway_spark.property_types import PLAIN_FORMS, UnknownProperties, restored, types_of
from busway_spark.servicebus.columns import RARE_TYPES, TEXT_COLUMNS, reading_of, with_fields
from busway_spark.servicebus.options import JSON, ServiceBusOptions
from busway_spark.servicebus.variant import (
    SCALAR_METADATA,
    amqp_value,
    json_of,
    json_values,
    variant_of,
    variants,
)

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


#: The application property by which a claim marks what it holds.
CLAIM_PROPERTY: Final = "busway-claim"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Reading = Callable[[ServiceBusReceivedMessage], object]


class WrongRow(ValueError):
    """A row cannot be sent; the sentence names the column."""


class MessageColumns:
    """Builds record batches of one schema. Rows of a claim show their messages as they were before it."""

    def __init__(
        self, schema: StructType, options: ServiceBusOptions, entity: str, *, hides_claim: bool = False
    ) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._hides_claim = hides_claim
        self._entity = entity
        self._options = options
        readings = dict(_READINGS)
        readings["properties"] = self._json if options.properties == JSON else self._variants
        readings["entity"] = lambda _: entity
        if hides_claim:
            readings["state"] = lambda _: "active"
        if not options.include_body:
            readings["body"] = lambda _: None
        self._readings: list[tuple[pa.Field[pa.DataType], Reading]] = [
            (each, readings[each.name]) for each in self.schema
        ]

    def batch(self, messages: Sequence[ServiceBusReceivedMessage]) -> pa.RecordBatch:
        return self.batch_of_payloads([message.payload for message in messages])

    def batch_of_payloads(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        """Raises DecodeError."""
        return self.batch_of_cut(MessageCut(*joined(payloads)))

    def batch_of_cut(self, cut: MessageCut) -> pa.RecordBatch:
        """All messages at once; those that are built unusually one by one. Raises DecodeError."""
        try:
            usual = self._usual_rows(cut)
        except pa.ArrowInvalid:
            # Some text is none: the decoder finds out whose.
            return self._batch_of_each([cut.message(row) for row in range(len(cut.starts))])
        odd = np.flatnonzero(cut.is_odd)
        if not len(odd):
            return usual
        return arrow.with_rows(usual, odd, self._batch_of_each([cut.message(row) for row in odd.tolist()]))

    def _usual_rows(self, cut: MessageCut) -> pa.RecordBatch:
        hidden = CLAIM_PROPERTY if self._hides_claim else None
        found = MessageArrays(cut, set(self.schema.names), hidden_property=hidden)
        columns = [self._column(found, each, len(cut.starts)) for each in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, found: MessageArrays, field: pa.Field[pa.DataType], count: int) -> Column:
        name = field.name
        if name == "entity":
            return arrow.repeated(self._entity, pa.string(), count)
        if name == "state" and self._hides_claim:
            return arrow.repeated("active", pa.string(), count)
        if name == "body" and not self._options.include_body:
            return arrow.nulls(field.type, count)
        if name == "properties":
            is_json = self._options.properties == JSON
            return found.json_objects() if is_json else found.variant_maps(field.type)
        if name in MESSAGE_TEXTS:
            return found.text(name)
        reading = _COLUMNS.get(name)
        return self._read_rows(found, field) if reading is None else reading(found)

    def _read_rows(self, found: MessageArrays, field: pa.Field[pa.DataType]) -> Column:
        """A column that is only read message by message: of all messages, or of those that may have a value."""
        wanted = _ROWS.get(field.name, MessageArrays.rows)(found)
        reading = next(reading for each, reading in self._readings if each.name == field.name)
        values = [reading(ServiceBusReceivedMessage(found.message(row))) for row in wanted.tolist()]
        column = RowColumn(found.count, field.type)
        column.add(wanted, pa.array(values, type=field.type))
        return column.array()

    def _batch_of_each(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        messages = [ServiceBusReceivedMessage(payload) for payload in payloads]
        arrays = [
            pa.array([reading(message) for message in messages], type=each.type)
            for each, reading in self._readings
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _variants(self, message: ServiceBusReceivedMessage) -> object:
        return [
            (name, {"value": variant_of(value), "metadata": SCALAR_METADATA})
            for name, value in self._shown(message).items()
        ]

    def _json(self, message: ServiceBusReceivedMessage) -> object:
        return json_of(self._shown(message))

    def _shown(self, message: ServiceBusReceivedMessage) -> Mapping[str, object]:
        properties = message.application_properties
        if not self._hides_claim or CLAIM_PROPERTY not in properties:
            return properties
        return {name: value for name, value in properties.items() if name != CLAIM_PROPERTY}


def fragment_of(number: int) -> int:
    return number >> FRAGMENT_SHIFT


def message_of(row: Mapping[str, object], message_id: str) -> bytes:
    """The row as an encoded message; `message_id` is for rows that bring none. Raises WrongRow."""
    texts = {name: _text(row, name) for name in TEXT_COLUMNS}
    message = ServiceBusMessage(
        body=_body(row),
        application_properties=read_properties(row.get("properties"), _text(row, "propertyTypes")),
        message_id=texts["messageId"] or message_id,
        session_id=texts["sessionId"],
        partition_key=texts["partitionKey"],
        subject=texts["subject"],
        content_type=texts["contentType"],
        correlation_id=texts["correlationId"],
        to=texts["to"],
        reply_to=texts["replyTo"],
        reply_to_session_id=texts["replyToSessionId"],
        time_to_live_ms=_life_ms(row.get("timeToLive")),
    )
    try:
        return with_fields(message.encode(_instant_ms(row.get("scheduledEnqueueTime"))), row)
    except (ValueError, TypeError, OverflowError) as error:
        raise WrongRow(f"it cannot be encoded as an AMQP message: {error}") from error


# -- reading


def _reading_of(name: str) -> Reading:
    def read(message: ServiceBusReceivedMessage) -> object:
        value = getattr(message, name)
        return None if value is None else str(value)

    return read


def _time(message: ServiceBusReceivedMessage) -> object:
    return _instant(message.enqueued_time_ms)


def _scheduled(message: ServiceBusReceivedMessage) -> object:
    return _instant(message.scheduled_enqueue_time_ms)


def _expiry(message: ServiceBusReceivedMessage) -> object:
    """M-17: from the time it was enqueued and the life that it has."""
    enqueued_ms, life_ms = message.enqueued_time_ms, message.time_to_live_ms
    return None if enqueued_ms is None or life_ms is None else _instant(enqueued_ms + life_ms)


def _instant(ms: int | None) -> datetime | None:
    if ms is None:
        return None
    return _EPOCH + timedelta(milliseconds=max(0, min(ms, TIME_MS_MAX)))


def _enqueued_number(message: ServiceBusReceivedMessage) -> object:
    value = (message.raw_amqp_message.message_annotations or {}).get(ENQUEUED_NUMBER)
    return int(value) if isinstance(value, int) else None


def _fragment(message: ServiceBusReceivedMessage) -> object:
    number = message.sequence_number
    return None if number is None else fragment_of(number)


def _property_of(name: str) -> Reading:
    def read(message: ServiceBusReceivedMessage) -> object:
        value = message.application_properties.get(name)
        return None if value is None else str(value)

    return read


_READINGS: Final[dict[str, Reading]] = {
    "body": lambda message: message.body,
    "messageId": _reading_of("message_id"),
    "sessionId": _reading_of("session_id"),
    "partitionKey": _reading_of("partition_key"),
    "subject": _reading_of("subject"),
    "contentType": _reading_of("content_type"),
    "correlationId": _reading_of("correlation_id"),
    "to": _reading_of("to"),
    "replyTo": _reading_of("reply_to"),
    "replyToSessionId": _reading_of("reply_to_session_id"),
    "sequenceNumber": lambda message: message.sequence_number,
    "enqueuedSequenceNumber": _enqueued_number,
    "enqueuedTime": _time,
    "expiresAt": _expiry,
    "scheduledEnqueueTime": _scheduled,
    "deliveryCount": lambda message: message.delivery_count,
    "state": lambda message: message.state,
    "fragment": _fragment,
    "deadLetterReason": _property_of("DeadLetterReason"),
    "deadLetterErrorDescription": _property_of("DeadLetterErrorDescription"),
    "deadLetterSource": _reading_of("dead_letter_source"),
    "propertyTypes": lambda message: types_of(message.application_properties),
    **{name: reading_of(name) for name in RARE_TYPES},
}


#: For all messages at once, beside the texts.
_COLUMNS: Final[dict[str, Callable[[MessageArrays], Column]]] = {
    "body": MessageArrays.body,
    "sequenceNumber": lambda found: found.number(SEQUENCE_NUMBER),
    "enqueuedSequenceNumber": lambda found: found.number(ENQUEUED_NUMBER),
    "enqueuedTime": lambda found: found.time(ENQUEUED_TIME),
    "expiresAt": MessageArrays.expiry,
    "scheduledEnqueueTime": lambda found: found.time(SCHEDULED_TIME),
    "deliveryCount": MessageArrays.delivery_count,
    "state": MessageArrays.state,
    "fragment": MessageArrays.fragment,
}
#: Which rows may have a value in a column that is read message by message; all of them where nothing is said.
_ROWS: Final[dict[str, Callable[[MessageArrays], Longs]]] = {
    "propertyTypes": MessageArrays.rows_with_rare_properties,
}


# -- writing


def _text(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    return None if value is None else str(value)


def _body(row: Mapping[str, object]) -> bytes:
    body = row.get("body")
    if isinstance(body, str):
        return body.encode()
    return bytes(body) if isinstance(body, (bytes, bytearray)) else b""


def read_properties(value: object, types: str | None = None) -> dict[str, object]:
    """In the types that are told beside them. Raises WrongRow."""
    if types is not None:
        try:
            return restored(_values(value), types)
        except UnknownProperties as error:
            raise WrongRow(str(error)) from error
    return _values(value)


def _values(value: object) -> dict[str, object]:
    if value is None:
        return {}
    # Arrow gives a map as a list of pairs.
    found = _parsed(value) if isinstance(value, str) else dict(value) if isinstance(value, list) else value
    if not isinstance(found, dict):
        raise WrongRow("column 'properties' must be a map or a string")
    try:
        return {str(name): property_value(each) for name, each in found.items()}
    except TypeError as error:
        raise WrongRow(f"column 'properties': {error}") from error


def property_value(value: object) -> object:
    """As AMQP has it. Raises TypeError."""
    return amqp_value(_scalar(value))


def _parsed(text: str) -> dict[str, object]:
    try:
        loaded = json.loads(text)
    except ValueError:
        loaded = None
    if not isinstance(loaded, dict):
        raise WrongRow("column 'properties' is a string but not a JSON object")
    return loaded


def _scalar(value: object) -> object:
    """A variant arrives as its two parts."""
    if isinstance(value, dict) and value.keys() == {"value", "metadata"}:
        value = VariantVal(value["value"], value["metadata"])
    return value.toPython() if isinstance(value, VariantVal) else value


def _life_ms(value: object) -> int | None:
    if value is None:
        return None
    life_ms = value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value
    if not isinstance(life_ms, int) or life_ms <= 0:
        raise WrongRow(f"column 'timeToLive' must be more than 0 (milliseconds, or an interval), not {value}")
    return life_ms


def _instant_ms(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise WrongRow("column 'scheduledEnqueueTime' must be a timestamp")
    return (value.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
