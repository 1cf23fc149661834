"""Steps follow what is asked for: four times as much costs about four times as many, and what there is more of beside
it costs nothing. Steps are counted, so each run counts the same, but for what timers do meanwhile."""

from __future__ import annotations

import pytest

from tests.cost.conftest import Player
from tests.cost.instruments import Steps
from tests.cost.row import FLAT, Row
from tests.cost.table import ROWS
from tests.cost.verbs import code_of
from tests.cost.world import World

TIMES = 4
#: Of four times as much.
LINEAR_MAX = 6.0
FLAT_MAX = 1.5
#: Timers and threads bring a few steps of their own.
CALLS_BESIDE = 600
SQL_BESIDE = 300
#: What another row's request left to the background, slice by slice, may come in between.
TRIES = 3
#: Of a row that has no size, to see what it enters.
ENOUGH = 50


def counted(play: Player, row: Row, n: int) -> Steps:
    steps = Steps()
    play(row, n, steps)
    code = code_of(row.verb)
    assert code is None or steps.entered(code), (
        f"the row is listed for {row.verb}, which its request does not enter"
    )
    return steps


@pytest.mark.parametrize("row", [row for row in ROWS if row.few], ids=str)
def test_steps_follow_what_is_asked_for(play: Player, world: World, row: Row) -> None:
    """Attack: no request is dear by what it makes the server look through."""
    few = counted(play, row, row.few)
    times = FLAT_MAX if row.growth == FLAT else LINEAR_MAX
    calls_max, sql_max = times * few.calls + CALLS_BESIDE, times * few.sql + SQL_BESIDE
    seen = []
    for _ in range(TRIES):
        many = counted(play, row, row.few * TIMES)
        seen.append(f"calls {few.calls} → {many.calls}, SQL {few.sql} → {many.sql}")
        if many.calls <= calls_max and many.sql <= sql_max:
            print(seen[-1])
            return
        world.let_stores_rest()
    raise AssertionError(f"{TIMES} times as much: {'; '.join(seen)}")


@pytest.mark.parametrize("row", [row for row in ROWS if not row.few and code_of(row.verb)], ids=str)
def test_a_row_does_what_it_says(play: Player, row: Row) -> None:
    """Attack: what a row is listed for is what its request really enters."""
    counted(play, row, min(row.n, ENOUGH))
