"""Printing: JSON for programs, aligned columns for people, a progress bar for those who wait at a terminal."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import typer

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


class Progress(Protocol):
    def advance(self, count: int) -> None: ...


class _SilentProgress:
    def advance(self, count: int) -> None:
        del count


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Progress]:
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
