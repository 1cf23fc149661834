"""Faults against dead letters that go back to work: lost, double, or taken from somebody."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

_MOVES: Final = "busway/broker/bulk/letter_moves.py"
_TESTS: Final = ("tests/unit/broker/test_letter_moves.py",)

LETTERS: Final = (
    Fault(
        "a moved dead letter stays where it was",
        "Dead letters: it leaves with the commit that stores it where it goes",
        _MOVES,
        """        write.remove(_RESUBMITTED[self._place], rows)
""",
        "",
        _TESTS,
    ),
    Fault(
        "a moved dead letter can still be received",
        "Dead letters: what was read before is taken out of memory",
        _MOVES,
        """            fragment.withdraw(rows)
""",
        """            pass
""",
        _TESTS,
    ),
    Fault(
        "a dead letter is moved under somebody's lock",
        "R-2: what is locked stays",
        _MOVES,
        """            if number in held or fragment""",
        """            if fragment""",
        _TESTS,
    ),
    Fault(
        "a dead letter that a claim holds is moved",
        "R-50: what a claim holds stays",
        _MOVES,
        """ or stamp_of(row.changes) is not None:""",
        ":",
        _TESTS,
    ),
    Fault(
        "a lost answer is told as somebody else's doing",
        "Dead letters: what is gone at a second request was moved by the first",
        "busway_spark/pipeline/deadletters/tasks.py",
        """                are_tried = True
""",
        "",
        ("tests/spark/test_deadletter_door.py",),
    ),
)
