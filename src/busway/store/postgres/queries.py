"""The statements of `queries.sql` by name."""

from __future__ import annotations

import pkgutil
import re
from typing import Final

#: Tables by place: PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED.
PLACE_TABLES: Final = ("messages", "deferred", "scheduled")

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


def _parse(text: str) -> dict[str, str]:
    parts = _NAME.split(text)
    return {
        name: "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def sql_file(name: str) -> str:
    """The text of an SQL file of this package."""
    found = pkgutil.get_data(__package__, name)
    assert found is not None, "the files of this package can be read, in a folder or an archive"
    return found.decode().replace("\r\n", "\n")


def migrations() -> list[tuple[int, str]]:
    """(format, text) of every migration, in order."""
    from importlib import (
        resources,
    )  # brings archives and temporary files along: for new and for old databases only

    folder = resources.files(__package__).joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), folder.joinpath(name).read_text(encoding="utf-8")) for name in names]


_QUERIES: Final = _parse(sql_file("queries.sql"))


def query(name: str, *, place: str = "", source: str = "", target: str = "") -> str:
    """The statement, with table names put in. They come from this package only, never from outside."""
    text = _QUERIES[name]
    return text.replace("{place}", place).replace("{source}", source).replace("{target}", target)


def by_place(name: str) -> tuple[str, str, str]:
    """The statement once per place."""
    first, second, third = (query(name, place=table) for table in PLACE_TABLES)
    return first, second, third
