"""What has flowed in the last hour, as the server remembers it for plots."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from busway.model.flow import FlowTable
from busway.signals import rates
from busway.signals.rates import COARSE_SLOTS, FINE_MAX, KEPT_MAX, SLOTS, RateHistory


class Bus:
    def __init__(self) -> None:
        self.flows = FlowTable()
        self.rates = RateHistory(self.flows)

    def send(self, path: str, count: int) -> None:
        self.flows.of_fragment(path).taken_in(count, count, 0.001)

    def look(self, times: int = 1) -> None:
        async def looks() -> None:
            for _ in range(times):
                await self.rates.look()

        asyncio.run(looks())

    def total(self, path: str = "") -> int:
        told = self.rates.of_entity(path) if path else self.rates.of_namespace()
        counts = told["in"]
        assert isinstance(counts, list)
        return sum(counts)

    def last(self, path: str = "") -> int:
        told = self.rates.of_entity(path) if path else self.rates.of_namespace()
        counts = told["in"]
        assert isinstance(counts, list)
        return int(counts[-1])


def test_each_look_notes_what_has_flowed_since_the_last() -> None:
    """O-4: in, out and dead-lettered, ten seconds to a slot."""
    bus = Bus()
    bus.send("orders", 3)
    bus.flows.of_fragment("orders").handed_out(2, 20)
    bus.flows.of_fragment("orders").dead_lettered += 1
    bus.look()
    bus.send("orders", 4)
    bus.look()
    told = bus.rates.of_namespace()
    assert told["stepSeconds"] == 10
    assert [told[name][-2:] for name in ("in", "out", "deadLettered")] == [[3, 4], [2, 0], [1, 0]]  # type: ignore[index]


def test_an_hour_is_kept_and_no_more() -> None:
    """Memory: the oldest slot is written over."""
    bus = Bus()
    bus.send("orders", 5)
    bus.look()
    bus.look(SLOTS - 1)
    assert bus.total() == 5
    bus.look()
    assert bus.total() == 0
    assert len(bus.rates.of_namespace()["in"]) == SLOTS  # type: ignore[arg-type]


def test_an_entity_has_its_own_hour() -> None:
    """O-4: in minutes at first, in ten seconds once it is among the busiest; in any spelling of its name."""
    bus = Bus()
    bus.send("Orders", 6)
    bus.send("other", 1)
    bus.look()
    assert (bus.total("ORDERS"), bus.total("other"), bus.total("nobody")) == (6, 1, 0)
    bus.look(6)
    assert bus.rates.of_entity("orders")["stepSeconds"] == 10
    bus.send("orders", 7)
    bus.look()
    assert (bus.last("orders"), bus.total("orders")) == (7, 13)


def test_a_deleted_entity_takes_its_hour_along_and_leaves_no_dent() -> None:
    """E-86: one made anew under its name begins with nothing, and the whole never runs backwards."""
    bus = Bus()
    bus.send("orders", 6)
    bus.look()
    bus.flows.forget("orders")
    bus.look()
    assert (bus.total("orders"), bus.last()) == (0, 0)
    bus.send("orders", 2)
    bus.look()
    assert (bus.total("orders"), bus.last()) == (2, 2)


def test_an_entity_that_was_silent_for_an_hour_is_forgotten() -> None:
    """Memory: what is kept is what flows."""
    bus = Bus()
    bus.send("orders", 1)
    bus.look(6 * (COARSE_SLOTS + 2))
    assert not bus.rates._kept
    bus.send("orders", 2)
    bus.look()
    assert bus.last() == 2


def test_memory_has_a_bound_whatever_the_number_of_entities() -> None:
    """Memory: at most 8 MiB for 20,000 busy entities; the whole counts all of them."""
    bus = Bus()
    for number in range(20_000):
        bus.send(f"queue-{number}", 1 + number % 5)
    tracemalloc.start()
    try:
        bus.look(7)
        for number in range(0, 20_000, 3):
            bus.send(f"queue-{number}", 10)
        bus.look(7)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 8 * 1024 * 1024
    assert len(bus.rates._kept) == KEPT_MAX
    assert sum(kept.fine is not None for kept in bus.rates._kept.values()) == FINE_MAX
    assert bus.total() == 60_000 + 10 * len(range(0, 20_000, 3))


def test_who_comes_when_all_places_are_taken_gets_one_of_those_that_fell_silent() -> None:
    """Memory: a crowd that has gone does not keep others out, and old counts are no news."""
    bus = Bus()
    for number in range(KEPT_MAX + 1):
        bus.send(f"queue-{number}", 1)
    late = f"queue-{KEPT_MAX}"
    bus.look()
    assert bus.total(late) == 0
    bus.look(6 * 8)
    bus.send(late, 5)
    bus.look()
    bus.send(late, 3)
    bus.look()
    assert bus.total(late) == 3


def test_it_looks_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers: the next look is set before this one, and none after the stop."""
    monkeypatch.setattr(rates, "STEP_S", 0.001)
    looks: list[int] = []

    async def work() -> None:
        history = RateHistory(FlowTable())
        enough = asyncio.Event()

        async def look() -> None:
            looks.append(1)
            if len(looks) == 3:
                enough.set()

        monkeypatch.setattr(history, "look", look)
        history.start()
        await enough.wait()
        history.stop()
        await asyncio.sleep(0.01)

    asyncio.run(work())
    assert len(looks) == 3
