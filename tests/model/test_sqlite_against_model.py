"""The same machines on SQLite, with restarts and a disk that fails: shorter, because every commit is synced."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from busway.model.errors import ServerBusy, StoreOutcomeUnknown
from tests.harness.examples import examples_of
from tests.model.sqlite_rig import SqliteRig
from tests.model.test_queue_against_model import LIMITS, TTLS_MS, QueueMachine
from tests.model.test_sessions_against_model import SENT, SessionMachine
from tests.unit.broker.rig import Answer, text

#: A failed write may leave the outcome open; the file tells.
FAILURES = {ServerBusy, StoreOutcomeUnknown}


class SqliteQueueMachine(QueueMachine):
    """S-1, R-1…R-19, R-40…R-53: a queue on SQLite."""

    rig: SqliteRig

    def new_rig(self, **description: Any) -> SqliteRig:
        return SqliteRig(LIMITS, **description)

    def teardown(self) -> None:
        super().teardown()
        self.rig.dispose()

    @rule(ttls=st.lists(TTLS_MS, min_size=1, max_size=3))
    def fail_a_commit(self, ttls: list[int]) -> None:
        """S-1: what was refused is not there; what is unknown is there whole or not at all."""
        answer = self.run(self._send_to_broken_disk(ttls))
        assert set(answer.errors()) <= FAILURES
        self.run(self._reopen())
        shown = {m.sequence_number for m in self.run(self.rig.main.peek(0, 250))}
        came = {self.plain.last_number + 1 + at for at in range(len(ttls))} & shown
        if came:
            assert StoreOutcomeUnknown in answer.errors()
            assert len(came) == len(ttls)
            for ttl_ms in ttls:
                self.plain.send(f"f{ttl_ms}", ttl_ms, self.now_ms)
        self._lose_memory()

    async def _send_to_broken_disk(self, ttls: list[int]) -> Answer:
        answer = Answer()
        await self.rig.break_next_commit()
        self.rig.queue.send([text(f"f{ttl}", ttl_ms=ttl) for ttl in ttls], answer)
        await self.rig.calm()
        return answer


class SqliteSessionMachine(SessionMachine):
    """X-3…X-16, S-34, S-40: sessions on SQLite."""

    rig: SqliteRig

    def new_rig(self, **description: Any) -> SqliteRig:
        return SqliteRig(LIMITS, **description)

    def teardown(self) -> None:
        super().teardown()
        self.rig.dispose()

    @rule(wanted=SENT)
    def fail_a_commit(self, wanted: list[tuple[str, int, str | None]]) -> None:
        """S-1, S-40: also the ids are remembered if and only if their messages are there."""
        if all(self._is_duplicate(message_id) for _, _, message_id in wanted):
            return
        self.run(self.rig.break_next_commit())
        answer = self.run(self._send(wanted))
        assert set(answer.errors()) <= FAILURES
        self.run(self._reopen())
        shown = self.run(self.rig.main.peek(self.plain.last_number + 1, 250))
        if shown:
            assert StoreOutcomeUnknown in answer.errors()
            self._note_sent(wanted)
        self._lose_memory()


_SETTINGS = settings(
    max_examples=examples_of(25),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

TestSqliteQueue = SqliteQueueMachine.TestCase
TestSqliteQueue.settings = _SETTINGS
TestSqliteSessions = SqliteSessionMachine.TestCase
TestSqliteSessions.settings = _SETTINGS
