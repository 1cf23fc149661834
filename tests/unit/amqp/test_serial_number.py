"""Serial numbers around the wrap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.session import HALF, MODULUS, distance, less

LAST = MODULUS - 1
numbers = st.one_of(st.integers(0, LAST), st.integers(0, 5), st.integers(LAST - 5, LAST))
steps = st.integers(-(HALF - 1), HALF - 1)


@pytest.mark.parametrize(
    ("start", "count", "end"),
    [(0, 1, 1), (LAST, 1, 0), (LAST, 2, 1), (0, -1, LAST), (1, -2, LAST), (LAST - 1, 5, 3), (7, 0, 7)],
)
def test_counting_goes_around_the_wrap(start: int, count: int, end: int) -> None:
    """AMQP 2.8.10: sequence numbers are 32 bits wide."""
    assert (start + count) % MODULUS == end
    assert distance(start, end) == count


@pytest.mark.parametrize(
    ("left", "right"), [(0, 1), (LAST, 0), (LAST - 3, 2), (5, 5 + HALF - 1), (LAST, HALF - 2)]
)
def test_order_holds_around_the_wrap(left: int, right: int) -> None:
    """RFC 1982 3.2: the number that lies less than half the circle ahead is the greater one."""
    assert less(left, right)
    assert not less(right, left)


@given(numbers, steps)
def test_distance_is_what_was_added(start: int, count: int) -> None:
    """RFC 1982 3.1: addition and distance are inverse, wherever the counter stands."""
    end = (start + count) % MODULUS
    assert distance(start, end) == count
    assert less(start, end) == (count > 0)


def test_a_number_is_not_before_itself() -> None:
    """RFC 1982 3.2: equality is neither less nor greater."""
    for number in (0, 1, HALF, LAST):
        assert not less(number, number)
        assert distance(number, number) == 0
