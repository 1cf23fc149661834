"""Which sessions have rows, as a store in PostgreSQL knows it without looking."""

from __future__ import annotations

from busway.store.contract import COUNTER_BITS
from busway.store.postgres import known_sessions
from busway.store.postgres.known_sessions import KnownSessions

_ONE, _TWO, _THREE = ((1 << COUNTER_BITS) + number for number in (1, 2, 3))


def test_a_session_is_looked_for_once() -> None:
    """House style: the first time nobody knows; then it has rows; and when it had none left, that is known, too."""
    known = KnownSessions()
    assert known.begun([(_ONE, b"a"), (_TWO, b"a")], set()) == [(_ONE, b"a", 0)]
    assert known.begun([(_THREE, b"a")], set()) == []
    known.ended([(1, b"a")])
    assert known.begun([(_THREE, b"a")], set()) == [(_THREE, b"a", 1)]


def test_a_row_that_comes_back_may_be_the_first() -> None:
    """X-1: it lies before what the session has."""
    known = KnownSessions()
    known.begun([(_TWO, b"a")], set())
    assert known.begun([(_ONE, b"a"), (_THREE, b"a")], {_ONE}) == [(_ONE, b"a", 0)]


def test_what_is_known_has_a_bound() -> None:
    """House style: beyond it the database is asked again."""
    known = KnownSessions()
    known.begun([(_ONE, b"%d" % number) for number in range(known_sessions.SESSIONS_MAX + 1)], set())
    assert known.begun([(_TWO, b"5")], set()) == [(_TWO, b"5", 0)]
    known.forget()
    assert known.begun([(_THREE, b"5")], set()) == [(_THREE, b"5", 0)]
