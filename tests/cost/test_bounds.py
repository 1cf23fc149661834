"""What one request may cost: no turn of the loop above a bound of CPU time, no memory above a bound of bytes."""

from __future__ import annotations

import pytest

from busway import compiled
from tests.cost.conftest import Player
from tests.cost.instruments import Bytes, Turns
from tests.cost.machine import slowness
from tests.cost.row import Row
from tests.cost.table import ROWS

PURE = "pure" in compiled.status()
TURN_S_MAX = 0.250 if PURE else 0.100
#: A machine that does other things gives a thread fewer steps for its time; and what other rows left to the
#: background, locks that end a minute later, allocates too.
TRIES = 3


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_no_request_holds_the_loop(play: Player, row: Row) -> None:
    """Attack: whatever a client asks for, others have their turn within a moment."""
    seen, allowed_s = [], TURN_S_MAX
    for _ in range(TRIES):
        turns = Turns()
        play(row, row.n, turns)
        seen.append(f"{turns.longest_s * 1000:.0f} ms in {turns.what_ran}")
        allowed_s = TURN_S_MAX * slowness()
        if turns.longest_s <= allowed_s:
            print(seen[-1])
            return
    raise AssertionError(f"longest turns: {'; '.join(seen)}; allowed are {allowed_s * 1000:.0f} ms")


@pytest.mark.parametrize("row", [row for row in ROWS if row.unread], ids=str)
def test_no_request_holds_memory(play: Player, row: Row) -> None:
    """Attack: a client that asks and asks and takes nothing makes the server keep no more than a bound."""
    seen = []
    for _ in range(TRIES):
        held = Bytes(row.unread, reads=False)
        play(row, row.n, held)
        seen.append(f"{held.most / 1024:.0f} KiB, {held.left / 1024:.0f} KiB left")
        if held.most <= row.memory_bytes_max:
            print(seen[-1])
            return
    raise AssertionError(f"held: {'; '.join(seen)}; allowed are {row.memory_bytes_max / 1024:.0f} KiB")
