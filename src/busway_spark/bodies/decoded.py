"""What a decoder makes of bodies: one value for each, null where there is none, and why a body is bad. The simplest
decoder makes text: UTF-8 and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa


class BadBody(ValueError):
    """Why one body cannot be decoded. Names of the schema may be in it, never what the body holds."""


@dataclass
class Decoded:
    values: pa.Array[Any]
    #: Why, by the place in the batch.
    faults: dict[int, str] = field(default_factory=dict)


class Decoder(Protocol):
    def decode(self, bodies: pa.Array[Any]) -> Decoded:
        """Of binary bodies without nulls."""
        ...


def decode_each(bodies: Sequence[Any], decode: Callable[[bytes], object]) -> tuple[list[Any], dict[int, str]]:
    """One by one: values, and faults by place."""
    values: list[Any] = []
    faults: dict[int, str] = {}
    for at, body in enumerate(bodies):
        try:
            values.append(decode(body))
        except BadBody as error:
            values.append(None)
            faults[at] = str(error)
    return values, faults


class TextBodies:
    def decode(self, bodies: pa.Array[Any]) -> Decoded:
        try:
            return Decoded(bodies.cast(pa.string()))
        except pa.ArrowInvalid:
            values, faults = decode_each(bodies.to_pylist(), _text)
            return Decoded(pa.array(values, pa.string()), faults)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadBody(f"it is not UTF-8 at byte {error.start}") from None
