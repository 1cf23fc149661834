"""Random AMQP values for the tests of the codec, and an equality that also looks at AMQP types."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from busway.amqp.types import (
    Array,
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


def same(left: Any, right: Any) -> bool:
    """Equal in value and in AMQP type, all the way down; NaN equals itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.keys()), list(right.keys())) and same(list(left.values()), list(right.values()))
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array):
        return (
            left.code == right.code
            and same(list(left.descriptors), list(right.descriptors))
            and same(left.items, right.items)
        )
    return bool(left == right)


def _ranged(kind: type[int], bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high).map(kind)


UNSIGNED = {UByte: 8, UShort: 16, UInt: 32, ULong: 64}
SIGNED = {Byte: 8, Short: 16, Int: 32, Long: 64, Timestamp: 64}

integers = st.one_of(
    *(_ranged(kind, bits, False) for kind, bits in UNSIGNED.items()),
    *(_ranged(kind, bits, True) for kind, bits in SIGNED.items()),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
symbols = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)
characters = st.characters(exclude_categories=["Cs"]).map(Char)
uuids = st.binary(min_size=16, max_size=16).map(lambda raw: UUID(bytes=raw))
decimals = st.sampled_from((4, 8, 16)).flatmap(lambda n: st.binary(min_size=n, max_size=n)).map(Decimal)
floats = st.floats(width=32).map(Float)
binaries = st.binary(max_size=300)

primitives = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    floats,
    st.floats(),
    characters,
    decimals,
    uuids,
    binaries,
    texts,
    symbols,
)
keys = st.one_of(texts, symbols, binaries, uuids)

#: Arrays by constructor: what may be in them.
array_items: dict[int, st.SearchStrategy[Any]] = {
    0x40: st.none(),
    0x41: st.just(True),
    0x42: st.just(False),
    0x43: st.just(UInt(0)),
    0x44: st.just(ULong(0)),
    0x45: st.just([]),
    0x50: _ranged(UByte, 8, False),
    0x51: _ranged(Byte, 8, True),
    0x52: _ranged(UInt, 8, False),
    0x53: _ranged(ULong, 8, False),
    0x54: _ranged(Int, 8, True),
    0x55: _ranged(Long, 8, True),
    0x56: st.booleans(),
    0x60: _ranged(UShort, 16, False),
    0x61: _ranged(Short, 16, True),
    0x70: _ranged(UInt, 32, False),
    0x71: _ranged(Int, 32, True),
    0x72: floats,
    0x73: characters,
    0x74: st.binary(min_size=4, max_size=4).map(Decimal),
    0x80: _ranged(ULong, 64, False),
    0x81: _ranged(Long, 64, True),
    0x82: st.floats(),
    0x83: _ranged(Timestamp, 64, True),
    0x84: st.binary(min_size=8, max_size=8).map(Decimal),
    0x94: st.binary(min_size=16, max_size=16).map(Decimal),
    0x98: uuids,
    0xA0: st.binary(max_size=255),
    0xA1: st.text("añ☃", max_size=80),
    0xA3: st.text("ab:-", max_size=255).map(Symbol),
    0xB0: binaries,
    0xB1: texts,
    0xB3: symbols,
    0xC0: st.lists(integers, max_size=5),
    0xC1: st.dictionaries(st.text("abc", max_size=5), integers, max_size=5),
    0xD0: st.lists(primitives, max_size=5),
    0xD1: st.dictionaries(texts, primitives, max_size=3),
}

flat_arrays = st.sampled_from(sorted(array_items)).flatmap(
    lambda code: st.builds(Array, st.lists(array_items[code], max_size=5), st.just(code))
)
described_arrays = st.builds(
    Array, st.lists(texts, max_size=3), st.just(0xB1), st.lists(symbols, min_size=1, max_size=3).map(tuple)
)
nested_arrays = st.builds(Array, st.lists(flat_arrays, max_size=3), st.just(0xF0))
arrays = st.one_of(flat_arrays, described_arrays, nested_arrays)

descriptors = st.one_of(symbols, _ranged(ULong, 64, False))
values = st.recursive(
    st.one_of(primitives, arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(keys, inner, max_size=5),
        st.builds(Described, descriptors, inner),
    ),
    max_leaves=20,
)
