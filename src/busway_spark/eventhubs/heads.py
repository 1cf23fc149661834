"""What events bring beside their bodies, as columns: publisher, partition key, properties, system properties.

Theory of operation. Values become JSON texts straight from their bytes, for the forms in which clients send nearly
everything: texts, numbers, truth values. Any other form is decoded by the AMQP engine, and a record that is built
otherwise than our broker builds it is decoded as a whole, so the short way may give up at any byte. Names repeat from
event to event and are decoded once. Maps are gathered flat: all names, all texts, and how many belong to each event.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import struct
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from busway.amqp.decode import Budget, DecodeError, decode_value
from busway.amqp.sections import AmqpMessage, decode_message
from busway.amqp.types import Array, Decimal, Described
from busway.client.messages import PARTITION_KEY

PUBLISHER: Final = "x-opt-publisher"
OFFSET: Final = "x-opt-offset"
#: They have columns of their own.
_TOLD_ELSEWHERE: Final = frozenset({"x-opt-sequence-number", OFFSET, "x-opt-enqueued-time"})
#: How the broker begins the annotations of a record: number, offset, time.
_FIRST_KEY: Final = b"\xa3\x15x-opt-sequence-number\x81"
_DIGITS_AT: Final = len(_FIRST_KEY) + 8 + 15
_BEHIND_DIGITS: Final = 1 + 30
_FIELDS: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
_ANNOTATIONS: Final = 0x72
_PROPERTIES: Final = 0x73
_APPLICATION: Final = 0x74
_BODIES: Final = (0x75, 0x76, 0x77)
_NAMES_MAX: Final = 10_000
_DOUBLE: Final = struct.Struct(">d")
_STRING: Final = pa.string()
_quoted: Callable[[str], str] = json.encoder.encode_basestring


class _OtherForm(Exception):
    """The record is not built as the broker builds it, or holds a rare form."""


class HeadColumns:
    """Events are put in the order of their indexes; one that is left out brings nothing."""

    def __init__(self, count: int) -> None:
        self.publishers: list[str | None] = [None] * count
        self.partition_keys: list[str | None] = [None] * count
        self.properties = MapColumn(count)
        self.system = MapColumn(count)

    def put_record(self, index: int, data: bytes, start: int, end: int) -> None:
        """Raises DecodeError."""
        application, system = self.properties.mark(), self.system.mark()
        try:
            self._scan(index, data, start, end)
        except (_OtherForm, IndexError, UnicodeDecodeError):
            self.properties.reset(index, application)
            self.system.reset(index, system)
            self.put_message(index, decode_message(data[start:end]))

    def put_message(self, index: int, message: AmqpMessage) -> None:
        annotations = message.message_annotations or {}
        self._put_named(index, annotations)
        for name, value in annotations.items():
            if str(name) not in _TOLD_ELSEWHERE:
                self.system.put(index, str(name), json_text(value))
        properties = message.properties
        for field in () if properties is None else dataclasses.fields(properties):
            value = getattr(properties, field.name)
            if value is not None:
                self.system.put(index, field.name.replace("_", "-"), json_text(value))
        for name, value in (message.application_properties or {}).items():
            self.properties.put(index, str(name), json_text(value))

    def _put_named(self, index: int, annotations: dict[Any, Any]) -> None:
        key, publisher = annotations.get(PARTITION_KEY), annotations.get(PUBLISHER)
        self.partition_keys[index] = None if key is None else str(key)
        self.publishers[index] = None if publisher is None else str(publisher)

    # -- the short way

    def _scan(self, index: int, data: bytes, at: int, end: int) -> None:
        while at < end:
            if data[at] or data[at + 1] != 0x53:
                raise _OtherForm
            section = data[at + 2]
            if section in _BODIES:
                return
            at += 3
            if section == _PROPERTIES:
                at = self._scan_fields(index, data, at)
            elif section == _APPLICATION:
                at = self._scan_map(index, data, at, self.properties)
            elif section == _ANNOTATIONS:
                at = self._scan_annotations(index, data, at)
            else:
                raise _OtherForm

    def _scan_annotations(self, index: int, data: bytes, at: int) -> int:
        count, at, end = _compound(data, at, 0xC1)
        if not data.startswith(_FIRST_KEY, at):
            raise _OtherForm
        at += _DIGITS_AT
        at += data[at] + _BEHIND_DIGITS
        for _ in range((count >> 1) - 3):
            name, at = _name(data, at)
            value_at = at
            text, at = _value(data, at)
            self.system.put(index, name, text)
            if name == PARTITION_KEY:
                self.partition_keys[index] = _plain_text(data, value_at)
            elif name == PUBLISHER:
                self.publishers[index] = _plain_text(data, value_at)
        return _ended(at, end)

    def _scan_fields(self, index: int, data: bytes, at: int) -> int:
        if data[at] == 0x45:
            return at + 1
        count, at, end = _compound(data, at, 0xC0)
        for field in range(count):
            if data[at] == 0x40:
                at += 1
                continue
            text, at = _value(data, at)
            self.system.put(index, _FIELDS[field], text)
        return _ended(at, end)

    def _scan_map(self, index: int, data: bytes, at: int, column: MapColumn) -> int:
        count, at, end = _compound(data, at, 0xC1)
        for _ in range(count >> 1):
            name, at = _name(data, at)
            text, at = _value(data, at)
            column.put(index, name, text)
        return _ended(at, end)


class MapColumn:
    def __init__(self, count: int) -> None:
        self._counts = [0] * (count + 1)
        self._names: list[str] = []
        self._texts: list[str] = []

    def put(self, index: int, name: str, text: str) -> None:
        self._counts[index + 1] += 1
        self._names.append(name)
        self._texts.append(text)

    def mark(self) -> int:
        return len(self._names)

    def reset(self, index: int, mark: int) -> None:
        """Forgets what was put for the event since the mark."""
        self._counts[index + 1] = 0
        del self._names[mark:], self._texts[mark:]

    def array(self) -> pa.Array[Any]:
        offsets: Any = pa.array(list(accumulate(self._counts)), pa.int32())
        return pa.MapArray.from_arrays(
            offsets, pa.array(self._names, _STRING), pa.array(self._texts, _STRING)
        )


def _compound(data: bytes, at: int, short_form: int) -> tuple[int, int, int]:
    """Count of entries, where the first one and the end lie. The long form's code is the short one's and sixteen."""
    form = data[at]
    if form == short_form:
        return data[at + 2], at + 3, at + 2 + data[at + 1]
    if form != short_form + 0x10:
        raise _OtherForm
    size, count = int.from_bytes(data[at + 1 : at + 5], "big"), int.from_bytes(data[at + 5 : at + 9], "big")
    if size > len(data):
        raise _OtherForm
    return count, at + 9, at + 5 + size


def _ended(at: int, end: int) -> int:
    if at != end:
        raise _OtherForm
    return at


#: Names seen so far, by their bytes.
_names: dict[bytes, str] = {}


def _name(data: bytes, at: int) -> tuple[str, int]:
    """A text or a symbol of less than 256 bytes."""
    if data[at] not in (0xA1, 0xA3):
        raise _OtherForm
    end = at + 2 + data[at + 1]
    raw = data[at + 2 : end]
    name = _names.get(raw)
    if name is None:
        if len(_names) >= _NAMES_MAX:
            _names.clear()
        name = _names[raw] = raw.decode()
    return name, end


def _plain_text(data: bytes, at: int) -> str | None:
    if data[at] not in (0xA1, 0xA3):
        raise _OtherForm
    return data[at + 2 : at + 2 + data[at + 1]].decode()


#: Whole numbers: the width in bytes and whether they have a sign.
_WHOLE: Final[dict[int, tuple[int, bool]]] = {
    0x50: (1, False), 0x60: (2, False), 0x70: (4, False), 0x80: (8, False), 0x52: (1, False), 0x53: (1, False),
    0x43: (0, False), 0x44: (0, False),
    0x51: (1, True), 0x61: (2, True), 0x71: (4, True), 0x81: (8, True), 0x54: (1, True), 0x55: (1, True),
}  # fmt: skip
_WORDS: Final[dict[int, str]] = {0x40: "null", 0x41: "true", 0x42: "false"}


def _value(data: bytes, at: int) -> tuple[str, int]:
    """A value as JSON, and where the next one lies."""
    form = data[at]
    if form == 0xA1 or form == 0xA3:
        end = at + 2 + data[at + 1]
        return _quoted(data[at + 2 : end].decode()), end
    whole = _WHOLE.get(form)
    if whole is not None:
        end = at + 1 + whole[0]
        return str(int.from_bytes(data[at + 1 : end], "big", signed=whole[1])), end
    word = _WORDS.get(form)
    if word is not None:
        return word, at + 1
    try:
        value, end = decode_value(data, at, None, Budget())
    except DecodeError:
        raise _OtherForm from None
    return json_text(value), end


# -- JSON


def json_text(value: object) -> str:
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        # Maps may have keys that JSON has not.
        return json.dumps(str(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """What JSON has no form for: bytes in base64, everything else as its text."""
    if isinstance(value, bytes) and not isinstance(value, Decimal):
        return base64.b64encode(value).decode()
    if isinstance(value, Described):
        return value.value
    if isinstance(value, Array):
        return value.items
    return str(value) if isinstance(value, UUID | Decimal) else repr(value)
