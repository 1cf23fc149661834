"""For all tests: what `make test-quick` leaves to `make test`, and a process in which tests are quick."""

from __future__ import annotations

import gc
import signal
from pathlib import Path

import pytest

from tests.harness.postgres_server import own_postgres as own_postgres
from tests.harness.postgres_server import postgres as postgres
from tests.harness.postgres_server import postgres_url as postgres_url

TESTS = Path(__file__).parent
#: Files whose tests start processes, or try everything that can be tried: seconds, not milliseconds.
SLOW = {
    TESTS / name
    for name in (
        "cost/test_bounds.py",
        "cost/test_growth.py",
        "store_contract/test_equivalence.py",
        "store_contract/test_log_equivalence.py",
        "store_contract/test_log_damage.py",
        "store_contract/test_sqlite_damage.py",
        "store_contract/test_sqlite_faults.py",
        "store_contract/test_sqlite_scale.py",
        "unit/amqp/test_codec_fuzz.py",
        "unit/amqp/test_codec_oracles.py",
        "unit/amqp/test_engine_fuzz.py",
        "unit/broker/test_clock_ahead.py",
        "unit/broker/test_many_mortals.py",
        "unit/broker/test_no_cycles.py",
        "unit/broker/test_publish_turns.py",
        "unit/chaos/test_crash_points.py",
        "unit/cluster/test_cluster_node.py",
        "upgrade/test_postgres_schema.py",
        "unit/gateway/test_amqp_no_cycles.py",
        "unit/gateway/test_amqp_strangers.py",
        "unit/gateway/test_sas_matrix_amqp.py",
        "unit/gateway/test_sas_matrix_http.py",
        "unit/gateway/test_strange_values.py",
        "unit/gateway/test_websocket_patience.py",
        "unit/journal/test_feed.py",
        "unit/rules/test_budget.py",
        "unit/rules/test_evaluate.py",
        "unit/rules/test_selection.py",
        "unit/signals/test_figures_under_change.py",
        "unit/signals/test_many_figures.py",
        "unit/simulator/test_planted_changes.py",
        "unit/simulator/test_planted_faults.py",
        "unit/simulator/test_simulation.py",
        "unit/store/test_postgres_cluster.py",
        "unit/store/test_postgres_server_checks.py",
        "unit/store/test_postgres_tls.py",
        "unit/test_event_chunk.py",
        "unit/test_structure.py",
        "wire/test_event_transcripts.py",
        "wire/test_program_transcripts.py",
    )
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path in SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_configure() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, and so would every server and script of a test.
    And while tests are collected nothing becomes garbage."""
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Modules and ten thousand collected tests live as long as the process: the cyclic collector need not walk over
    them again and again, which was a quarter of all work. What a test leaves behind may lie for a moment longer."""
    gc.enable()
    gc.set_threshold(50_000, 10, 10)
    gc.collect()
    gc.freeze()
