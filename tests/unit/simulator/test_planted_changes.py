"""Bugs that only show while entities are changed: each is planted, and the simulator's operator must find it within a
few of the seeds that have one."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from busway import compiled
from busway.broker.forward.transfers import Transfers
from busway.broker.fragment.expiry_and_schedule import Activator
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.runtime import Undelivered
from busway.broker.fragment.sent_run import SentRun
from busway.broker.namespace.rule_table import RuleRow, RuleTable
from busway.message.message import Message
from busway.model.errors import BrokerError, ServerBusy
from busway.store.contract import FragmentKey
from tests.changes.changes import CHANGES
from tests.simulator.faults import Faults
from tests.simulator.operated import chosen_subjects
from tests.simulator.simulation import simulate
from tests.simulator.world import SUBJECT_COUNT, has_operator

_SEEDS_MAX = 24
_OPERATIONS = 1_200


def seeds_that_change(*paths: str) -> list[int]:
    """Those whose operator changes one of these; all that have an operator when none is given."""
    found: list[int] = []
    for seed in range(1, 400):
        chance = Random(f"{seed}:operator")
        if has_operator(chance) and (not paths or set(paths) & set(chosen_subjects(chance, SUBJECT_COUNT))):
            found.append(seed)
    return found[:_SEEDS_MAX]


def change_only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """So that it is found soon."""
    chosen = tuple(change for change in CHANGES if any(name in change.name for name in names))
    monkeypatch.setattr("tests.simulator.operators.CHANGES", chosen)


def assert_found(seeds: list[int], *wanted: str) -> None:
    met: set[str] = set()
    for seed in seeds:
        met |= set(simulate(seed, _OPERATIONS).verdict.violations)
        if set(wanted) & met:
            return
    pytest.fail(f"found only {sorted(met)}")


@pytest.mark.skipif(
    compiled.status() == "compiled", reason="is planted in the sources; make test runs it there too"
)
def test_ids_that_are_remembered_although_their_messages_are_refused_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulator, A1: the sender tries again, is acknowledged, and the message is nowhere."""
    fail = SentRun.fail

    def remember_and_fail(self: SentRun, error: BrokerError) -> None:
        if self.ids is not None and isinstance(error, ServerBusy) and self.fragment.is_usable():
            self.fragment.duplicates.remember(self.fragment.write(), self.ids)
        fail(self, error)

    monkeypatch.setattr(SentRun, "fail", remember_and_fail)
    seeds = seeds_that_change(*(f"{topic}/Subscriptions/watched" for topic in ("digest", "ledger")))
    assert_found(seeds, "lost")


def test_what_was_deleted_for_a_receiver_and_is_not_put_back_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulator, A3: receive-and-delete while the queue is loaded anew."""

    def forget(self: Undelivered, place: tuple[str, FragmentKey], messages: list[Message]) -> None:
        del self, place, messages

    async def calm(self: Faults) -> None:
        for _ in range(10_000):
            if self.is_over:
                return
            await asyncio.sleep(1.0)

    monkeypatch.setattr(Undelivered, "add", forget)
    # What is lost with a store or a crash is lost by right.
    monkeypatch.setattr(Faults, "run", calm)
    change_only(monkeypatch, "Forward", "neighbour")
    assert_found(seeds_that_change("drops"), "lost")


def test_an_activator_that_a_refusal_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator, A4: everything scheduled in its store stays so."""
    activate = Activator._activate

    async def activate_once(
        self: Activator, key: FragmentKey, numbers: list[int], refusing: set[FragmentKey]
    ) -> int:
        count = await activate(self, key, numbers, refusing)
        if refusing:
            self.stop()
        return count

    monkeypatch.setattr(Activator, "_activate", activate_once)
    topics = [f"{topic}/Subscriptions/watched" for topic in ("events", "news")]
    assert_found(seeds_that_change(*topics), "not drained")


def test_rows_that_are_served_although_they_may_have_arrived_elsewhere_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulator, A2: forwarding is removed with messages on their way."""

    def serve_all(self: Transfers, source: Fragment) -> None:
        del self, source

    monkeypatch.setattr(Transfers, "hold_back", serve_all)
    assert_found(
        seeds_that_change(), "completed twice", "delivered after complete", "resurrected", "stored twice"
    )


def test_a_rule_that_counts_although_it_was_removed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: what is published afterwards is in no subscription that does not want it."""

    def keep(self: RuleTable, topic_key: str, row: RuleRow) -> None:
        del self, topic_key, row

    monkeypatch.setattr(RuleTable, "remove", keep)
    change_only(monkeypatch, "rule", "keys")
    assert_found(seeds_that_change("news/Subscriptions/blue", "events/Subscriptions/red"), "unexpected")


def test_an_entity_that_is_disabled_and_takes_messages_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: from the answer to the update on."""
    monkeypatch.setattr("busway.broker.fragment.settings._SEND_REFUSED", frozenset())
    change_only(monkeypatch, "Status")
    assert_found(seeds_that_change(), "accepted while disabled")
