"""A bus with a bug must not pass: each is planted below the broker, or into what is expected of it, and must be found
within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

import pytest

from busway.message.message import Message
from busway.store.contract import CommitBatch, CommitRefused, FragmentKey, StoreError
from tests.simulator.simulated_store import SimulatedStore
from tests.simulator.simulation import simulate
from tests.simulator.topology import PARTITION_COUNT, Traits, destinations

_SEEDS_MAX = 40
_apply = SimulatedStore._apply
_finish = SimulatedStore._finish
_fail = SimulatedStore._fail
_commit_s = SimulatedStore._commit_s


def violations(is_enough: Callable[[set[str]], bool], promising: int = 1) -> set[str]:
    """Those of the first seed that has enough of them, or else of all. The promising one is tried first."""
    met: set[str] = set()
    for seed in dict.fromkeys([promising, *range(1, _SEEDS_MAX + 1)]):
        met |= set(simulate(seed, 400).verdict.violations)
        if is_enough(met):
            break
    return met


def assert_found(*wanted: str, promising: int = 1) -> None:
    assert set(wanted) & violations(lambda met: bool(set(wanted) & met), promising)


Spoil = Callable[[SimulatedStore, CommitBatch], None]


def _drop_a_put(store: SimulatedStore, batch: CommitBatch) -> None:
    if store.commits % 20 == 19:
        batch.puts = batch.puts[:-1]


def _drop_deletes(store: SimulatedStore, batch: CommitBatch) -> None:
    if store.commits % 20 == 19:
        batch.deletes = []


def _drop_changes(_store: SimulatedStore, batch: CommitBatch) -> None:
    batch.changes = []


def _drop_states(store: SimulatedStore, batch: CommitBatch) -> None:
    if store.commits % 2:
        batch.session_states = []


def _drop_marks(_store: SimulatedStore, batch: CommitBatch) -> None:
    batch.transfer_marks = []


def _drop_counters(_store: SimulatedStore, batch: CommitBatch) -> None:
    batch.counters = {}


def _damage(store: SimulatedStore, batch: CommitBatch) -> None:
    if store.commits % 10 == 9 and batch.puts:
        message: Message = batch.puts[0][2]
        message.bare = message.bare.replace(b"colour", b"colouR")


@pytest.mark.parametrize(
    ("spoil", "promising", "wanted"),
    [
        (_drop_a_put, 1, ("lost",)),
        (_drop_deletes, 1, ("resurrected", "delivered after complete")),
        (_drop_changes, 1, ("forgot a failed delivery",)),
        (_drop_states, 1, ("wrong session state",)),
        (_drop_marks, 51, ("stored twice", "delivered after complete", "completed twice")),
        (_drop_counters, 1, ("sequence reused", "not drained", "lost")),
        (_damage, 1, ("changed body",)),
    ],
)
def test_a_store_that_does_not_write_what_it_was_given_is_found(
    spoil: Spoil, promising: int, wanted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulator: rows, deletions, counts, states, marks, bodies."""

    def apply(self: SimulatedStore, batch: CommitBatch) -> StoreError | None:
        spoil(self, batch)
        return _apply(self, batch)

    monkeypatch.setattr(SimulatedStore, "_apply", apply)
    assert_found(*wanted, promising=promising)


def test_a_refusal_that_was_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: phantom. The store says that nothing is stored, and it is."""

    def fail(self: SimulatedStore, batch: CommitBatch, outcome: StoreError) -> None:
        if isinstance(outcome, CommitRefused):
            _apply(self, batch)
        _fail(self, batch, outcome)

    monkeypatch.setattr(SimulatedStore, "_fail", fail)
    assert_found("phantom", promising=8)


def test_half_a_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: torn. Of a commit whose outcome is unknown some is there and some is not."""

    def finish(self: SimulatedStore, batch: CommitBatch) -> None:
        if self.mood.next_end.startswith("unknown"):
            self.mood.next_end = "unknown and applied"
            batch.puts = batch.puts[::2]
        _finish(self, batch)

    monkeypatch.setattr(SimulatedStore, "_finish", finish)
    assert_found("torn", promising=5)


def test_a_commit_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: somebody waits for ever."""

    def commit_s(self: SimulatedStore) -> float:
        return 1e9 if self.commits > 50 else _commit_s(self)

    monkeypatch.setattr(SimulatedStore, "_commit_s", commit_s)
    assert_found("never answered", "client waits for ever")


def test_forgotten_ids_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: a leak in duplicate detection."""

    async def known_ids(
        self: SimulatedStore, fragment: FragmentKey, ids: Iterable[str], since_ms: int
    ) -> set[str]:
        del self, fragment, ids, since_ms
        return set()

    monkeypatch.setattr(SimulatedStore, "known_ids", known_ids)
    assert_found("stored twice", "delivered after complete", "completed twice")


def test_a_key_in_another_fragment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: the hash of keys is part of the data format."""

    def other_hash(key: str) -> int:
        return (crc32(key.encode()) + 1) % PARTITION_COUNT

    monkeypatch.setattr("tests.simulator.verdict.index_of_key", other_hash)
    assert_found("wrong fragment for its key")


def test_a_copy_too_few_or_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: the fan-out of a topic is what the filters say."""

    def other_filters(path: str, traits: Traits) -> list[str]:
        if path != "events":
            return destinations(path, traits)
        return ["events/Subscriptions/red", "events/Subscriptions/large"]

    monkeypatch.setattr("tests.simulator.verdict.destinations", other_filters)
    assert {"lost", "unexpected"} <= violations(lambda met: {"lost", "unexpected"} <= met)


def test_a_lock_that_ends_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: two hold one message."""
    monkeypatch.setattr("tests.simulator.consumers.LOCK_S", 300.0)
    assert_found("lock overlap")


def test_a_lock_that_ends_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: somebody settles what is not his any more."""
    monkeypatch.setattr("tests.simulator.consumers.LOCK_S", 0.5)
    assert_found("settled after its lock")
