"""Bodies as text: UTF-8 and nothing else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from busway_spark.bodies.decoded import BadBody, Decoded, decode_each


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
