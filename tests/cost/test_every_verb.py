"""Nothing can be asked for that has no row: performatives, operations and routes are taken from the code."""

from __future__ import annotations

from busway.model.descriptions import ALL_RIGHTS
from tests.cost.row import AMQP, HTTP, MANAGEMENT, NOBODY, WEBSOCKET
from tests.cost.table import ROWS
from tests.cost.verbs import ASKED, CHOOSERS, PARTS, REFUSALS, composites, operations, routes

WAYS = (AMQP, MANAGEMENT, HTTP, WEBSOCKET)


def test_every_performative_has_a_row() -> None:
    """Attack: what the engine can read from a peer is measured."""
    assert composites() == ASKED | PARTS, "is a new one asked for, or a part of another?"
    assert {row.verb for row in ROWS} >= ASKED


def test_strangers_write_every_performative() -> None:
    """Attack: before a login too. What is sent to a transaction needs one."""
    assert {row.verb for row in ROWS if row.right == NOBODY} >= ASKED - {"Discharge"}


def test_every_operation_has_a_row_with_its_right() -> None:
    """Attack: what `$management` knows is measured with no more right than it needs."""
    rows = {(row.verb, row.right) for row in ROWS if row.way == MANAGEMENT and row.right != NOBODY}
    assert rows == set(operations().items())


def test_every_route_has_a_row() -> None:
    """Attack: what the HTTP gateway answers is measured."""
    verbs = {row.verb for row in ROWS if row.way == HTTP}
    assert set(routes()) - CHOOSERS - REFUSALS - verbs == set()
    assert set(routes()) >= CHOOSERS | REFUSALS, "these are gone"


def test_every_right_asks_by_every_way() -> None:
    """Attack: the worst of each right, as far as a way asks for one."""
    seen = {(row.right, row.way) for row in ROWS}
    wanted = {(right, way) for right in (NOBODY, *ALL_RIGHTS) for way in WAYS}
    cannot = {("Manage", WEBSOCKET)}  # what is made by attaching asks for it: over AMQP
    assert wanted - seen == cannot


def test_rows_are_told_apart_by_their_names() -> None:
    """House style: a name that comes twice hides one of the two."""
    names = [str(row) for row in ROWS]
    assert len(names) == len(set(names))
