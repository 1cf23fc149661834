"""Stores that come and go, and transactions that are killed and cut off: the chaos runs, in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.partitions import stores_come_and_go
from tests.chaos.transactions import kill_transactions

pytestmark = pytest.mark.fault


def test_a_lost_store_costs_only_its_own_fragments(tmp_path: Path) -> None:
    """P-2, P-25, P-31, P-48, P-61, P-65: one hangs, one fails, one is taken out of service; all of them come back."""
    result = stores_come_and_go(tmp_path / "stores", 3, 3)
    assert result.violations == {}, result
    assert result.holds, result


def test_kills_and_cuts_tear_no_transaction_apart(tmp_path: Path) -> None:
    """TX-3, TX-8, TX-9, TX-17, TX-18: in a topic, between queues of two stores, between partitioned queues."""
    result = kill_transactions(tmp_path / "transactions", 2, 3)
    assert result.violations == {}, result
    assert result.holds, result
