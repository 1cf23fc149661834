"""One of each: what both formats and all jobs need has one home, and whoever makes another is told where it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "busway_spark"


@pytest.mark.parametrize(
    ("what", "home"),
    [
        (r"\bHTTPS?Connection\(", "wire/bus.py"),
        (r"\bServiceBusClient[.(]", "wire/bus.py"),
        (r"\bServiceBusAdministrationClient[.(]", "wire/bus.py"),
        (r"\basyncio\.(new_event_loop|Runner)\b", "wire/bus.py"),
        (r"\bdef administration\(", "wire/bus.py"),
        (r"\.getresponse\(\)", "wire/http_client.py wire/bus.py"),
        (r"\bdef sentence_of\(", "watching/watched.py"),
        (r"\bConnectionString\.parse\(", "wire/bus.py"),
        (r"\bPT\b.*(?:\\d|\[0-9\])", "given_options.py"),
        (r"streaming\.sql\.batchId|sql\.streaming\.queryId", "writing/write_names.py"),
    ],
    ids=[
        "connections of HTTP",
        "clients of AMQP",
        "clients that administer",
        "event loops",
        "administration",
        "answers of HTTP",
        "sentences of Spark",
        "connection strings",
        "durations",
        "query and batch",
    ],
)
def test_there_is_one_home(what: str, home: str) -> None:
    """House style: a second one would have patience, certificates or names of its own."""
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(what, path.read_text(encoding="utf-8"))
    }
    assert found <= set(home.split()), f"see {home}"
