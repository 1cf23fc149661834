"""Rows of the catalogue and notes of stages: JSON text with a format. Written so that what a newer version has added
stays, and read so that damage is told of as damage.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from busway.model.errors import BadArgument
from busway.store.contract import StoreError, StoreTooNew

Json = dict[str, object]

ROW_FORMAT: Final = 1
#: Of rows that name several fragments.
SHARES_FORMAT: Final = 2


def written_row(known: Json, previous: str | None, row_format: int = ROW_FORMAT) -> str:
    kept = {} if previous is None else json.loads(previous)
    return json.dumps({**kept, "format": row_format, **known}, ensure_ascii=False, separators=(",", ":"))


@contextmanager
def read_row(key: str, text: str, newest: int = SHARES_FORMAT) -> Iterator[Json]:
    """What the row holds. Raises StoreTooNew, and StoreError also where whoever makes something of it cannot."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("format"), int):
            raise BadArgument("an object with a format is expected.")
        if data["format"] > newest:
            raise StoreTooNew(f"The catalogue's row '{key}' was written by a newer version of Busway.")
        yield data
    except (ValueError, KeyError, BadArgument) as error:
        raise StoreError(
            f"The catalogue's row '{key}' cannot be read: restore the store from a backup."
        ) from error


def text_at(data: Mapping[str, object], key: str, default: str = "") -> str:
    value = data.get(key, default)
    if not isinstance(value, str):
        raise BadArgument(f"{key}: a text in quotes is expected.")
    return value


def integer_at(data: Mapping[str, object], key: str) -> int:
    value = data.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(f"{key}: a whole number is expected.")
    return value


def list_at(data: Mapping[str, object], key: str) -> list[object]:
    value = data.get(key, [])
    if not isinstance(value, list):
        raise BadArgument(f"{key}: a list is expected.")
    return value


def object_at(data: Json, key: str) -> Json:
    value = data.get(key)
    if not isinstance(value, dict):
        raise BadArgument(f"{key}: an object is expected.")
    return value
