"""Bytes put together and numbers read out of them: plain Python does what mypyc's library does."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp import byte_writer as plain

fast = pytest.importorskip("librt.strings")
#: Everything that a hot module may take from there.
FUNCTIONS = sorted(name for name in vars(plain) if name.startswith(("read_", "write_")))
READERS = [name for name in FUNCTIONS if name.startswith("read_")]
WIDTHS = {
    "write_i16_be": 16,
    "write_i32_be": 32,
    "write_i32_le": 32,
    "write_i64_be": 64,
    "write_i64_le": 64,
}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.binary(max_size=40)),
        st.tuples(st.just("append"), st.integers(0, 255)),
        st.tuples(st.just("truncate"), st.integers(0, 20)),
        *(
            st.tuples(st.just(name), st.integers(-(1 << width - 1), (1 << width - 1) - 1))
            for name, width in WIDTHS.items()
        ),
    ),
    max_size=30,
)


def written(module: ModuleType, made: list[tuple[str, Any]]) -> tuple[bytes, int]:
    out = module.BytesWriter()
    for name, value in made:
        if name in WIDTHS:
            getattr(module, name)(out, value)
        elif name == "truncate":
            out.truncate(min(value, len(out)))
        else:
            getattr(out, name)(value)
    return out.getvalue(), len(out)


def read(module: ModuleType, name: str, data: bytes, at: int) -> object:
    try:
        return getattr(module, name)(data, at)
    except (IndexError, ValueError) as error:
        return type(error)


def test_both_have_the_same_functions() -> None:
    """House style: what is used of the library has a plain form."""
    assert [name for name in FUNCTIONS if not hasattr(fast, name)] == []
    assert sorted(WIDTHS) == [name for name in FUNCTIONS if name.startswith("write_")]


@given(steps)
def test_both_write_the_same(made: list[tuple[str, Any]]) -> None:
    """Speed: the Python sources and their compiled twins put the same bytes together."""
    assert written(plain, made) == written(fast, made)


@given(st.sampled_from(READERS), st.binary(max_size=20), st.integers(-3, 20))
def test_both_read_the_same_and_refuse_the_same(name: str, data: bytes, at: int) -> None:
    """Speed: inside and outside of the bytes."""
    assert read(plain, name, data, at) == read(fast, name, data, at)


@pytest.mark.parametrize(("name", "width"), WIDTHS.items())
def test_what_is_too_wide_is_cut(name: str, width: int) -> None:
    """Speed: as machine numbers are; ids above 2**31 are written so."""
    out = plain.BytesWriter()
    getattr(plain, name)(out, (1 << width) + (1 << width - 1) + 7)
    order: Literal["big", "little"] = "big" if name.endswith("_be") else "little"
    assert out.getvalue() == ((1 << width - 1) + 7).to_bytes(width // 8, order)
