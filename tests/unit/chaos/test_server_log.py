"""When a store failed, by the server's own words."""

import time
from datetime import datetime

import pytest

from tests.chaos.server_log import FORGETTING_S, store_failures


def _line(at: float, said: str) -> str:
    stamp = datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return f"{stamp},{int(at * 1000) % 1000:03d} ERROR busway.stores {said}\n"


def test_a_failure_lasts_from_the_commit_until_everything_is_forgotten() -> None:
    now = float(int(time.time()))
    said = (
        _line(now, "A commit of store store-1 failed: IOError: disk I/O error.")
        + _line(
            now + 0.02, "The store store-1 failed: A commit … Its queues are unavailable until it is back."
        )
        + _line(now + 0.5, "The store store-1 is back in service.")
        + _line(
            now + 2, "The store store-0 failed: it is failed. Its queues are unavailable until it is back."
        )
    )
    offset = time.time() - time.monotonic()
    failures = store_failures(said)
    assert failures["store-1"] == [
        pytest.approx((now - offset, now + 0.02 + FORGETTING_S - offset), abs=0.01)
    ]
    assert failures["store-0"] == [
        pytest.approx((now + 2 - offset, now + 2 + FORGETTING_S - offset), abs=0.01)
    ]


def test_a_quiet_log_tells_of_no_failure() -> None:
    assert store_failures("The store store-1 failed: but nobody stamped this line\n") == {}
