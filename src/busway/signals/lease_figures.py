"""What a server owns of stores that it shares with others, as figures: also while it serves nothing."""

from __future__ import annotations

from busway.signals import metrics as names
from busway.signals.measured_process import MeasuredLeases
from busway.signals.metrics import ExpositionText, labels_text


class LeaseFigures:
    """Copied at one moment."""

    def __init__(self, leases: MeasuredLeases) -> None:
        self._owned = leases.owned_stores()
        self._left_s = leases.lease_left_s()
        self._moves = sorted(leases.moves().items())

    def write(self, text: ExpositionText) -> None:
        text.add(names.STORES_OWNED, [("", self._owned)])
        text.add(names.LEASE_LEFT, [("", round(self._left_s, 3))])
        text.add(
            names.STORE_MOVES, [(labels_text(["reason"], [reason]), count) for reason, count in self._moves]
        )


def figures_of_a_standby(leases: MeasuredLeases) -> bytes:
    """All there is to measure of a server that waits for its stores."""
    text = ExpositionText()
    LeaseFigures(leases).write(text)
    return text.text()
