"""What every figure has to reach: the bar, which decides, and the goal, which is told besides.

All in one place, so that a page of figures and the words about them cannot differ. `today` is what was measured at
the commit `TODAY`; where a figure is compared with that commit, both run in turns in the same run, and it is 1.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The commit that rows "against today" compare with.
TODAY = "a3987cb"
#: The last commit that knew no stores in PostgreSQL.
BEFORE_POSTGRES = "80d88c1"


@dataclass(frozen=True)
class Bar:
    bar: float
    goal: float | None = None
    today: str = ""


# -- rates: at least so many times the peer's

SEND = Bar(4.2, 5.0, "2.9x")
RECEIVE_WINDOW = Bar(5.5, 7.0, "2.8x")
RECEIVE_BACKLOG = Bar(4.5, 5.5, "2.8x")
BOTH = Bar(5.5, 6.0, "3.6x")
BOTH_ARTEMIS = Bar(3.0, 3.5, "2-2.5x")
CONNECTIONS = Bar(4.5, 5.0, "3.6x")
#: Without any compiled module.
PURE_RATE = Bar(1.5, 3.0)

# -- costs: at most so many times the peer's

CPU_BOTH = Bar(0.09, 0.07, "0.15x")
LATENCY_P50 = Bar(0.65, 0.5, "0.79x")
LATENCY_P99 = Bar(0.7, 0.5, "0.78x")

# -- costs: at most so many times what they are at TODAY, CPU

AGAINST_TODAY = {
    "partitioned": Bar(0.65, 0.5, "1x"),
    "sessions": Bar(0.8, 0.65, "1x"),
    "duplicates": Bar(0.8, 0.65, "1x"),
    "topic": Bar(0.8, 0.65, "1x"),
    "hub-batches": Bar(0.8, 0.6, "1x"),
    "hub-single": Bar(0.8, 0.6, "1x"),
    "hub-bulk": Bar(0.8, 0.6, "1x"),
}
PURE_AGAINST_TODAY = Bar(1.0, 0.7, "1x")

# -- amounts: at most so much

BACKLOG_EXTRA_US = Bar(1.5, 0.5, "4-9 µs")
START_S = Bar(0.5, 0.3, "0.86 s")
START_QUEUED_S = Bar(0.8, 0.5, "1.13 s")
START_KILLED_S = Bar(3.0, 1.0)
RSS_IDLE_MIB = Bar(75, 60, "84 MiB")
RSS_QUEUED_MIB = Bar(120, 100, "107 MiB")
POSTGRES_RSS_IDLE_MIB = Bar(110, 80)
POSTGRES_RSS_QUEUED_MIB = Bar(400, 200)
POSTGRES_START_S = Bar(2.0, 1.0)
WRITTEN_BYTES = Bar(1_400, 1_163, "3,150 B")
#: Against TODAY, in the same run.
WRITTEN_BEHIND = Bar(1.0, 0.8, "1x")
IDLE_PERCENT = Bar(0.3, 0.1, "0.85 %")
IDLE_CONNECTIONS_PERCENT = Bar(1.0)
LONGEST_TURN_MS = Bar(10.0, 5.0)

# -- ten minutes at full send: the last minute against the first

SUSTAINED_RATE = Bar(0.9, 0.95)
SUSTAINED_P99 = Bar(3.0, 2.0)
LOG_MIB = Bar(1_024)

# -- messages in PostgreSQL: rates and costs against the peer's, CPU with that of PostgreSQL

POSTGRES_SEND = Bar(1.5, 2.5)
POSTGRES_RECEIVE = Bar(1.5, 3.0)
POSTGRES_BOTH = Bar(1.5, 3.0)
POSTGRES_CPU = Bar(0.4, 0.25)
POSTGRES_P50 = Bar(1.8, 1.2)
POSTGRES_P99 = Bar(2.0, 1.2)

# -- messages in PostgreSQL: CPU against the same when it is young, small, plain or not there

POSTGRES_PARTITIONED = Bar(1.25, 1.15)
POSTGRES_QUEUED = Bar(1.25, 1.0)
POSTGRES_SNAPSHOT = Bar(1.5, 1.0)
SQLITE_BESIDE_POSTGRES = Bar(1.03, 1.0)
