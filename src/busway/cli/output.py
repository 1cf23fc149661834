"""What a verb prints, and points in time as people type them.

JSON is for programs, aligned columns are for people, a progress bar for those who wait at a terminal.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

import typer

from busway.cli.verbs import WrongCall
from busway.model.durations import parse_duration
from busway.model.errors import BadArgument

Row = Sequence[object]


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(heads: Sequence[str], rows: Sequence[Row]) -> None:
    """Columns as wide as their longest cell; nothing at all when there are no rows."""
    if not rows:
        return
    cells = [[str(head) for head in heads], *([shown(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    for line in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def shown(cell: object) -> str:
    """Text for a terminal: names come from strangers, control characters do not reach the screen."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(cell))


class JsonList:
    """A JSON list written item by item, so that what was received is printed before the next one is asked."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, item: object) -> None:
        typer.echo(("[\n" if self._count == 0 else ",\n") + json.dumps(item, ensure_ascii=False), nl=False)
        sys.stdout.flush()
        self._count += 1

    def close(self) -> None:
        typer.echo("[]" if self._count == 0 else "\n]")


class ShownProgress(Protocol):
    def advance(self, count: int) -> None: ...


class _SilentProgress:
    def advance(self, count: int) -> None:
        del count


@contextmanager
def progress(label: str, total: int | None) -> Iterator[ShownProgress]:
    """A bar on standard error while work goes on; silent when nobody watches (not a terminal)."""
    if not sys.stderr.isatty():
        yield _SilentProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        class _Bar:
            def advance(self, count: int) -> None:
                bar.advance(task, count)

        yield _Bar()


def parse_instant_ms(text: str, option: str, now_ms: int) -> int:
    """`2030-01-01T08:00:00Z` (UTC when no offset is given) or a duration from now such as `PT10M`."""
    if text[:1] in ("P", "p"):
        return now_ms + parse_duration_ms(text, option)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise WrongCall(
            f"{option}: '{text}' is neither a time like 2030-01-01T08:00:00Z nor a duration like PT10M."
        ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return round(instant.timestamp() * 1000)


def parse_duration_ms(text: str, option: str) -> int:
    try:
        return parse_duration(text.upper(), option)
    except BadArgument as error:
        raise WrongCall(str(error)) from error


def format_instant(instant_ms: int) -> str:
    """ISO 8601 in UTC, or the number itself where no date can be written."""
    try:
        instant = datetime.fromtimestamp(instant_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(instant_ms)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
