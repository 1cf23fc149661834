"""How many random examples a test draws. Where a run of the Python sources and one of the compiled modules draw for
the same tests, each draws half of them: together they try as many as either would alone."""

from __future__ import annotations

import os

#: Set by scripts/run_tests.sh.
BOTH_BUILDS = "BUSWAY_TESTS_RUN_BOTH_BUILDS"


def examples_of(wanted: int) -> int:
    return wanted // 2 if BOTH_BUILDS in os.environ else wanted
