"""Where an order of times begins, for a store in PostgreSQL."""

from __future__ import annotations

from busway.store.postgres.time_head import BEGINNING, TimeHead


def test_it_moves_up_to_what_a_read_found_first() -> None:
    """House style: and never down by it."""
    head = TimeHead()
    assert head.at == BEGINNING
    head.seen((50, 1), stored_number=1)
    head.seen((40, 1), stored_number=1)
    assert head.at == (50, 1)


def test_a_row_that_comes_earlier_takes_it_down() -> None:
    """M-11: a message that is scheduled for an earlier time is found, too."""
    head = TimeHead()
    head.seen((50, 1), stored_number=1)
    head.joined(2, (30, 7))
    assert head.at == (30, 7)


def test_what_came_while_a_read_was_under_way_bounds_what_it_found() -> None:
    """M-11: the read cannot have seen it."""
    head = TimeHead()
    head.joined(5, (30, 7))
    head.seen((50, 1), stored_number=4)
    assert head.at == (30, 7)
    head.seen((50, 1), stored_number=5)
    assert head.at == (50, 1)


def test_a_read_that_lasted_too_long_finds_nothing() -> None:
    """House style: of so many commits nobody remembers the first."""
    head = TimeHead()
    for number in range(1, 400):
        head.joined(number, (1_000 - number, 1))
    before = head.at
    head.seen((5_000, 1), stored_number=1)
    assert head.at == before
