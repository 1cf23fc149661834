"""What a query with `availableNow` reads: what was there when it began, however much comes meanwhile.

Theory of operation. Sequence numbers ascend within a fragment, so Busway tells the newest number of each, and what
is above it came later. Other servers do not tell: there the time counts, by the server's clock, which its HTTP door
tells to the second. A message of that very second may have come later and is read too. A server whose HTTP cannot be
reached has the clock of this machine, or one close to it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from busway.client.errors import ClientError
from busway_spark.servicebus.message_arrays import FRAGMENT_SHIFT
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpDoor

_SECOND_MS: Final = 1000
#: How far clocks may be apart without the query ending too early.
_SKEW_MS: Final = 2_000


@dataclass(frozen=True)
class ReadingTarget:
    #: When the query began, by the server's clock.
    at_ms: int
    #: The newest number of each fragment by then; None where the server does not tell.
    last_numbers: dict[int, int] | None = None

    def was_there(self, number: int) -> bool:
        if self.last_numbers is None:
            return True
        return number <= self.last_numbers.get(number >> FRAGMENT_SHIFT, 0)

    def is_behind(self, oldest_ms: int) -> bool:
        """Whether a claim whose oldest message came then is the last one, as far as times can tell."""
        return self.last_numbers is None and oldest_ms > self.at_ms

    @classmethod
    def by_numbers(cls, last_numbers: Sequence[int]) -> ReadingTarget:
        return cls(0, {number >> FRAGMENT_SHIFT: number for number in last_numbers})

    @classmethod
    def by_clock(cls, bus: Bus) -> ReadingTarget:
        told_ms = _server_ms(bus)
        return cls(int(time.time() * 1000) + _SKEW_MS if told_ms is None else told_ms + _SECOND_MS - 1)


def _server_ms(bus: Bus) -> int | None:
    """None when nobody answered; it is asked once, since there is another clock."""
    try:
        told = HttpDoor(bus, "", limit_s=0.0).date()
        return None if told is None else int(parsedate_to_datetime(told).timestamp()) * _SECOND_MS
    except (ClientError, ValueError):
        return None
