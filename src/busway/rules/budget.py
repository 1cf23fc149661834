"""What evaluating one rule for one message may cost, in characters walked.

A rule's text is short, but what it is held against is not: sixty patterns over a property of 32 KB are two million
steps, for each subscription and message. So whatever walks over texts of a message says before it does how many
characters that will be; beyond the budget the rule has failed for this message (T-60). What is charged follows from
rule and message alone, never from the time it took or from what else is published: the answer is the same each time.

Only LIKE and names that a message gives are charged. Texts are compared and put together at the speed of memory.
"""

from typing import Final

from busway.rules.errors import FilterError

#: Of one evaluation. A LIKE with a gap (`_`) over a property of 32 KB is 32,000 of them.
CHARACTERS_MAX: Final = 1_000_000
#: What is cheaper than a step from character to character is charged in quarters of one.
QUARTERS: Final = 4
_QUARTERS_MAX: Final = CHARACTERS_MAX * QUARTERS


class Budget:
    """Of one compiled rule, whose nodes share it; whoever evaluates the rule renews it first."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _QUARTERS_MAX

    def renew(self) -> None:
        self._left = _QUARTERS_MAX

    def walked(self) -> int:
        """Characters, since it was renewed; also those that were too many."""
        return (_QUARTERS_MAX - self._left) // QUARTERS

    def spend(self, quarters: int) -> None:
        """Raises FilterError when that is more than what is left."""
        self._left -= quarters
        if self._left < 0:
            raise FilterError(f"Evaluating it means walking over more than {CHARACTERS_MAX} characters.")
