"""The tail of every error text: which failure it was, where and when (S-2, S-10, ERR-41).

Clients log the sentence, people search our log for its TrackingId. Nothing in it is secret.
"""

from datetime import UTC, datetime
from typing import Final

from busway.clock import Clock, Entropy

_TRACKER_CHARACTERS_MAX: Final = 300


class Tracking:
    """Writes `TrackingId:…, SystemTracker:…, Timestamp:…` with the clock and the randomness it was given."""

    def __init__(self, namespace_name: str, clock: Clock, entropy: Entropy) -> None:
        self._namespace_name = namespace_name
        self._clock = clock
        self._entropy = entropy

    def describe(self, sentence: str, path: str = "") -> str:
        """The sentence with the tail behind it."""
        return f"{sentence} {self.tail(path)}"

    def tail(self, path: str = "") -> str:
        return (
            f"TrackingId:{self._tracking_id()}, SystemTracker:{self._tracker(path)}, "
            f"Timestamp:{self._timestamp()}"
        )

    def _tracking_id(self) -> str:
        digits = self._entropy.bytes(16).hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}_G0"

    def _tracker(self, path: str) -> str:
        """A path comes from a client: control characters and endless names do not go into texts and logs."""
        tracker = f"{self._namespace_name}:{path}" if path else self._namespace_name
        return "".join(
            letter if letter.isprintable() else "?" for letter in tracker[:_TRACKER_CHARACTERS_MAX]
        )

    def _timestamp(self) -> str:
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S")
