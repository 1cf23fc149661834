"""`busway top`: the overview in a terminal."""

from __future__ import annotations

import json
from io import StringIO

from rich.console import Console

from busway.cli.top import _HEADS, busiest, table_of
from tests.harness.shell import Shell


def test_the_busiest_come_first() -> None:
    """Use: what flows, then what is dead, then what waits."""
    columns = ["path", "inPerSecond", "outPerSecond", "deadLettered", "active"]
    rows = [["a", 0, 0, 0, 9], ["b", 0, 0, 2, 0], ["c", 0, 1.5, None, None], ["d", 0, 0, 0, 0]]
    assert [row["path"] for row in busiest({"columns": columns, "rows": rows})] == ["c", "b", "a", "d"]


def test_names_are_text_on_a_narrow_terminal() -> None:
    """Attack: what strangers name is no markup, moves no cursor, and is not squeezed out."""
    columns = [*_HEADS]
    row = dict.fromkeys(columns, 0) | {"path": "[red]x\x1b[2J", "kind": "queue", "status": "Active"}
    told = {"namespace": "n", "stores": [], "connections": 0, "columns": columns, "rows": [[*row.values()]]}
    console = Console(width=80, record=True, file=StringIO())
    console.print(table_of(told, 5))
    assert "[red]x\N{REPLACEMENT CHARACTER}[2J" in console.export_text()


def test_it_shows_every_entity_once(shell: Shell) -> None:
    """Command line: --once prints what there is, --json for programs."""
    shell("queue", "create", "seen-by-top")
    shell("send", "seen-by-top", "--body", "x", "--count", "3")
    printed = shell("top", "--once")
    assert "seen-by-top" in str(printed)
    told = json.loads(str(shell("top", "--json")))
    (row,) = [row for row in told["rows"] if row[0] == "seen-by-top"]
    assert row[1] == "queue"
