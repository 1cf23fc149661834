"""The tail of every error text: which failure it was, where and when (S-2, S-10, ERR-41).

Clients log the sentence, people search our log for its TrackingId. Nothing in it is secret.
"""

import re
from datetime import UTC, datetime
from typing import Final

from busway.clock import Clock, Entropy

_TRACKER_CHARACTERS_MAX: Final = 300
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class Tracking:
    """Writes `TrackingId:…, SystemTracker:…, Timestamp:…` with the clock and the randomness it was given."""

    __slots__ = ("_clock", "_entropy", "_host", "_namespace_name")

    def __init__(self, namespace_name: str, clock: Clock, entropy: Entropy) -> None:
        self._namespace_name = namespace_name
        self._clock = clock
        self._entropy = entropy
        self._host: str | None = None

    def of_one_client(self) -> "Tracking":
        """For a client that has not yet said by which name it knows us."""
        return Tracking(self._namespace_name, self._clock, self._entropy)

    def know_host(self, host: str | None) -> None:
        """The client's name for us, if it is one: what it is told about `sb://` addresses has it too."""
        self._host = host if host is not None and _HOST.fullmatch(host) else None

    def describe(self, sentence: str, path: str = "") -> str:
        """The sentence with the tail behind it."""
        return f"{self.addressed(sentence, self._host)} {self.tail(path)}"

    def addressed(self, sentence: str, host: str | None) -> str:
        """The broker knows the namespace by its name only; programs look for the host that they asked."""
        if host is None:
            return sentence
        return sentence.replace(f"'sb://{self._namespace_name}/", f"'sb://{host}/", 1)

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
