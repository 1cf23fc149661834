"""The SQL files of a store's package: the statements of a file by name, the schema, migrations."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from typing import Final

#: Tables by place: PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED.
PLACE_TABLES: Final = ("messages", "deferred", "scheduled")

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


class Statements:
    """Of one file."""

    def __init__(self, package: str, name: str) -> None:
        parts = _NAME.split(sql_file(package, name))
        self.texts = {
            name: "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
            for name, body in zip(parts[1::2], parts[2::2], strict=True)
        }

    def query(self, name: str, *, place: str = "", source: str = "", target: str = "") -> str:
        """The statement, with table names put in. They come from this package only, never from outside."""
        text = self.texts[name]
        return text.replace("{place}", place).replace("{source}", source).replace("{target}", target)

    def by_place(self, name: str) -> tuple[str, str, str]:
        """The statement once per place."""
        first, second, third = (self.query(name, place=table) for table in PLACE_TABLES)
        return first, second, third


@cache
def statements_of(package: str, name: str = "queries.sql") -> Statements:
    """Each file is read once."""
    return Statements(package, name)


def sql_file(package: str, name: str) -> str:
    found = pkgutil.get_data(package, name)
    assert found is not None, "the files of a package can be read, in a folder or an archive"
    return found.decode().replace("\r\n", "\n")


def migrations(package: str) -> list[tuple[int, str]]:
    """(number, text) of every migration, in order."""
    # It brings archives and temporary files along: for new and for old stores only.
    from importlib import resources

    folder = resources.files(package).joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), folder.joinpath(name).read_text(encoding="utf-8")) for name in names]
