"""A schema written as Spark's DDL, read without a session: sources live in processes that have none.

`a INT, b STRUCT<c: STRING>` or a single type; also what `StructType.json()` writes. Everything in it may be null,
whatever `NOT NULL` says: a body decides what it brings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

_TEXT_MAX: Final = 256 * 1024
_DEPTH_MAX: Final = 64
_TOKEN: Final = re.compile(
    r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|([<>(),:])|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))"
)
_SIMPLE: Final[dict[str, Callable[[], DataType]]] = {
    "boolean": BooleanType,
    "tinyint": ByteType, "byte": ByteType,
    "smallint": ShortType, "short": ShortType,
    "int": IntegerType, "integer": IntegerType,
    "bigint": LongType, "long": LongType,
    "float": FloatType, "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType, "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
    "variant": VariantType,
}  # fmt: skip
_DECIMALS: Final = frozenset({"decimal", "dec", "numeric"})
_DIGITS_MAX: Final = 38


class BadSchema(ValueError):
    """The text is no schema; the sentence says where."""


def parse_ddl(text: str) -> DataType:
    """Raises BadSchema."""
    if len(text) > _TEXT_MAX:
        raise BadSchema(f"it is longer than {_TEXT_MAX} characters.")
    if text.lstrip().startswith(("{", '"')):
        return _of_json(text)
    tokens = _tokens(text)
    whole = _Reader(tokens)
    if tokens and tokens[0][0] in _TYPE_WORDS and (found := whole.only_type()) is not None:
        return found
    return _Reader(tokens).columns()


def _tokens(text: str) -> list[tuple[str, str]]:
    """What a token means (words in small letters, names as ``) and how it is written."""
    tokens: list[tuple[str, str]] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadSchema(f"character {at + 1} is not expected.")
        quoted, word, sign, literal = match.groups()
        if quoted is not None:
            tokens.append(("``", quoted[1:-1].replace("``", "`")))
        elif word is not None:
            tokens.append((word.lower(), word))
        else:
            tokens.append((sign, sign) if sign is not None else ("''", literal))
        at = match.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def only_type(self) -> DataType | None:
        """None when more follows: then the first word was the name of a column."""
        if len(self._tokens) > 1 and self._tokens[1][0] not in ("<", "("):
            return None
        found = self._type()
        return found if self._at == len(self._tokens) else None

    def columns(self) -> StructType:
        found = self._fields()
        if self._at < len(self._tokens):
            raise BadSchema(f"'{self._tokens[self._at][1]}' is not expected.")
        return found

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise BadSchema("it ends too early.")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, kind: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][0] == kind:
            self._at += 1
            return True
        return False

    def _expect(self, kind: str) -> None:
        found = self._next()
        if found[0] != kind:
            raise BadSchema(f"'{kind}' is expected instead of '{found[1][:60]}'.")

    def _fields(self) -> StructType:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        return struct_of(fields)

    def _field(self) -> StructField:
        kind, name = self._next()
        if kind in ("''", "<", ">", "(", ")", ",", ":"):
            raise BadSchema(f"a name is expected instead of '{name[:60]}'.")
        self._take(":")
        data_type = self._type()
        if self._take("not"):
            self._expect("null")
        if self._take("comment"):
            self._expect("''")
        return StructField(name, data_type)

    def _type(self) -> DataType:
        word, written = self._next()
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise BadSchema(f"types are nested more than {_DEPTH_MAX} deep.")
        found = self._of_word(word)
        self._depth -= 1
        if found is None:
            raise BadSchema(f"'{written[:60]}' is not a type that bodies can have.")
        return found

    def _of_word(self, word: str) -> DataType | None:
        simple = _SIMPLE.get(word)
        if simple is not None:
            return simple()
        if word in _DECIMALS:
            return self._decimal()
        if word in ("char", "varchar"):
            self._numbers()
            return StringType()
        if word == "array":
            return ArrayType(self._inside(1)[0])
        if word == "map":
            key, value = self._inside(2)
            return map_of(key, value)
        return self._struct() if word == "struct" else None

    def _inside(self, count: int) -> list[DataType]:
        self._expect("<")
        found = [self._type()]
        for _ in range(count - 1):
            self._expect(",")
            found.append(self._type())
        self._expect(">")
        return found

    def _struct(self) -> StructType:
        self._expect("<")
        found = self._fields()
        self._expect(">")
        return found

    def _decimal(self) -> DecimalType:
        numbers = self._numbers()
        digits = numbers[0] if numbers else 10
        scale = numbers[1] if len(numbers) > 1 else 0
        if len(numbers) > 2 or not 0 < digits <= _DIGITS_MAX or scale > digits:
            raise BadSchema(f"a decimal has 1 to {_DIGITS_MAX} digits, and no more of them behind the point.")
        return DecimalType(digits, scale)

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if self._take("("):
            while True:
                _, written = self._next()
                if not (written.isascii() and written.isdigit() and len(written) < 10):
                    raise BadSchema(f"a number is expected instead of '{written[:60]}'.")
                numbers.append(int(written))
                if not self._take(","):
                    break
            self._expect(")")
        return numbers


_TYPE_WORDS: Final = frozenset({*_SIMPLE, *_DECIMALS, "char", "varchar", "array", "map", "struct"})


def struct_of(fields: list[StructField]) -> StructType:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise BadSchema(f"the field '{name[:60]}' stands there twice.")
    if not fields:
        raise BadSchema("a struct needs a field.")
    return StructType(fields)


def map_of(key: DataType, value: DataType) -> MapType:
    if not isinstance(key, StringType):
        raise BadSchema("the keys of a map must be strings.")
    return MapType(key, value)


def _of_json(text: str) -> DataType:
    try:
        found = StructType.fromJson(json.loads(text))
        return _checked(found)
    except BadSchema:
        raise
    except Exception:  # whatever PySpark raises for a text that is not its own: its errors share no ancestor
        raise BadSchema("it begins as JSON, but not as StructType.json() writes it.") from None


def _checked(found: DataType) -> DataType:
    """The same without promises about nulls. Raises BadSchema for what DDL above does not have."""
    if isinstance(found, StructType):
        return struct_of([StructField(each.name, _checked(each.dataType)) for each in found.fields])
    if isinstance(found, ArrayType):
        return ArrayType(_checked(found.elementType))
    if isinstance(found, MapType):
        return map_of(_checked(found.keyType), _checked(found.valueType))
    if isinstance(found, DecimalType):
        return found
    if type(found) in _SIMPLE.values():
        return type(found)()
    raise BadSchema(f"'{found.simpleString()}' is not a type that bodies can have.")
