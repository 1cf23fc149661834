"""Python values for AMQP values that Python has no word for.

`decode` gives exactly these types and `encode` takes them back, so that every value round-trips with its AMQP
type. The rest are Python's own: None, bool, str (string), bytes (binary), uuid.UUID (uuid), float (double), list,
dict (map) and int, which encodes as long.

The wrappers of numbers and texts are plain subclasses: `UInt(5) == 5` holds, and so does `Symbol("a") == "a"`.
Ranges are checked where they matter, when a value is encoded. This module stays uncompiled, because compiled
classes cannot extend built-in ones.
"""

from __future__ import annotations


class Symbol(str):
    """A symbolic value from a constrained domain: ASCII."""

    __slots__ = ()


class Char(str):
    """A single Unicode code point."""

    __slots__ = ()


class UByte(int):
    """An unsigned integer of 8 bits."""

    __slots__ = ()


class UShort(int):
    """An unsigned integer of 16 bits."""

    __slots__ = ()


class UInt(int):
    """An unsigned integer of 32 bits."""

    __slots__ = ()


class ULong(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Byte(int):
    """A signed integer of 8 bits."""

    __slots__ = ()


class Short(int):
    """A signed integer of 16 bits."""

    __slots__ = ()


class Int(int):
    """A signed integer of 32 bits."""

    __slots__ = ()


class Long(int):
    """A signed integer of 64 bits; a plain int encodes the same way."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch, signed."""

    __slots__ = ()


class Float(float):
    """A floating-point number of 32 bits; a plain float is a double."""

    __slots__ = ()


class Decimal(bytes):
    """A decimal32, decimal64 or decimal128 in its raw 4, 8 or 16 bytes: carried, never computed with."""

    __slots__ = ()


class Described:
    """A value with a descriptor that says what it means. Never a map key: it has no hash."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: object, value: object) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return NotImplemented
        return self.descriptor == other.descriptor and self.value == other.value

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Array:
    """Values that share one constructor. Never a map key: it has no hash.

    `code` is the constructor byte on the wire. INFERRED takes the widest form of the first item's type.
    `descriptors` is empty unless the shared constructor is a described one (outermost first); the items are then
    the values without it.
    """

    __slots__ = ("code", "descriptors", "items")

    INFERRED = -1

    def __init__(
        self, items: list[object], code: int = INFERRED, descriptors: tuple[object, ...] = ()
    ) -> None:
        self.items = items
        self.code = code
        self.descriptors = descriptors

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return self.items == other.items and self.descriptors == other.descriptors

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Array({self.items!r}, code={self.code:#04x}, descriptors={self.descriptors!r})"
