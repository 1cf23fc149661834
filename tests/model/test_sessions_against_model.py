"""A queue of sessions under random use, time, restarts and failing commits behaves like a plain one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from busway.broker.fragment.locks import Delivery
from busway.broker.fragment.message_sessions import MessageSession
from busway.model.errors import (
    MessageLockLost,
    MessageNotFound,
    OperationTimedOut,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
    StoreOutcomeUnknown,
)
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.harness.examples import examples_of
from tests.model.plain_queue import ACTIVE, DEFERRED, SCHEDULED
from tests.model.plain_sessions import PlainSessions
from tests.unit.broker.rig import Answer, Recorder, Rig, text

T = TypeVar("T")

LOCK_S = 20
WINDOW_MS = 25_000
LIMITS = Limits(window_messages_max=4, returned_numbers_max=3, sweep_rows_max=3, window_bytes_max=2_000)
STATES = (ACTIVE, DEFERRED, SCHEDULED)

SESSIONS = st.sampled_from(["a", "b", ""])
SECONDS = st.sampled_from([0.0, 0.5, 4.0, 10.0, 19.999, 20.0, 61.0])
DELAYS_MS = st.sampled_from([0, 0, 0, 0, 4_000, 30_000])
IDS = st.sampled_from([None, None, None, "x", "y"])
SENT = st.lists(st.tuples(SESSIONS, DELAYS_MS, IDS), min_size=1, max_size=6)


class SessionMachine(RuleBasedStateMachine):
    """X-3…X-16, S-30…S-34, S-40, S-44, R-10…R-14, R-40, R-50…R-54: nothing lost, nothing twice, one holder, order in
    each session, counts, no duplicate inside the window."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.rig = self.new_rig(
            requires_session=True,
            lock_duration_ms=LOCK_S * 1000,
            max_delivery_count=3,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window_ms=WINDOW_MS,
        )
        self.plain = PlainSessions(LOCK_S, 3, WINDOW_MS)
        self.receivers: dict[str, tuple[MessageSession, Recorder]] = {}
        self.sent = 0

    def new_rig(self, **description: Any) -> Rig:
        return Rig(LIMITS, **description)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            if hasattr(self.rig, "queue"):
                self._all_is_drained()
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

    @rule(wanted=SENT)
    def send(self, wanted: list[tuple[str, int, str | None]]) -> None:
        answer = self.run(self._send(wanted))
        assert answer.refused == []
        self._note_sent(wanted)
        self._absorb()

    async def _send(self, wanted: list[tuple[str, int, str | None]]) -> Answer:
        answer = Answer()
        messages = []
        for at, (session_id, delay_ms, message_id) in enumerate(wanted, self.sent):
            due_at_ms = self.now_ms + delay_ms if delay_ms else 0
            messages.append(
                text(f"m{at}", session_id=session_id, scheduled_at_ms=due_at_ms, message_id=message_id)
            )
        self.rig.queue.send(messages, answer)
        await self.rig.calm()
        return answer

    def _note_sent(self, wanted: list[tuple[str, int, str | None]]) -> None:
        for at, (session_id, delay_ms, message_id) in enumerate(wanted, self.sent):
            due_at_ms = self.now_ms + delay_ms if delay_ms else 0
            self.plain.send(f"m{at}", session_id, due_at_ms, message_id, self.now_ms)
        self.sent += len(wanted)

    @precondition(lambda self: self.plain.numbers_in(SCHEDULED))
    @rule(data=st.data())
    def cancel_scheduled(self, data: st.DataObject) -> None:
        numbers = data.draw(
            st.lists(st.sampled_from(self.plain.numbers_in(SCHEDULED)), min_size=1, unique=True)
        )
        self.run(self.rig.main.cancel_scheduled(numbers))
        for number in numbers:
            self.plain.complete(number)

    # -- holding

    @rule(session_id=SESSIONS, credit=st.integers(0, 5))
    def accept_named(self, session_id: str, credit: int) -> None:
        """X-3, X-5: also one without messages, and never one that is held."""
        if session_id in self.plain.claims:
            with pytest.raises(SessionCannotBeLocked):
                self.run(self._accept(session_id, credit))
            return
        self._note_accepted(*self.run(self._accept(session_id, credit)), credit=credit)

    @rule(credit=st.integers(0, 5))
    def accept_next(self, credit: int) -> None:
        """X-6, X-7: the session that the model names, or a time-out."""
        expected = self.plain.next_session()
        if expected is None:
            with pytest.raises(OperationTimedOut):
                self.run(self._accept(None, credit))
            return
        session, receiver = self.run(self._accept(None, credit))
        assert session.session_id == expected
        self._note_accepted(session, receiver, credit=credit)

    async def _accept(self, session_id: str | None, credit: int) -> tuple[MessageSession, Recorder]:
        receiver = Recorder(credit)
        accepting = asyncio.ensure_future(self.rig.main.accept_session(receiver, session_id, 0.0))
        await self.rig.calm()
        if not accepting.done():
            await self.rig.advance(0)
        session = await accepting
        self.rig.main.wake(receiver)
        await self.rig.calm()
        return session, receiver

    def _note_accepted(self, session: MessageSession, receiver: Recorder, *, credit: int) -> None:
        assert session.locked_until_ms == self.now_ms + LOCK_S * 1000
        self.plain.claim(session.session_id, credit, self.now)
        self.receivers[session.session_id] = session, receiver
        self._absorb()

    @precondition(lambda self: self.receivers)
    @rule(data=st.data(), credit=st.integers(1, 4))
    def grant(self, data: st.DataObject, credit: int) -> None:
        session_id = self._held(data)
        receiver = self.receivers[session_id][1]
        receiver.credit += credit
        self.plain.claims[session_id].credit += credit
        self.run(self._wake(receiver))
        self._absorb()

    async def _wake(self, receiver: Recorder) -> None:
        self.rig.main.wake(receiver)
        await self.rig.calm()

    @precondition(lambda self: self.receivers)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        session_id = self._held(data)
        until_ms = self.run(self.rig.main.renew_session(session_id))
        assert until_ms == self.now_ms + LOCK_S * 1000
        self.plain.claims[session_id].locked_until = self.now + LOCK_S

    @precondition(lambda self: self.receivers)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        session_id = self._held(data)
        self.run(self._close(self.receivers.pop(session_id)[0]))
        self.plain.close(session_id)

    async def _close(self, session: MessageSession) -> None:
        session.close()
        await self.rig.calm()

    @precondition(lambda self: self.receivers)
    @rule(data=st.data(), state=st.sampled_from([None, b"", b"one", b"longer"]))
    def set_state(self, data: st.DataObject, state: bytes | None) -> None:
        """X-15: the holder sets the state, and no bytes clear it."""
        session_id = self._held(data)
        self.run(self.rig.main.set_session_state(session_id, state))
        self.plain.states.pop(session_id, None)
        if state:
            self.plain.states[session_id] = state

    @rule(session_id=SESSIONS)
    def get_state(self, session_id: str) -> None:
        """X-15: the holder sees it, nobody else does."""
        if session_id not in self.plain.claims:
            with pytest.raises(SessionLockLost):
                self.run(self.rig.main.session_state(session_id))
            return
        assert self.run(self.rig.main.session_state(session_id)) == self.plain.states.get(session_id)

    # -- settling

    @precondition(lambda self: self.plain.tokens())
    @rule(data=st.data(), verb=st.sampled_from(list(Verb)))
    def settle(self, data: st.DataObject, verb: Verb) -> None:
        session_id = data.draw(st.sampled_from([n for n in sorted(self.receivers) if self.plain.locked(n)]))
        locked = self.plain.locked(session_id)
        numbers = sorted(data.draw(st.lists(st.sampled_from(locked), min_size=1, unique=True)))
        tokens = [self.plain.rows[number].token or b"" for number in numbers]
        assert self.run(self._settled(tokens, verb, session_id)).refused == []
        for number in numbers:
            self._apply(number, verb)
        assert self.run(self._settled(tokens, verb, session_id)).errors() == [MessageLockLost] * len(tokens)
        self._absorb()

    async def _settled(self, tokens: list[bytes], verb: Verb, session_id: str) -> Answer:
        answer = Answer()
        self.rig.main.settle(tokens, Settlement(verb), answer, session_id)
        await self.rig.calm()
        return answer

    def _apply(self, number: int, verb: Verb) -> None:
        if verb is Verb.COMPLETE:
            self.plain.complete(number)
        elif verb is Verb.ABANDON:
            self.plain.fail(number)
        elif verb is Verb.RELEASE:
            self.plain.release(number)
        elif verb is Verb.DEFER:
            self.plain.defer(number)
        elif verb is Verb.HOLD:
            self.plain.hold(number)
        else:
            self.plain.dead_letter(number)

    @precondition(lambda self: self.plain.numbers_in(DEFERRED))
    @rule(data=st.data(), deletes=st.booleans())
    def receive_deferred(self, data: st.DataObject, deletes: bool) -> None:
        """R-51, R-52, R-54: with the session's lock, and all of them or none."""
        number = data.draw(st.sampled_from(self.plain.numbers_in(DEFERRED)))
        row = self.plain.rows[number]
        work = self.rig.main.receive_by_number([number], deletes=deletes, session_id=row.session_id)
        if row.session_id not in self.plain.claims:
            with pytest.raises(SessionLockLost):
                self.run(work)
        elif row.token is not None:
            with pytest.raises(MessageNotFound):
                self.run(work)
        else:
            (delivery,) = self.run(work)
            if deletes:
                self.plain.complete(number)
            else:
                self._note_delivery(row.session_id, delivery)

    # -- time, restarts, failures

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        self.run(self.rig.advance(seconds))
        for session_id in self.plain.pass_time(self.now, self.now_ms):
            _, receiver = self.receivers.pop(session_id)
            assert [type(error) for error in receiver.evicted_with] == [SessionLockLost]
        self._absorb()

    @rule()
    def restart(self) -> None:
        self.run(self.rig.restart())
        self._lose_memory()

    @rule(wanted=SENT, kind=st.sampled_from(["refused", "lost", "applied"]))
    def fail_a_commit(self, wanted: list[tuple[str, int, str | None]], kind: str) -> None:
        """S-1: refused means certainly not; unknown means that the reopened store tells."""
        if all(self._is_duplicate(message_id) for _, _, message_id in wanted):
            return
        if kind == "refused":
            self.rig.store.refuse_next_commit()
        else:
            self.rig.store.lose_next_commit(is_applied=kind == "applied")
        error = ServerBusy if kind == "refused" else StoreOutcomeUnknown
        assert set(self.run(self._send(wanted)).errors()) == {error}
        self._evicted_with(error)
        if kind == "applied":
            self._note_sent(wanted)
        self.run(self._reopen())
        self._lose_memory()

    def _is_duplicate(self, message_id: str | None) -> bool:
        seen_ms = None if message_id is None else self.plain.ids.get(message_id)
        return seen_ms is not None and self.now_ms - seen_ms <= WINDOW_MS

    def _evicted_with(self, error: type[Exception]) -> None:
        for _, receiver in self.receivers.values():
            assert [type(one) for one in receiver.evicted_with] == [error]

    async def _reopen(self) -> None:
        await self.rig.store.reopen()
        await self.rig.load()

    def _lose_memory(self) -> None:
        self.plain.lose_memory()
        self.receivers.clear()

    # -- comparing

    def _held(self, data: st.DataObject) -> str:
        return str(data.draw(st.sampled_from(sorted(self.receivers))))

    def _absorb(self) -> None:
        """Takes over what receivers were given: each in order, and with credit left nothing may be available."""
        for session_id, (_, receiver) in self.receivers.items():
            claim = self.plain.claims[session_id]
            taken = receiver.take()
            expected = self.plain.available(session_id)[: claim.credit]
            assert [delivery.message.sequence_number for delivery in taken] == expected
            claim.credit -= len(taken)
            for delivery in taken:
                self._note_delivery(session_id, delivery)

    def _note_delivery(self, session_id: str, delivery: Delivery) -> None:
        message = delivery.message
        row = self.plain.rows[message.sequence_number]
        assert (message.session_id, message.delivery_count) == (session_id, row.count)
        assert message.bare.decode() == row.body
        self.plain.lock(message.sequence_number, delivery.token)

    @invariant()
    def same_as_the_plain_sessions(self) -> None:
        if not hasattr(self.rig, "queue"):
            return
        self.run(self.rig.calm())
        messages = self.run(self.rig.main.peek(0, 250))
        assert {
            m.sequence_number: (m.bare.decode(), m.session_id, m.state, m.delivery_count) for m in messages
        } == {
            number: (row.body, row.session_id, STATES.index(row.state), row.count)
            for number, row in self.plain.rows.items()
        }
        dead = self.run(self.rig.dead_letter.peek(0, 250))
        assert {m.sequence_number: m.delivery_count for m in dead} == self.plain.dead
        assert set(self.rig.main.locks.live) == self.plain.tokens()
        self._same_counts(sum(message.size() for message in [*messages, *dead]))

    def _same_counts(self, message_bytes: int) -> None:
        counts = self.rig.queue.counts()
        plain = self.plain
        assert (counts.active, counts.deferred, counts.scheduled) == tuple(
            len(plain.numbers_in(state)) for state in STATES
        )
        assert counts.dead_letter == len(plain.dead)
        assert self.rig.main.counters.last_counter == plain.last_number
        assert counts.size_bytes == message_bytes + sum(len(state) for state in plain.states.values())
        assert self.rig.budget.bytes_used >= 0

    def _all_is_drained(self) -> None:
        """Every session can be accepted in the end, and gives all that is active in order."""
        for session_id in sorted(self.receivers):
            self.run(self._close(self.receivers[session_id][0]))
            self.plain.close(session_id)
        self.receivers.clear()
        while (expected := self.plain.next_session()) is not None:
            session, receiver = self.run(self._accept(None, 100))
            assert session.session_id == expected
            left = self.plain.available(expected)
            assert receiver.numbers() == left
            assert self.run(self._settled(receiver.tokens(), Verb.COMPLETE, expected)).refused == []
            for number in left:
                self.plain.complete(number)
            self.run(self._close(session))
        assert self.rig.queue.counts().active == 0
        assert len(self.rig.main.locks.live) == 0


TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(
    max_examples=examples_of(120),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
