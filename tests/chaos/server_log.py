"""What a server's own log tells of its stores, on the clock of the histories."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from datetime import datetime

#: The locks of a failed store are gone a moment after the log says so.
FORGETTING_S = 0.1

_LINE = re.compile(
    r"^(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \w+ \S+ "
    r"(?:A commit of store (?P<broke>\S+) failed|The store (?P<left>\S+) failed)",
    re.MULTILINE,
)


def store_failures(said: str) -> dict[str, list[tuple[float, float]]]:
    """By store: from the moment a commit failed until everything in memory about it was forgotten."""
    offset = time.time() - time.monotonic()
    failures: dict[str, list[tuple[float, float]]] = defaultdict(list)
    broke: dict[str, float] = {}
    for line in _LINE.finditer(said):
        moment = datetime.fromisoformat(line["at"]).astimezone().timestamp() - offset
        if line["broke"] is not None:
            broke.setdefault(line["broke"], moment)
        else:
            store = line["left"]
            failures[store].append((broke.pop(store, moment), moment + FORGETTING_S))
    return dict(failures)
