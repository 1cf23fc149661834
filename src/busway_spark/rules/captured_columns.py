"""Where a captured file has what rules see of a message (`busway_spark.pipeline.captured.captured`).

Properties are found in steps that all rules share. First `properties` becomes pairs of name and variant; then each
property that any rule names becomes columns (`sql_values.AnyKind`). These are generated (`inline` of an array of
one), because Spark moves a filter below a plain projection and would then work the same out again for each
mention.

Names are equal without case, as the broker folds them (T-22). Spark's `lower` is not Python's `casefold` (the long
s, sharp s, ligatures), so a name becomes a regular expression: every place of the folded name allows all
characters that fold to it, and a run of places also those that fold to the whole run.

Rules see a message at the moment of its publishing, when it has no number and no enqueued time yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import Final

from busway.message.message import EPOCH_TICKS
from busway.rules.subject import folded
from busway_spark.rules import sql_values
from busway_spark.rules.sql_values import (
    INTEGER,
    MOMENT,
    SPAN,
    TEXT,
    AnyKind,
    Form,
    Nothing,
    OneKind,
    Unsupported,
    constant,
)

_PATTERN_CHARACTERS_MAX: Final = 4_000
_FOLD_CHARACTERS_MAX: Final = 3
_TEXT_COLUMNS: Final = {
    "MessageId": "messageId",
    "SessionId": "sessionId",
    "PartitionKey": "partitionKey",
    "CorrelationId": "correlationId",
    "Label": "subject",
    "To": "to",
    "ReplyTo": "replyTo",
    "ReplyToSessionId": "replyToSessionId",
    "ContentType": "contentType",
}
_OTHERS: Final[dict[str, tuple[Form, tuple[str, ...]]]] = {
    "TimeToLive": (
        OneKind(SPAN, "((unix_micros(`expiresAt`) - unix_micros(`enqueuedTime`)) * 10L)"),
        ("expiresAt", "enqueuedTime"),
    ),
    "ScheduledEnqueueTimeUtc": (
        OneKind(MOMENT, f"(unix_micros(`scheduledEnqueueTime`) * 10L + {EPOCH_TICKS}L)"),
        ("scheduledEnqueueTime",),
    ),
    "EnqueuedSequenceNumber": (OneKind(INTEGER, "`enqueuedSequenceNumber`"), ("enqueuedSequenceNumber",)),
    "DeliveryCount": (constant(0), ()),
    "State": (constant(0), ()),
}
#: What no captured file has, though a live rule may see it.
NOT_CAPTURED: Final = frozenset({"Size", "ViaPartitionKey", "DeadLetterSource"})
_ALL: Final = "_busway_properties"
_KINDS: Final = "_busway_types"
_INTEGER_TYPES: Final = "'ubyte', 'ushort', 'uint', 'ulong', 'byte', 'short', 'int', 'long'"
_FIELD_NAME: Final = re.compile(r"_busway_p\d+_\w")
#: Which kind a value `r` has, by its JSON and by its AMQP type; `n` is a double that JSON has no form for. A number
#: with a point is a decimal to Spark; what has 19 digits or more, none of them behind the point, was an integer.
_SORT: Final = f"""CASE
 WHEN r.k = 'STRING' THEN CASE WHEN r.y IS NULL OR r.y IN ('string', 'symbol', 'char') THEN 't'
  WHEN r.y IN ('float', 'double') THEN 'n' WHEN r.y = 'timestamp' THEN 'm' WHEN r.y = 'uuid' THEN 'g'
  WHEN r.y = 'binary' THEN 'x' END
 WHEN r.k = 'BIGINT' THEN CASE WHEN r.y IS NULL OR r.y IN ({_INTEGER_TYPES}) THEN 'i'
  WHEN r.y IN ('float', 'double') THEN 'd' END
 WHEN r.k = 'BOOLEAN' AND r.y IS NULL THEN 'b'
 WHEN (r.y IS NULL OR r.y IN ('float', 'double')) AND (r.k = 'DOUBLE' OR (startswith(r.k, 'DECIMAL')
  AND NOT r.k RLIKE '^DECIMAL\\\\((19|[23][0-9]),0')) THEN 'd' END"""
_WORDS: Final = "try_variant_get(f.v, '$', 'string')"
_NO_NUMBER: Final = f"try_cast({_WORDS} AS DOUBLE)"
_TIME: Final = f"unix_micros(try_cast({_WORDS} AS TIMESTAMP)) * 10L + {EPOCH_TICKS}L"
_BINARY: Final = f"try_to_binary({_WORDS}, 'base64')"
_UNREAD: Final = (
    f"CASE f.c WHEN 'n' THEN {_NO_NUMBER} IS NULL WHEN 'm' THEN ({_TIME}) IS NULL"
    f" WHEN 'x' THEN {_BINARY} IS NULL ELSE f.c IS NULL END"
)
_FIELDS: Final = {
    "t": f"IF(f.c = 't', {_WORDS}, NULL)",
    "i": "IF(f.c = 'i', try_variant_get(f.v, '$', 'bigint'), NULL)",
    "d": f"CASE f.c WHEN 'd' THEN try_variant_get(f.v, '$', 'double') WHEN 'n' THEN {_NO_NUMBER} END",
    "b": "IF(f.c = 'b', try_variant_get(f.v, '$', 'boolean'), NULL)",
    "m": f"IF(f.c = 'm', {_TIME}, NULL)",
    "s": "CAST(NULL AS BIGINT)",
    "g": f"IF(f.c = 'g', lower(replace({_WORDS}, '-', '')), NULL)",
    "x": f"IF(f.c = 'x', {_BINARY}, NULL)",
    #: What is there, is not null and has no value here must be asked about.
    "a": f"coalesce(f.e AND f.k <> 'VOID' AND {_UNREAD}, false)",
    "e": "f.e",
    "w": "coalesce(f.y IN ('float', 'symbol', 'char'), false)",
}


def name_pattern(name: str) -> str:
    """Of Java, for the whole of a name. Raises Unsupported where it would be very long."""
    wanted = folded(name)
    tails = [""] * (len(wanted) + 1)
    for at in range(len(wanted) - 1, -1, -1):
        ways = [_class_of(wanted[at], wanted[at : at + 1]) + tails[at + 1]]
        for length in range(2, min(_FOLD_CHARACTERS_MAX, len(wanted) - at) + 1):
            characters = _folding_to().get(wanted[at : at + length])
            if characters:
                ways.append(_class_of("", wanted[at : at + length]) + tails[at + length])
        tails[at] = ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"
        if len(tails[at]) > _PATTERN_CHARACTERS_MAX:
            raise Unsupported("a name with very many spellings")
    return rf"\A{tails[0]}\z"


def _class_of(itself: str, run: str) -> str:
    characters = itself + "".join(_folding_to().get(run, ()))
    return "[" + "".join(f"\\x{{{ord(character):x}}}" for character in characters) + "]"


@cache
def _folding_to() -> dict[str, list[str]]:
    """By folded form the characters that are not in it already."""
    found: dict[str, list[str]] = {}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        form = character.casefold()
        if form != character:
            found.setdefault(form, []).append(character)
    return found


class CapturedColumns:
    """Of some rules together. `columns` are those that they read; `properties` has one name for each struct."""

    def __init__(self) -> None:
        self.columns: dict[str, None] = {}
        #: Folded name → the struct's column.
        self._properties: dict[str, str] = {}

    def user(self, name: str) -> AnyKind:
        key = folded(name)
        if key not in self._properties:
            name_pattern(key)  # raises before anything has changed
            self._properties[key] = f"_busway_p{len(self._properties)}"
            self._reads("properties", "propertyTypes")
        return AnyKind(self._properties[key], is_columns=True)

    def system(self, name: str) -> Form:
        column = _TEXT_COLUMNS.get(name)
        if column is not None:
            self._reads(column)
            return OneKind(TEXT, f"`{column}`")
        form, columns = _OTHERS.get(name, (Nothing(), ()))
        self._reads(*columns)
        return form

    def _reads(self, *columns: str) -> None:
        self.columns.update(dict.fromkeys(columns))

    def steps(self, used: Iterable[str]) -> list[str]:
        """Select lists to be run one after the other, each beside `*`. `used`: SQL that names the fields of
        properties; those that it does not name are not worked out."""
        if not self._properties:
            return []
        named = set(_FIELD_NAME.findall(" ".join(used)))
        pairs = "map_entries(from_json(`properties`, 'MAP<STRING, VARIANT>'))"
        kinds = "from_json(`propertyTypes`, 'MAP<STRING, STRING>')"
        steps = [f"inline(array(struct({pairs}, {kinds}))) AS ({_ALL}, {_KINDS})"]
        for key, column in self._properties.items():
            fields = [name for name in _FIELDS if f"{column}_{name}" in named]
            if fields:
                columns = ", ".join(f"{column}_{name}" for name in fields)
                steps.append(f"inline(array({_struct(key, fields)})) AS ({columns})")
        return steps


def _struct(key: str, fields: list[str]) -> str:
    """Of the last pair with this name, as the broker takes the last."""
    is_meant = f"p -> p.key RLIKE {sql_values.text(name_pattern(key))}"
    pair = f"try_element_at(filter({_ALL}, {is_meant}), -1)"
    seen = (
        "q -> named_struct('e', q IS NOT NULL, 'v', q.value, 'k', schema_of_variant(q.value),"
        f" 'y', try_element_at({_KINDS}, q.key))"
    )
    sorted_ = f"r -> named_struct('e', r.e, 'v', r.v, 'k', r.k, 'y', r.y, 'c', {_SORT})"
    body = ", ".join(f"'{name}', {_FIELDS[name]}" for name in fields)
    steps = f"transform(transform(array({pair}), {seen}), {sorted_})"
    return f"element_at(transform({steps}, f -> named_struct({body})), 1)"
