"""One fault: a text of the sources that becomes another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SOURCE: Final = ROOT / "src"


class PlaceLost(Exception):
    """The text of a fault is not in its file any more, or more than once: the row must follow the code."""


@dataclass(frozen=True)
class Fault:
    name: str
    #: The rule or the defect that it is about.
    about: str
    #: Below `src`.
    file: str
    #: Exactly once in the file; as many lines as it needs for that.
    text: str
    replacement: str
    #: What should see it: paths that pytest understands, those that see it soonest first.
    tests: tuple[str, ...]

    def broken(self, source: Path = SOURCE) -> str:
        """The file with the fault in it. Raises PlaceLost."""
        path = source / self.file
        found = path.read_text() if path.is_file() else ""
        count = found.count(self.text)
        if count != 1:
            where = "is not there" if not found else f"has the text {count} times"
            raise PlaceLost(f"{self.name}: {self.file} {where}:\n{self.text}")
        return found.replace(self.text, self.replacement)
