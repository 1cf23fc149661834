"""The chaos runs of event hubs, as rows of the table in `run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.chaos.crash_streams import STREAM_SCENARIOS as CRASHES
from tests.chaos.crash_streams import crash_in_streams
from tests.chaos.scenario import Outcome
from tests.chaos.stream_damage import damaged_streams
from tests.chaos.stream_room import fill_streams, retention_under_readers
from tests.chaos.streams import cut_power_of_streams, kill_streams

#: name → (scenario, rounds of a short run)
STREAM_SCENARIOS: Final[dict[str, tuple[Callable[[Path, int, int], Outcome], int]]] = {
    "streams": (kill_streams, 20),
    "streams-power": (cut_power_of_streams, 10),
    "streams-retention": (retention_under_readers, 3),
    "streams-full": (fill_streams, 1),
    "streams-damage": (damaged_streams, 200),
    "crash-streams": (crash_in_streams, len(CRASHES)),
}
