"""Application properties and their AMQP types beside JSON: told when messages are captured, given back when they are
sent again. JSON itself tells texts, truth values, whole numbers (long), numbers with a fraction (double) and null."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from busway.amqp.types import (
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_MAX: Final = (1 << 63) - 1
_ULONG_MAX: Final = (1 << 64) - 1
_NAMES: Final[dict[type, str]] = {
    UByte: "ubyte", UShort: "ushort", UInt: "uint", ULong: "ulong", Byte: "byte", Short: "short", Int: "int",
    Timestamp: "timestamp", Float: "float", Decimal: "decimal", Symbol: "symbol", Char: "char", UUID: "uuid",
    bytes: "binary",
}  # fmt: skip
#: Forms of AMQP whose values JSON tells: null, truth values, long, text.
PLAIN_FORMS: Final = (0x40, 0x41, 0x42, 0x56, 0x55, 0x81, 0xA1, 0xB1)
#: .NET types without an AMQP form (M-32): ticks of 100 ns, and text.
_DESCRIBED: Final = {
    "com.microsoft:timespan": "timespan",
    "com.microsoft:datetime-offset": "datetime-offset",
    "com.microsoft:uri": "uri",
}


class UnknownProperties(ValueError):
    """The columns `properties` and `propertyTypes` of a row cannot be read; the text says why."""


def types_of(properties: Mapping[str, object]) -> str | None:
    """The column `propertyTypes`: null when JSON tells everything."""
    told = {name: found for name, value in properties.items() if (found := _type_of(value)) is not None}
    return json.dumps(told, ensure_ascii=False) if told else None


def _type_of(value: object) -> str | None:
    """A double without a fraction is a whole number to many readers of JSON, and NaN and infinity are texts."""
    if type(value) is float:
        return None if value - value == 0 and not value.is_integer() else "double"
    if type(value) is Described:
        return _DESCRIBED.get(str(value.descriptor))
    return _NAMES.get(type(value))


def properties_of(text: str | None, types: str | None) -> dict[str, object]:
    """The properties as they were sent. Raises UnknownProperties."""
    if text is None or text == "{}":
        return {}
    return restored(_object(text, "properties"), types)


def restored(values: Mapping[str, object], types: str | None) -> dict[str, object]:
    """What JSON tells of them, in the types that they had. Raises UnknownProperties."""
    names = {} if types is None else _object(types, "propertyTypes")
    return {name: _restored(name, value, names.get(name)) for name, value in values.items()}


def _object(text: str, column: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UnknownProperties(f"the column '{column}' is no JSON object")
    return found


def _restored(name: str, value: object, kind: object) -> object:
    if kind is None:
        return _plain(value)
    if isinstance(value, bytes | Timestamp | UUID):  # out of a variant, which has them
        return value
    restore = _RESTORES.get(str(kind))
    if restore is None:
        raise UnknownProperties(f"the property '{name[:60]}' has the unknown type '{str(kind)[:30]}'")
    try:
        return None if value is None else restore(value)
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise UnknownProperties(f"the property '{name[:60]}' is no {kind}: {error}") from error


def _plain(value: object) -> object:
    """What JSON tells. A list or an object, which no client sends, stays the text that it is."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and not isinstance(value, bool) and not -_LONG_MAX <= value <= _LONG_MAX:
        return ULong(value) if 0 < value <= _ULONG_MAX else float(value)
    return value


def _instant(value: Any) -> Timestamp:
    if isinstance(value, int):
        return Timestamp(value)
    return Timestamp((datetime.fromisoformat(value) - _EPOCH) // timedelta(milliseconds=1))


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


_RESTORES: Final[dict[str, Callable[[Any], object]]] = {
    "ubyte": UByte, "ushort": UShort, "uint": UInt, "ulong": ULong, "byte": Byte, "short": Short, "int": Int,
    "long": int, "timestamp": _instant, "float": Float, "double": float, "symbol": Symbol, "char": Char,
    "timespan": lambda value: Described(Symbol("com.microsoft:timespan"), Long(value)),
    "datetime-offset": lambda value: Described(Symbol("com.microsoft:datetime-offset"), Long(value)),
    "uri": lambda value: Described(Symbol("com.microsoft:uri"), str(value)),
    "uuid": UUID, "binary": _bytes, "decimal": lambda value: Decimal(_bytes(value)), "string": str,
    "boolean": bool,
}  # fmt: skip
