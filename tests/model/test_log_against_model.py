"""A log under random use, time, restarts and failing commits behaves like a plain list."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from busway.model.errors import BadArgument, ServerBusy, StoreOutcomeUnknown
from busway.model.limits import Limits
from busway.streams.cursor import LATEST, NUMBER, START, TIME, Position
from busway.streams.hub_descriptions import RetentionDescription
from busway.streams.retention import LOOK_EVERY_S
from tests.harness.examples import examples_of
from tests.unit.streams.rig import HubRig, Recorder, Told, event

T = TypeVar("T")

HOUR_MS = 3_600_000
#: Everything small, so that tails overflow and removals come in slices.
LIMITS = Limits(tail_bytes_max=700, tails_bytes_max=900, sweep_rows_max=2)

SECONDS = st.sampled_from([0.001, 1.0, 61.0, 600.0, 1800.0, 3600.0, 7300.0])
KEYS = st.sampled_from([None, "x", "y", "z"])
BODIES = st.sampled_from(["", "text", "text", "x" * 90])


class Entry(NamedTuple):
    number: int
    body: str
    key: str | None
    at_ms: int


class LogMachine(RuleBasedStateMachine):
    """H-16, H-20…H-22, H-30, S-1: nothing lost, nothing twice, order, times, counts."""

    retention = RetentionDescription(retention_hours=1)

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.rig = HubRig(LIMITS, retention=self.retention)
        #: Everything that was ever durable; the index is the number.
        self.entries: list[Entry] = []
        self.standing: Recorder | None = None
        self.stands_from = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            self.run(self.rig.calm())
        finally:
            self.run(self.rig.store.close())
            self.loop.close()

    @property
    def now_ms(self) -> int:
        return self.rig.clock.wall_ms()

    @property
    def high_ms(self) -> int:
        return self.entries[-1].at_ms if self.entries else 0

    @initialize()
    def open(self) -> None:
        self.run(self.rig.open())

    # -- appending

    @rule(
        publications=st.lists(
            st.lists(st.tuples(KEYS, BODIES), min_size=1, max_size=4), min_size=1, max_size=3
        )
    )
    def append(self, publications: list[list[tuple[str | None, str]]]) -> None:
        """All of them join one batch."""
        told = self.run(self._append(publications))
        assert [each.error for each in told] == [None] * len(publications)
        self._note(publications)

    @rule(
        publications=st.lists(
            st.lists(st.tuples(KEYS, BODIES), min_size=1, max_size=3), min_size=1, max_size=2
        ),
        outcome=st.sampled_from(["refused", "applied", "lost"]),
    )
    def append_to_a_failing_store(
        self, publications: list[list[tuple[str | None, str]]], outcome: str
    ) -> None:
        """S-1: what is told as refused is not there; an unknown outcome is told as such."""
        if outcome == "refused":
            self.rig.store.refuse_next_commit()
        else:
            self.rig.store.lose_next_commit(is_applied=outcome == "applied")
        told = self.run(self._append(publications))
        expected = ServerBusy if outcome == "refused" else StoreOutcomeUnknown
        assert [type(each.error) for each in told] == [expected] * len(publications)
        if outcome == "applied":
            self._note(publications)
        self._absorb_standing(is_evicted=True)
        self.run(self.rig.reopen())

    async def _append(self, publications: list[list[tuple[str | None, str]]]) -> list[Told]:
        log = self.rig.log
        answers = []
        for publication in publications:
            told = Told()
            log.append([event(body, key) for key, body in publication], told)
            answers.append(told)
        await self.rig.calm()
        return answers

    def _note(self, publications: list[list[tuple[str | None, str]]]) -> None:
        at_ms = max(self.high_ms, self.now_ms)
        for publication in publications:
            for key, body in publication:
                self.entries.append(Entry(len(self.entries), body, key, at_ms))

    # -- time and failures

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.run(self.rig.advance(seconds))

    @rule(seconds=st.sampled_from([-100_000.0, -1.0, 1.0, 50.0]))
    def step_clock(self, seconds: float) -> None:
        """Somebody sets the machine's clock."""
        self.rig.clock.step_wall(seconds)

    @rule()
    def restart(self) -> None:
        self.standing = None
        self.run(self.rig.restart())

    # -- reading

    @precondition(lambda self: self.standing is None)
    @rule()
    def stand(self) -> None:
        """A reader that stays and keeps up."""
        self.standing = self.rig.reader(len(self.entries))
        self.stands_from = len(self.entries)

    @precondition(lambda self: self.standing is not None)
    @rule(credit=st.sampled_from([0, 1, 1000]))
    def give_credit(self, credit: int) -> None:
        assert self.standing is not None
        self.standing.credit = credit
        self.run(self._pull(self.standing))
        self._absorb_standing(is_evicted=False)

    async def _pull(self, reader: Recorder) -> None:
        reader.pull()
        await self.rig.calm()

    def _absorb_standing(self, *, is_evicted: bool) -> None:
        reader = self.standing
        if reader is None:
            return
        assert bool(reader.evicted_with) is is_evicted
        assert reader.cursor is not None
        self._check_read(reader)
        passed = self.entries[self.stands_from : reader.cursor.next_number]
        seen = set(reader.numbers)
        assert [entry for entry in passed if self._must_be_there(entry) and entry.number not in seen] == []
        if reader.credit > 0 and not is_evicted:
            assert reader.cursor.next_number == len(self.entries)
        if is_evicted:
            self.standing = None

    def _check_read(self, reader: Recorder) -> None:
        """In order, and each as it was sent."""
        assert all(before < after for before, after in pairwise(reader.numbers))
        for number, body, at_ms in zip(reader.numbers, reader.bodies(), reader.times, strict=True):
            entry = self.entries[number]
            assert (body, at_ms) == (entry.body, entry.at_ms)

    @rule(data=st.data(), is_inclusive=st.booleans())
    def begin_at_a_number(self, data: st.DataObject, is_inclusive: bool) -> None:
        number = data.draw(st.integers(0, len(self.entries) + 1))
        position = Position(NUMBER, number, is_inclusive)
        if number >= len(self.entries):
            with pytest.raises(BadArgument):
                self.run(self.rig.log.start_number(position))
            return
        self._check_start(position, lambda entry: entry.number > number - is_inclusive)

    @rule(data=st.data(), is_inclusive=st.booleans(), delta_ms=st.sampled_from([-1, 0, 1]))
    def begin_at_a_time(self, data: st.DataObject, is_inclusive: bool, delta_ms: int) -> None:
        times = sorted({entry.at_ms for entry in self.entries} | {self.now_ms, 0})
        at_ms = data.draw(st.sampled_from(times)) + delta_ms
        self._check_start(
            Position(TIME, at_ms, is_inclusive), lambda entry: entry.at_ms > at_ms - is_inclusive
        )

    def _check_start(self, position: Position, admits: Any) -> None:
        """Reading from there gives just those that are there and that the position admits."""
        start = self.run(self.rig.log.start_number(position))
        present = self.run(self.rig.read()).numbers
        expected = [number for number in present if admits(self.entries[number])]
        assert self.run(self.rig.read(start)).numbers == expected

    # -- what must hold

    @invariant()
    def everything_is_there_that_must_be(self) -> None:
        if not hasattr(self.rig, "hub"):
            return
        reader = self.run(self.rig.read())
        self._check_read(reader)
        present = set(reader.numbers)
        missing = [
            entry for entry in self.entries if self._must_be_there(entry) and entry.number not in present
        ]
        assert missing == []
        assert self.run(self.rig.log.start_number(Position(LATEST))) == len(self.entries)
        assert (
            self.run(self.rig.read(self.run(self.rig.log.start_number(Position(START))))).numbers
            == reader.numbers
        )
        self._check_info(reader.numbers)

    def _must_be_there(self, entry: Entry) -> bool:
        # The clock may have been set back meanwhile: times are those of the log, never less than it was.
        return self.longest_ms - entry.at_ms < HOUR_MS

    @property
    def longest_ms(self) -> int:
        """The latest that any look can have read from the clock."""
        self._longest_ms = max(getattr(self, "_longest_ms", 0), self.now_ms)
        return self._longest_ms

    def _check_info(self, present: list[int]) -> None:
        info = self.rig.log.info()
        heads = self.run(self.rig.store.chunk_heads(self.rig.log.key, 0, 10_000))
        assert info.last_number == len(self.entries) - 1
        assert info.events == len(present) == sum(head.events for head in heads)
        assert info.bytes == sum(head.size_bytes for head in heads)
        assert info.is_empty == (not present)
        if self.entries:
            assert info.begin_number == (present[0] if present else len(self.entries))
            assert info.last_at_ms == self.high_ms
        else:
            assert info.begin_number == -1

    @rule()
    def what_is_old_has_left(self) -> None:
        """H-30: two looks later at the latest; what was set back into the past waits for its time."""
        self.run(self.rig.advance(LOOK_EVERY_S))
        self.run(self.rig.advance(LOOK_EVERY_S))
        margin_ms = round(2 * LOOK_EVERY_S * 1000) + 1
        for number in self.run(self.rig.read()).numbers:
            assert not self._has_left(self.entries[number], margin_ms)

    def _has_left(self, entry: Entry, margin_ms: int) -> bool:
        # A chunk leaves whole: entries of one time are the least that shares one.
        return self.now_ms - entry.at_ms >= HOUR_MS + margin_ms


class SizedLogMachine(LogMachine):
    """H-30: by size."""

    retention = RetentionDescription(retention_hours=-1, partition_bytes_max=2_000)

    def _must_be_there(self, entry: Entry) -> bool:
        return entry.number == len(self.entries) - 1

    def _has_left(self, entry: Entry, margin_ms: int) -> bool:
        del entry, margin_ms
        heads = self.run(self.rig.store.chunk_heads(self.rig.log.key, 0, 10_000))
        return len(heads) > 1 and sum(head.size_bytes for head in heads) > 2_000


class CompactedLogMachine(LogMachine):
    """H-31: of each key the last stays, and everything without a key."""

    retention = RetentionDescription("Compact", -1, tombstone_retention_hours=1)

    def _must_be_there(self, entry: Entry) -> bool:
        if entry.key is None:
            return True
        is_last = all(later.key != entry.key for later in self.entries[entry.number + 1 :])
        return is_last and entry.body != ""

    def _has_left(self, entry: Entry, margin_ms: int) -> bool:
        del entry, margin_ms
        return False  # it waits until it is worth it

    @rule()
    def superseded_events_leave_in_time(self) -> None:
        """H-31: an hour later at the latest."""
        for _ in range(3):
            self.run(self.rig.advance(3600.0))
            self.run(self.rig.advance(61.0))
        present = [self.entries[number] for number in self.run(self.rig.read()).numbers]
        if self.high_ms > self.now_ms:
            return  # the clock was set back: nothing is old enough
        keys = [entry.key for entry in present if entry.key is not None]
        assert len(keys) == len(set(keys))


def machine_case(machine: type[LogMachine], examples: int) -> type[Any]:
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples_of(examples),
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    return case


TestLog = machine_case(LogMachine, 40)
TestSizedLog = machine_case(SizedLogMachine, 25)
TestCompactedLog = machine_case(CompactedLogMachine, 40)
