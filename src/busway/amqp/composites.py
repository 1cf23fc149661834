"""Composite types read and written by a table: described lists whose fields have names and wire types.

Written are always all fields, trailing nulls included, as list8 or list32 and never list0, behind the descriptor
`00 53 code`: deployed clients index the fields blindly and look at that one byte. Read are both descriptors, the
code and the symbol, each compared whole. A mandatory field that is missing, a field of another type and a field too
many are DecodeErrors. An absent field is None; only a flag with the default false becomes False. An empty repeated
field is written as null, which means the same: one deployed decoder loses its place in an empty array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from busway.amqp.decode import DecodeError
from busway.amqp.encode import EncodeError, append_list, append_value
from busway.amqp.types import Array, Described, Symbol, Timestamp, UByte, UInt, ULong, UShort

#: Wire kinds and the Python types that a decoded value of that kind has, exactly.
_TYPES: Final[dict[str, tuple[type[Any], ...]]] = {
    "boolean": (bool,),
    "ubyte": (UByte,),
    "ushort": (UShort,),
    "uint": (UInt,),
    "ulong": (ULong,),
    "timestamp": (Timestamp,),
    "binary": (bytes,),
    "string": (str,),
    "symbol": (Symbol,),
    "map": (dict,),
    "fields": (dict,),
    "message-id": (str, UUID, ULong, bytes),
}
#: Integers are plain on the Python side; the table knows the wire type.
_INTEGERS: Final[dict[str, Callable[[int], object]]] = {
    "ubyte": UByte,
    "ushort": UShort,
    "uint": UInt,
    "ulong": ULong,
    "timestamp": Timestamp,
}


class Field:
    """One field of a composite type: its wire kind, and what the standard says about its absence."""

    __slots__ = ("default", "kind", "mandatory", "multiple", "name")

    def __init__(self, text: str) -> None:
        """`name:kind`, then `*` multiple, `!` mandatory, `=false` a flag that is False when absent."""
        name, kind = text.split(":")
        self.name = name
        self.mandatory = kind.endswith("!")
        self.default = False if kind.endswith("=false") else None
        kind = kind.removesuffix("!").removesuffix("=false")
        self.multiple = kind.endswith("*")
        self.kind = kind.removesuffix("*")


class Definition:
    """One row of the table. `make` takes the fields in this order."""

    __slots__ = ("code", "fields", "make", "name")

    def __init__(self, make: type[Any], name: str, code: int, fields: str = "") -> None:
        self.make = make
        self.name = name
        self.code = code
        self.fields = [Field(text) for text in fields.split()]


class CompositeTable:
    """All composite types of a protocol, looked up by descriptor for reading and by class for writing.

    `unions` names kinds of fields that hold a composite value, with the classes that may stand there. A union that
    lists Described also takes described values that the table does not know.
    """

    __slots__ = ("_by_class", "_by_descriptor", "_unions", "rows")

    def __init__(self, rows: tuple[Definition, ...], unions: dict[str, tuple[type[Any], ...]]) -> None:
        self.rows = rows
        self._unions = unions
        self._by_class: dict[type, Definition] = {row.make: row for row in rows}
        self._by_descriptor: dict[object, Definition] = {}
        for row in rows:
            self._by_descriptor[row.code] = row
            self._by_descriptor[row.name] = row

    def definition(self, descriptor: object) -> Definition | None:
        """The row that a descriptor names, by code or by symbol."""
        if isinstance(descriptor, (ULong, Symbol)):
            return self._by_descriptor.get(descriptor)
        return None

    def compose(self, value: object) -> object:
        """A described value as the composite type that the table names for it; anything else as it is."""
        if not isinstance(value, Described):
            return value
        row = self.definition(value.descriptor)
        return value if row is None else self.make(row, value.value)

    def make(self, row: Definition, value: object) -> object:
        """The composite value of a row out of its decoded list."""
        if not isinstance(value, list):
            raise DecodeError(f"{row.name} is not a list")
        fields = row.fields
        if len(value) > len(fields):
            raise DecodeError(f"{row.name} has {len(value)} fields instead of {len(fields)}")
        values = [self._read_field(row, field, item) for field, item in zip(fields, value, strict=False)]
        for field in fields[len(value) :]:
            values.append(self._read_field(row, field, None))
        return row.make(*values)

    def _read_field(self, row: Definition, field: Field, value: Any) -> object:
        if value is None:
            if field.mandatory:
                raise DecodeError(f"{row.name} lacks its field {field.name}")
            return field.default
        kind = field.kind
        if field.multiple:
            return _read_symbols(row, field, value)
        expected = _TYPES.get(kind)
        if expected is not None:
            if type(value) not in expected:
                raise _mismatch(row, field, value)
            return int(value) if kind in _INTEGERS else value
        return value if kind == "any" else self._read_union(row, field, value)

    def _read_union(self, row: Definition, field: Field, value: object) -> object:
        made = self.compose(value)
        if not isinstance(made, self._unions[field.kind]):
            raise _mismatch(row, field, value)
        return made

    def append(self, out: bytearray, value: object) -> None:
        """Write a composite value."""
        row = self._by_class.get(type(value))
        if row is None:
            raise EncodeError(f"{type(value).__name__} is no composite type of AMQP")
        body = bytearray()
        for field in row.fields:
            self._append_field(body, field, getattr(value, field.name))
        out += bytes((0x00, 0x53, row.code))
        append_list(out, body, len(row.fields))

    def _append_field(self, out: bytearray, field: Field, value: Any) -> None:
        if value is None:
            if field.mandatory:
                raise EncodeError(f"The mandatory field {field.name} is None")
            out.append(0x40)
        elif field.multiple:
            append_value(out, _symbols(value) if value else None)
        elif type(value) in self._by_class:
            self.append(out, value)
        else:
            append_value(out, _typed(field.kind, value))


def _read_symbols(row: Definition, field: Field, value: object) -> list[str]:
    """A field that may repeat: one symbol, or an array of them."""
    if isinstance(value, Symbol):
        return [value]
    if not isinstance(value, Array) or value.descriptors or value.code not in (0xA3, 0xB3):
        raise _mismatch(row, field, value)
    return [str(item) for item in value.items]


def _mismatch(row: Definition, field: Field, value: object) -> DecodeError:
    return DecodeError(f"{row.name}: field {field.name} is a {type(value).__name__}, not {field.kind}")


def _symbols(names: list[str]) -> Array:
    return Array([Symbol(name) for name in names], 0xB3 if any(len(name) > 255 for name in names) else 0xA3)


def _typed(kind: str, value: Any) -> object:
    """A plain Python value as the AMQP type that its field has on the wire."""
    if kind in _INTEGERS:
        return _INTEGERS[kind](value)
    if kind == "symbol":
        return Symbol(value)
    if kind == "fields":
        return {_field_key(key): item for key, item in value.items()}
    if kind == "message-id" and type(value) is int:
        return ULong(value)
    return value


def _field_key(key: object) -> object:
    """Keys of `fields` are symbols; plain text is taken for one."""
    return Symbol(key) if type(key) is str else key
