"""A queue under random use, time, restarts and failing commits behaves like a plain one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from busway.broker.fragment.locks import Delivery
from busway.message.message import NEVER_MS
from busway.model.errors import MessageLockLost, MessageNotFound, ServerBusy, StoreOutcomeUnknown
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.harness.examples import examples_of
from tests.model.plain_queue import ACTIVE, DEFERRED, SCHEDULED, PlainQueue
from tests.unit.broker.rig import Answer, Recorder, Rig, text

T = TypeVar("T")

LOCK_S = 20
#: Indexed by the numbers of the message states.
STATES = (ACTIVE, DEFERRED, SCHEDULED)
#: Everything small, so that windows overflow, rewind and refill all the time.
LIMITS = Limits(window_messages_max=4, returned_numbers_max=3, sweep_rows_max=3, window_bytes_max=2_000)

SECONDS = st.sampled_from([0.0, 0.5, 3.0, 10.0, 19.999, 20.0, 61.0])
TTLS_MS = st.sampled_from([-1, -1, -1, 2_000, 15_000, 40_000])
DELAYS_MS = st.sampled_from([0, 0, 0, 0, 4_000, 30_000])
IDS = st.sampled_from([None, None, "x", "y", "z"])
WINDOW_MS = 25_000


class QueueMachine(RuleBasedStateMachine):
    """S-1, S-33, S-34, R-1…R-19, R-40…R-53, M-35…M-45, D-5: nothing lost, nothing twice, order, counts."""

    dead_letters_expired = False
    detects_duplicates = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.rig = self.new_rig(
            lock_duration_ms=LOCK_S * 1000,
            max_delivery_count=3,
            dead_lettering_on_message_expiration=self.dead_letters_expired,
            requires_duplicate_detection=self.detects_duplicates,
            duplicate_detection_history_time_window_ms=WINDOW_MS,
        )
        window_ms = WINDOW_MS if self.detects_duplicates else None
        self.plain = PlainQueue(LOCK_S, 3, self.dead_letters_expired, window_ms)
        self.standing: Recorder | None = None
        self.held: dict[int, Delivery] = {}
        self.sent = 0

    def new_rig(self, **description: Any) -> Rig:
        return Rig(LIMITS, **description)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            self.run(self._everything_expired_leaves())
        finally:
            self.run(self.rig.store.close())
            self.loop.close()

    @property
    def now(self) -> float:
        return self.rig.clock.monotonic()

    @property
    def now_ms(self) -> int:
        return self.rig.clock.wall_ms()

    @initialize()
    def open(self) -> None:
        self.run(self.rig.open())

    # -- sending

    @rule(wanted=st.lists(st.tuples(TTLS_MS, DELAYS_MS, IDS), min_size=1, max_size=7))
    def send(self, wanted: list[tuple[int, int, str | None]]) -> None:
        self.run(self._send(wanted))
        self._absorb()

    async def _send(self, wanted: list[tuple[int, int, str | None]]) -> None:
        messages = []
        for ttl_ms, delay_ms, message_id in wanted:
            self.sent += 1
            body, due_at_ms = f"m{self.sent}", self.now_ms + delay_ms if delay_ms else 0
            messages.append(text(body, ttl_ms=ttl_ms, scheduled_at_ms=due_at_ms, message_id=message_id))
            self.plain.send(body, ttl_ms, self.now_ms, due_at_ms=due_at_ms, message_id=message_id)
        assert await self.rig.send(*messages) == []

    @precondition(lambda self: self._numbers_in(SCHEDULED))
    @rule(data=st.data(), is_wrong=st.booleans())
    def cancel_scheduled(self, data: st.DataObject, is_wrong: bool) -> None:
        """S-33: all of them or none."""
        numbers = data.draw(st.lists(st.sampled_from(self._numbers_in(SCHEDULED)), min_size=1, unique=True))
        if is_wrong:
            with pytest.raises(MessageNotFound):
                self.run(self.rig.main.cancel_scheduled([*numbers, self.plain.last_number + 1]))
            return
        self.run(self.rig.main.cancel_scheduled(numbers))
        for number in numbers:
            self.plain.complete(number)

    # -- receiving

    @precondition(lambda self: self.standing is None)
    @rule(count=st.integers(1, 6))
    def receive(self, count: int) -> None:
        """R-6: by number, and as many as there are."""
        expected = self.plain.available(self.now_ms)[:count]
        deliveries = self.run(self.rig.receive(count))
        assert [delivery.message.sequence_number for delivery in deliveries] == expected
        for delivery in deliveries:
            self._note_delivery(delivery)

    @precondition(lambda self: self.standing is None)
    @rule(count=st.integers(1, 6))
    def receive_and_delete(self, count: int) -> None:
        expected = self.plain.available(self.now_ms)[:count]
        deliveries = self.run(self.rig.receive(count, deletes=True))
        assert [delivery.message.sequence_number for delivery in deliveries] == expected
        for number in expected:
            self.plain.complete(number)

    @precondition(lambda self: self.standing is None)
    @rule(credit=st.integers(1, 8), refuses=st.integers(0, 1))
    def stand(self, credit: int, refuses: int) -> None:
        """A receiver that stays, and now and then hands something back."""
        self.standing = self.run(self._stand(credit, refuses))
        self._absorb()

    async def _stand(self, credit: int, refuses: int) -> Recorder:
        standing = self.rig.receiver(0)
        standing.refuses, standing.credit = refuses, credit
        self.rig.main.wake(standing)
        await self.rig.calm()
        standing.refuses = 0
        self.rig.main.wake(standing)
        await self.rig.calm()
        return standing

    @precondition(lambda self: self.standing is not None)
    @rule()
    def leave(self) -> None:
        assert self.standing is not None
        self.rig.main.remove_receiver(self.standing)
        self.standing = None

    @precondition(lambda self: self._numbers_in(DEFERRED))
    @rule(data=st.data(), deletes=st.booleans())
    def receive_by_number(self, data: st.DataObject, deletes: bool) -> None:
        wanted = data.draw(st.lists(st.sampled_from(self._numbers_in(DEFERRED)), min_size=1, unique=True))
        rows = [self.plain.rows[number] for number in wanted]
        if any(row.token is not None for row in rows):
            with_error = self._failed_fetch(wanted, deletes)
            assert with_error
            return
        expired = [n for n in wanted if self.plain.rows[n].expires_at_ms <= self.now_ms]
        if expired:
            assert self._failed_fetch(wanted, deletes)
            for number in expired:
                self.plain.sweep(number)
            return
        for delivery in self.run(self.rig.main.receive_by_number(wanted, deletes=deletes)):
            if deletes:
                self.plain.complete(delivery.message.sequence_number)
            else:
                self._note_delivery(delivery)

    def _failed_fetch(self, wanted: list[int], deletes: bool) -> bool:
        """R-52. Expired ones leave even when another one makes the request fail."""
        try:
            self.run(self.rig.main.receive_by_number(wanted, deletes=deletes))
        except MessageNotFound:
            self.run(self.rig.calm())
            gone = [n for n in wanted if self.plain.rows[n].token is None and self._has_expired(n)]
            if any(self.plain.rows[n].token is not None for n in wanted):
                for number in gone:
                    self.plain.sweep(number)
            return True
        return False

    def _has_expired(self, number: int) -> bool:
        return self.plain.rows[number].expires_at_ms <= self.now_ms

    # -- settling

    @precondition(lambda self: self.plain.locked())
    @rule(data=st.data(), verb=st.sampled_from(list(Verb)))
    def settle(self, data: st.DataObject, verb: Verb) -> None:
        numbers = data.draw(
            st.lists(
                st.sampled_from(sorted(self.plain.locked().values())), min_size=1, max_size=4, unique=True
            )
        )
        tokens = [self.plain.rows[number].token or b"" for number in numbers]
        answer = self._settle(tokens, verb)
        assert answer.refused == []
        for number in numbers:
            self._apply(number, verb)
        again = self._settle(tokens, verb)
        assert again.errors() == [MessageLockLost] * len(tokens)
        self._absorb()

    def _settle(self, tokens: list[bytes], verb: Verb) -> Answer:
        return self.run(self._settled(tokens, verb))

    async def _settled(self, tokens: list[bytes], verb: Verb) -> Answer:
        answer = Answer()
        self.rig.main.settle(tokens, Settlement(verb), answer)
        await self.rig.calm()
        return answer

    def _apply(self, number: int, verb: Verb) -> None:
        if verb is Verb.COMPLETE:
            self.plain.complete(number)
        elif verb is Verb.ABANDON:
            self.plain.fail(number, self.now_ms)
        elif verb is Verb.RELEASE:
            self.plain.release(number, self.now_ms)
        elif verb is Verb.DEFER:
            self.plain.defer(number)
        elif verb is Verb.HOLD:
            self.plain.hold(number)
        else:
            self.plain.dead_letter(number)

    @precondition(lambda self: self.plain.locked())
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.plain.locked().values())))
        row = self.plain.rows[number]
        self.run(self.rig.main.renew([row.token or b""]))
        row.locked_until = self.now + LOCK_S

    @rule(count=st.integers(1, 5))
    def batch_delete(self, count: int) -> None:
        """R-80, R-81: oldest first, locked ones skipped; expired ones may be among them."""
        self._note_swept()
        deleted = self.run(self.rig.main.delete_messages(count, 1 << 50))
        candidates = self.plain.available(self.now_ms) + sorted(self.plain.expired(self.now_ms))
        present = {m.sequence_number for m in self.run(self.rig.main.peek(0, 250)) if m.state == 0}
        gone = [number for number in candidates if number not in present]
        for number in gone:
            self.plain.complete(number)
        assert deleted == len(gone) <= count

    # -- time, restarts, failures

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        self.run(self.rig.advance(seconds))
        self.plain.pass_time(self.now, self.now_ms)
        self._note_swept()
        self._absorb()

    @rule()
    def restart(self) -> None:
        self.run(self.rig.restart())
        self._lose_memory()

    @rule(
        ttls=st.lists(TTLS_MS, min_size=1, max_size=3), kind=st.sampled_from(["refused", "lost", "applied"])
    )
    def fail_a_commit(self, ttls: list[int], kind: str) -> None:
        """S-1: refused means certainly not; unknown means that the reopened store tells."""
        # With duplicate detection a send joins later than a settlement: they would not share the commit.
        numbers = [] if self.detects_duplicates else sorted(self.plain.locked().values())[:2]
        sent, settled = self.run(self._fail_a_commit(ttls, kind, numbers))
        error = ServerBusy if kind == "refused" else StoreOutcomeUnknown
        assert set(sent.errors()) == {error}
        assert set(settled.errors()) <= {error}
        if self.standing is not None:
            assert [type(e) for e in self.standing.evicted_with] == [error]
        if kind == "applied":
            for ttl_ms in ttls:
                self.plain.send(f"f{ttl_ms}", ttl_ms, self.now_ms)
            for number in numbers:
                self.plain.complete(number)
        self.run(self._reopen())
        self._lose_memory()

    async def _fail_a_commit(self, ttls: list[int], kind: str, numbers: list[int]) -> tuple[Answer, Answer]:
        sent, settled = Answer(), Answer()
        if kind == "refused":
            self.rig.store.refuse_next_commit()
        else:
            self.rig.store.lose_next_commit(is_applied=kind == "applied")
        tokens = [self.plain.rows[number].token or b"" for number in numbers]
        self.rig.queue.send([text(f"f{ttl}", ttl_ms=ttl) for ttl in ttls], sent)
        self.rig.main.settle(tokens, Settlement(Verb.COMPLETE), settled)
        await self.rig.calm()
        return sent, settled

    async def _reopen(self) -> None:
        await self.rig.store.reopen()
        await self.rig.load()

    def _lose_memory(self) -> None:
        self.plain.lose_memory()
        self.held.clear()
        self.standing = None

    # -- comparing

    def _numbers_in(self, state: str) -> list[int]:
        return sorted(number for number, row in self.plain.rows.items() if row.state == state)

    def _note_delivery(self, delivery: Delivery) -> None:
        message = delivery.message
        row = self.plain.rows[message.sequence_number]
        assert row.state == DEFERRED or row.expires_at_ms > self.now_ms, "an expired message was delivered"
        assert (message.delivery_count, message.bare.decode()) == (row.count, row.body)
        self.plain.lock(message.sequence_number, delivery.token, self.now)

    def _absorb(self) -> None:
        """Takes over what the standing receiver was given; with credit left nothing may be available."""
        if self.standing is None:
            return
        for delivery in self.standing.take():
            self._note_delivery(delivery)
        if self.standing.credit > 0:
            assert self.plain.available(self.now_ms) == []

    def _note_swept(self) -> None:
        """Expired messages leave at a time of the broker's choice."""
        present = {m.sequence_number for m in self.run(self.rig.main.peek(0, 250))}
        for number in self.plain.expired(self.now_ms) - present:
            self.plain.sweep(number)

    @invariant()
    def same_as_the_plain_queue(self) -> None:
        if not hasattr(self.rig, "queue"):
            return
        self.run(self.rig.calm())
        self._note_swept()
        shown = {
            message.sequence_number: (message.bare.decode(), message.state, message.delivery_count)
            for message in self.run(self.rig.main.peek(0, 250))
        }
        assert shown == {
            number: (row.body, STATES.index(row.state), row.count) for number, row in self.plain.rows.items()
        }
        dead = self.run(self.rig.dead_letter.peek(0, 250))
        assert {m.sequence_number: m.delivery_count for m in dead} == self.plain.dead
        assert set(self.rig.main.locks.live) == set(self.plain.locked())
        self._same_counts()

    def _same_counts(self) -> None:
        counts = self.rig.queue.counts()
        active, deferred = len(self._numbers_in(ACTIVE)), len(self._numbers_in(DEFERRED))
        assert (counts.active, counts.deferred, counts.scheduled, counts.dead_letter) == (
            active,
            deferred,
            len(self._numbers_in(SCHEDULED)),
            len(self.plain.dead),
        )
        assert self.rig.main.counters.last_counter == self.plain.last_number
        messages = [*self.run(self.rig.main.peek(0, 250)), *self.run(self.rig.dead_letter.peek(0, 250))]
        assert counts.size_bytes == sum(message.size() for message in messages)
        assert self.rig.budget.bytes_used >= 0

    async def _everything_expired_leaves(self) -> None:
        """M-44: sooner or later, without any receiver; and no memory is left behind."""
        if not hasattr(self.rig, "queue"):
            return
        if self.standing is not None:
            self.rig.main.remove_receiver(self.standing)
        for _ in range(8):
            await self.rig.advance(61)
        left = await self.rig.main.peek(0, 250)
        assert [m.sequence_number for m in left if m.state == 0 and m.expires_at_ms < NEVER_MS] == []
        assert len(self.rig.main.locks.live) == 0


class DeadLetteringQueueMachine(QueueMachine):
    """D-11: the same with expired messages as dead letters."""

    dead_letters_expired = True


class DuplicateDetectingQueueMachine(QueueMachine):
    """S-40, S-44: the same, and no id comes twice inside the window."""

    detects_duplicates = True


_SETTINGS = settings(
    max_examples=examples_of(80),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

TestQueue = QueueMachine.TestCase
TestQueue.settings = _SETTINGS
TestDeadLetteringQueue = DeadLetteringQueueMachine.TestCase
TestDeadLetteringQueue.settings = _SETTINGS
TestDuplicateDetectingQueue = DuplicateDetectingQueueMachine.TestCase
TestDuplicateDetectingQueue.settings = _SETTINGS
