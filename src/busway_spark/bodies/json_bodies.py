"""JSON bodies as columns of a schema.

Theory of operation. Bodies are joined by line ends and read by Arrow's JSON reader, a whole batch in one call: two to
four times faster than reading them in Python. It must not matter to a body what its neighbours are, though. The
reader takes a sequence of objects wherever they begin, so the batch is read this way only when every body is UTF-8
without a zero byte, begins with a brace and ends with one. No object can then reach into the next body: within an
object, or in an array, `}` is never followed by `{`, and a text holds no line end. So every body gives one object or
more, and when there are as many rows as bodies, each gave exactly one.

Where this fails, in pieces of the batch and then body by body, Python's reader decides, by the same rules
(`json_values`); a body that only Python cannot read (it is nested too deep) is offered to Arrow's reader alone.
"""

from __future__ import annotations

import json
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from busway_spark.bodies.decoded import BadBody, Decoded, decode_each
from busway_spark.bodies.json_values import converter_of

#: A batch that cannot be read together is cut in so many pieces, and each in as many, until so few bodies are left.
_PIECES: Final = 16
_PIECE_MIN: Final = 64
_BLANKS: Final = " \t\r\n"
_TEXT: Final = pa.string()


class JsonBodies:
    def __init__(self, data_type: DataType) -> None:
        self._type: pa.DataType = to_arrow_type(data_type, timezone="UTC")
        self._convert = converter_of(data_type)
        self._options = _parse_options(self._type)
        #: Digits behind a point are kept as they are where a decimal may want them.
        self._parse_float = Decimal if _has_decimal(self._type) else float

    def decode(self, bodies: pa.Array[Any]) -> Decoded:
        together = self._together(bodies)
        if together is not None:
            return Decoded(together)
        if len(bodies) <= _PIECE_MIN or self._options is None:
            values, faults = decode_each(bodies.to_pylist(), self._one)
            return Decoded(pa.array(values, self._type), faults)
        return self._in_pieces(bodies, max(_PIECE_MIN, len(bodies) // _PIECES))

    def _in_pieces(self, bodies: pa.Array[Any], size: int) -> Decoded:
        arrays: list[pa.Array[Any]] = []
        faults: dict[int, str] = {}
        for at in range(0, len(bodies), size):
            piece = self.decode(bodies.slice(at, size))
            arrays.append(piece.values)
            faults.update({at + row: reason for row, reason in piece.faults.items()})
        return Decoded(pa.concat_arrays(arrays), faults)

    # -- by Arrow

    def _together(self, bodies: pa.Array[Any]) -> pa.Array[Any] | None:
        """None when not every body can be read this way."""
        if self._options is None or not len(bodies):
            return None
        try:
            return self._read(bodies.cast(_TEXT))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def _read(self, texts: pa.Array[Any]) -> pa.Array[Any] | None:
        if not _are_braced(texts):
            texts = pc.ascii_trim(texts, _BLANKS)
            if not _are_braced(texts):
                return None
        bounds: Any = pa.array([0, len(texts)], pa.int32())
        lines: Any = pc.binary_join(pa.ListArray.from_arrays(bounds, texts), "\n")
        joined: bytes = lines[0].as_py().encode()
        if b"\0" in joined:
            return None
        block = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        table = pj.read_json(BytesIO(joined), block, self._options)
        if table.num_rows != len(texts):
            return None
        chunks: Any = table.to_struct_array()
        found: pa.Array[Any] = chunks.combine_chunks().cast(self._type)
        return found

    # -- by Python

    def _one(self, body: bytes) -> object:
        try:
            value = json.loads(body.decode("utf-8-sig"), parse_float=self._parse_float)
        except UnicodeDecodeError as error:
            raise BadBody(f"it is not UTF-8 at byte {error.start}") from None
        except (ValueError, RecursionError):
            return self._alone(body)
        if value is None:
            raise BadBody("it is null")
        return self._convert(value)

    def _alone(self, body: bytes) -> object:
        found = self._together(pa.array([body], pa.binary()))
        if found is None:
            raise BadBody("it is no JSON")
        return found[0].as_py()


def _are_braced(texts: pa.Array[Any]) -> bool:
    return bool(pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py())


def _parse_options(wanted: pa.DataType) -> pj.ParseOptions | None:
    """None where the reader has no form for a type."""
    if not pa.types.is_struct(wanted):
        return None
    fields = [_readable(field) for field in _fields(wanted)]
    if any(field is None for field in fields):
        return None
    return pj.ParseOptions(
        explicit_schema=pa.schema([field for field in fields if field is not None]),
        unexpected_field_behavior="ignore",
    )


def _readable(field: pa.Field[Any]) -> pa.Field[Any] | None:
    """How the reader must read a field. Times and dates are texts, which are cast afterwards."""
    kind = field.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return field.with_type(_TEXT)
    if pa.types.is_struct(kind):
        inner = [_readable(each) for each in _fields(kind)]
        found = [each for each in inner if each is not None]
        return field.with_type(pa.struct(found)) if len(found) == len(inner) else None
    if pa.types.is_list(kind):
        element: Any = _readable(kind.value_field)
        return None if element is None else field.with_type(pa.list_(element))
    is_read = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return field if is_read or pa.types.is_float32(kind) or pa.types.is_float64(kind) else None


def _fields(kind: Any) -> list[pa.Field[Any]]:
    return [kind.field(at) for at in range(kind.num_fields)]


def _has_decimal(kind: Any) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimal(field.type) for field in _fields(kind)) if kind.num_fields else False
