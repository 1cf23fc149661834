"""`bodyFormat`, `bodySchema` and `badRecords`: what both formats say about bodies, checked when a source is made."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql.types import BinaryType, DataType, StringType, VariantType

from busway_spark.bodies.ddl import BadSchema, parse_ddl

BODY_FORMAT: Final = "bodyFormat"
BODY_SCHEMA: Final = "bodySchema"
BAD_RECORDS: Final = "badRecords"
NAMES: Final = (BODY_FORMAT, BODY_SCHEMA, BAD_RECORDS)

BINARY: Final = "binary"
TEXT: Final = "text"
JSON: Final = "json"
AVRO: Final = "avro"
VARIANT: Final = "variant"
FORMATS: Final = (BINARY, TEXT, JSON, AVRO, VARIANT)

PERMISSIVE: Final = "permissive"
DROP: Final = "drop"
FAIL: Final = "fail"
POLICIES: Final = (PERMISSIVE, DROP, FAIL)

_FILE_BYTES_MAX: Final = 1024 * 1024


class WrongBodyOption(ValueError):
    """Each format says it under its own name."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"{name}: {sentence}")
        self.option = name
        self.sentence = sentence


@dataclass(frozen=True)
class BodyOptions:
    """Travels to executors; a schema from a file comes along as its text."""

    format: str = BINARY
    schema: str | None = None
    policy: str = PERMISSIVE

    @property
    def is_binary(self) -> bool:
        return self.format == BINARY

    @property
    def keeps_corrupt(self) -> bool:
        """Whether there is a column for bodies that could not be decoded."""
        return not self.is_binary and self.policy == PERMISSIVE

    def body_type(self) -> DataType:
        """Raises BadSchema."""
        if self.format == JSON:
            return parse_ddl(self.schema or "")
        if self.format == AVRO:
            # Slow to import, and most queries have no Avro.
            from busway_spark.bodies.avro_bodies import shape_of

            return shape_of(json.loads(self.schema or "")).data_type
        if self.format == VARIANT:
            return VariantType()
        return StringType() if self.format == TEXT else BinaryType()


#: Bodies as they are.
AS_THEY_ARE: Final = BodyOptions()


def read_body_options(given: Callable[[str], str | None]) -> BodyOptions:
    """`given` tells an option by its name. Raises WrongBodyOption."""
    kind = _choice(given, BODY_FORMAT, FORMATS)
    policy = _choice(given, BAD_RECORDS, POLICIES, PERMISSIVE)
    text = given(BODY_SCHEMA)
    if kind not in (JSON, AVRO):
        if text is not None:
            raise WrongBodyOption(BODY_SCHEMA, f"is for {BODY_FORMAT} {JSON} and {AVRO}, not for {kind}.")
        if kind == BINARY and given(BAD_RECORDS) is not None:
            raise WrongBodyOption(BAD_RECORDS, f"needs a {BODY_FORMAT} that a body can fail to have.")
        return BodyOptions(kind, None, policy)
    if text is None or not text.strip():
        wanted = "columns as DDL (a INT, b STRING)" if kind == JSON else "an Avro schema as JSON, or its file"
        raise WrongBodyOption(BODY_SCHEMA, f"is missing; {BODY_FORMAT} {kind} needs {wanted}.")
    options = BodyOptions(kind, _avro_text(text) if kind == AVRO else text, policy)
    try:
        options.body_type()
        _check_avro(options)
    except BadSchema as error:
        raise WrongBodyOption(BODY_SCHEMA, f"cannot be used: {error}") from None
    return options


def _choice(
    given: Callable[[str], str | None], name: str, values: tuple[str, ...], default: str = BINARY
) -> str:
    text = (given(name) or default).strip().lower()
    if text not in values:
        raise WrongBodyOption(name, f"must be one of {', '.join(values)}, not '{text[:60]}'.")
    return text


def _check_avro(options: BodyOptions) -> None:
    if options.format == AVRO:
        from busway_spark.bodies.avro_bodies import parse_avro_schema

        parse_avro_schema(json.loads(options.schema or ""))


def _avro_text(text: str) -> str:
    """The schema itself: it begins as JSON does, everything else is the name of a file."""
    if not text.lstrip().startswith(("{", "[", '"')):
        text = _file_text(Path(text.strip()))
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise WrongBodyOption(BODY_SCHEMA, "is no JSON, as Avro schemas are.") from None
    return text


def _file_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise WrongBodyOption(BODY_SCHEMA, f"the file '{path}' is larger than {_FILE_BYTES_MAX} bytes.")
        return data.decode()
    except OSError as error:
        raise WrongBodyOption(
            BODY_SCHEMA, f"is neither an Avro schema nor a file that can be read: '{path}', {error.strerror}."
        ) from None
    except UnicodeDecodeError:
        raise WrongBodyOption(BODY_SCHEMA, f"the file '{path}' is no text.") from None
