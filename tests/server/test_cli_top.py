"""`busway top`: the overview in a terminal."""

from __future__ import annotations

import json

from busway.cli.top import busiest
from tests.harness.shell import Shell


def test_the_busiest_come_first() -> None:
    """Use: what flows, then what is dead, then what waits."""
    columns = ["path", "inPerSecond", "outPerSecond", "deadLettered", "active"]
    rows = [["a", 0, 0, 0, 9], ["b", 0, 0, 2, 0], ["c", 0, 1.5, None, None], ["d", 0, 0, 0, 0]]
    assert [row["path"] for row in busiest({"columns": columns, "rows": rows})] == ["c", "b", "a", "d"]


def test_it_shows_every_entity_once(shell: Shell) -> None:
    """Command line: --once prints what there is, --json for programs."""
    shell("queue", "create", "seen-by-top")
    shell("send", "seen-by-top", "--body", "x", "--count", "3")
    printed = shell("top", "--once")
    assert "seen-by-top" in str(printed)
    told = json.loads(str(shell("top", "--json")))
    (row,) = [row for row in told["rows"] if row[0] == "seen-by-top"]
    assert row[1] == "queue"
