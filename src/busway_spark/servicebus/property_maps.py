"""Application properties of many messages as one column, out of their encoded maps.

Theory of operation. Programs send the same names, and often the same values, again and again, so a map is looked up
by its bytes, then a name by its bytes; only what is new is decoded, by the AMQP engine. Both memories are bounded.
Maps are gathered flat: all names, all values, and how many of them belong to each message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from busway.amqp.decode import DecodeError, decode_value
from busway_spark.property_types import types_of
from busway_spark.servicebus.variant import SCALAR_METADATA, json_of, variant_of

_MEMORY_ENTRIES_MAX: Final = 4_096
_MEMORY_BYTES_MAX: Final = 1_024
_SHORT_TEXT_MAX: Final = 0x3F
_NO_ENTRIES: Final[tuple[list[str], list[bytes]]] = ([], [])

Entries = tuple[list[str], list[bytes]]


class PropertyMaps:
    """One for each reading: it remembers."""

    def __init__(self) -> None:
        self._known: dict[bytes, Entries] = {}
        self._names: dict[bytes, str] = {}

    def variants(self, maps: list[bytes | None], kind: pa.DataType) -> pa.Array[Any]:
        """A map of variants for each encoded map; an empty one for None."""
        names: list[str] = []
        values: list[bytes] = []
        offsets = np.zeros(len(maps) + 1, np.int32)
        known = self._known
        for index, data in enumerate(maps, 1):
            if data is not None:
                entries = known.get(data)
                some_names, some_values = self._entries(data) if entries is None else entries
                names += some_names
                values += some_values
            offsets[index] = len(names)
        metadata = pa.repeat(pa.scalar(SCALAR_METADATA, pa.binary()), len(values))
        assert isinstance(kind, pa.MapType)
        struct = kind.item_type
        assert isinstance(struct, pa.StructType)
        items = pa.StructArray.from_arrays(
            [pa.array(values, pa.binary()), metadata], fields=[struct.field(at) for at in range(2)]
        )
        make: Any = pa.MapArray.from_arrays  # its types do not know that a type can be given
        found: pa.Array[Any] = make(
            pa.array(offsets, pa.int32()), pa.array(names, pa.string()), items, type=kind
        )
        return found

    def texts(self, maps: list[bytes | None]) -> pa.Array[Any]:
        """A JSON object for each."""
        return pa.array([json_of({} if data is None else _decoded(data)) for data in maps], pa.string())

    def types(self, maps: list[bytes | None]) -> pa.Array[Any]:
        """The types that JSON cannot tell, of each."""
        found = [None if data is None else types_of(_decoded(data)) for data in maps]
        return pa.array(found, pa.string())

    def named(self, maps: list[bytes | None], name: str) -> pa.Array[Any]:
        """The text of one property."""
        key = name.encode()
        found: list[str | None] = [None] * len(maps)
        for index, data in enumerate(maps):
            if data is not None and key in data:
                value = _decoded(data).get(name)
                found[index] = None if value is None else str(value)
        return pa.array(found, pa.string())

    def _entries(self, data: bytes) -> Entries:
        try:
            entries = self._scanned(data)
        except (_OtherForm, IndexError, UnicodeDecodeError):
            decoded = _decoded(data)
            entries = list(decoded), [variant_of(value) for value in decoded.values()]
        if len(data) <= _MEMORY_BYTES_MAX:
            if len(self._known) >= _MEMORY_ENTRIES_MAX:
                self._known.clear()
            self._known[data] = entries
        return entries

    def _scanned(self, data: bytes) -> Entries:
        """The short way, for the forms in which clients send nearly everything."""
        if data[0] != 0xC1:
            raise _OtherForm
        count, at = data[2], 3
        if count == 0:
            return _NO_ENTRIES
        names: list[str] = []
        values: list[bytes] = []
        for _ in range(count >> 1):
            if data[at] != 0xA1 and data[at] != 0xA3:
                raise _OtherForm
            end = at + 2 + data[at + 1]
            names.append(self._name(data[at + 2 : end]))
            value, at = _variant(data, end)
            values.append(value)
        if at != len(data) or len(set(names)) < len(names):
            raise _OtherForm
        return names, values

    def _name(self, data: bytes) -> str:
        name = self._names.get(data)
        if name is None:
            if len(self._names) >= _MEMORY_ENTRIES_MAX:
                self._names.clear()
            name = self._names[data] = data.decode()
        return name


class _OtherForm(Exception):
    """Something is encoded in a rare form."""


def _variant(data: bytes, at: int) -> tuple[bytes, int]:
    """The value at `at` as a variant, and where it ends."""
    code = data[at]
    if code == 0xA1:
        size = data[at + 1]
        end = at + 2 + size
        text = data[at + 2 : end]
        if size > _SHORT_TEXT_MAX:
            return variant_of(text.decode()), end
        if not text.isascii():
            text.decode()
        return bytes([size << 2 | 1]) + text, end
    if code == 0x54 or code == 0x55:
        return variant_of(data[at + 1] - ((data[at + 1] & 0x80) << 1)), at + 2
    if code == 0x71:
        return variant_of(int.from_bytes(data[at + 1 : at + 5], "big", signed=True)), at + 5
    if code == 0x81:
        return variant_of(int.from_bytes(data[at + 1 : at + 9], "big", signed=True)), at + 9
    if code == 0x41 or code == 0x42:
        return variant_of(code == 0x41), at + 1
    value, end = decode_value(data, at)
    return variant_of(value), end


def _decoded(data: bytes) -> Mapping[str, object]:
    value, _ = decode_value(data)
    if not isinstance(value, dict):
        raise DecodeError("application properties are not a map")
    return {str(name): item for name, item in value.items()}
