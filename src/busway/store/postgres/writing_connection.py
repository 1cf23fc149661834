"""One connection that writes: statements go together, in one round trip, and their results come together.

Theory of operation. psycopg's own way takes a fifth of a millisecond of the client for each statement; this one talks
to libpq beneath it. Statements are prepared when they are met first. What is sent does not block, and whoever waits
for the server waits in `poll`, with the interpreter let go; never is anything cancelled, because a COMMIT that is
cancelled while it waits for a standby reports success. Who waited long enough leaves the connection to its fate.

A statement that fails ends all that came behind it, up to the end of the round. `StatementRefused` says so: the
transaction is rolled back, for certain. `AnswerLost` says that nobody knows. A warning at COMMIT is an answer
that was lost: the commit is there, and perhaps nowhere else.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import pq

from busway.clock import Clock
from busway.store.statements import statements_of

query = statements_of(__package__).query

#: A statement and its values, each in PostgreSQL's binary form.
Statement = tuple[str, Sequence[bytes | None]]

_BINARY: Final = [1] * 16
BEGIN: Final = query("begin")
COMMIT: Final = query("commit")
_ROLL_BACK: Final = query("roll_back")
_SESSION: Final = query("session_plans")
_PLAN_AGAIN: Final[Statement] = (query("plan_again"), ())
#: Plans are made anew so often: it costs a millisecond.
PLANS_S: Final = 2.0


class StatementRefused(Exception):
    """A statement failed, and its transaction is rolled back."""

    def __init__(self, sqlstate: str | None, said: str) -> None:
        super().__init__(said)
        self.sqlstate = sqlstate


class AnswerLost(Exception):
    """What became of the statements is not known."""

    def __init__(self, said: str, sqlstate: str | None = None) -> None:
        super().__init__(said)
        self.sqlstate = sqlstate


class WritingConnection:
    """One connection, used by one thread."""

    def __init__(self, connection: psycopg.Connection[Any], clock: Clock) -> None:
        connection.execute(_SESSION)
        self._connection = connection
        self._clock = clock
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._pgconn.notice_handler = self._noticed
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._prepared: dict[str, bytes] = {}
        self._names = 0
        self._warning: str | None = None
        self._planned_s = clock.monotonic()

    @property
    def is_lost(self) -> bool:
        return bool(self._pgconn.status == pq.ConnStatus.BAD)

    def close(self) -> None:
        """Says good-bye if it can; waits for nothing."""
        with contextlib.suppress(psycopg.Error):
            self._connection.close()

    def _plans_are_old(self) -> bool:
        return self._clock.monotonic() >= self._planned_s + PLANS_S

    def _noticed(self, notice: pq.abc.PGresult) -> None:
        severity = notice.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED)
        if severity == b"WARNING":
            said = notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
            self._warning = (said or b"").decode(errors="replace")

    def run(self, statements: Sequence[Statement], ends_s: float) -> list[pq.abc.PGresult]:
        """The results, in order. Waits until that time of `Clock.monotonic`."""
        if self._plans_are_old() and statements[0][0] == BEGIN:
            self._planned_s = self._clock.monotonic()
            return self.run([_PLAN_AGAIN, *statements], ends_s)[1:]
        self._warning = None
        try:
            results, failure = self._exchange(statements, ends_s)
        except psycopg.Error as error:
            raise AnswerLost(str(error).strip()) from error
        has_commit = bool(statements) and statements[-1][0] == COMMIT
        if failure is not None:
            self._raise(failure, has_commit and len(results) == len(statements) - 1, ends_s)
        if has_commit and (self._warning is not None or results[-1].command_status != b"COMMIT"):
            raise AnswerLost(self._warning or "COMMIT was answered by a rollback")
        return results

    def _raise(self, failure: pq.abc.PGresult, is_commit: bool, ends_s: float) -> None:
        sqlstate = failure.error_field(pq.DiagnosticField.SQLSTATE)
        code = None if sqlstate is None else sqlstate.decode()
        said = (failure.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
        if is_commit:
            raise AnswerLost(said, code)
        try:
            self._exchange([(_ROLL_BACK, ())], ends_s)
        except psycopg.Error as error:
            raise AnswerLost(f"{said}; {error}", code) from error
        raise StatementRefused(code, said)

    # -- one round
    def _exchange(
        self, statements: Sequence[Statement], ends_s: float
    ) -> tuple[list[pq.abc.PGresult], pq.abc.PGresult | None]:
        """Results up to the first failure, and that."""
        pgconn, prepared = self._pgconn, self._prepared
        preparing: list[str | None] = []  # of each command
        for text, values in statements:
            name = prepared.get(text)
            if name is None:
                self._names += 1
                name = prepared[text] = b"b%d" % self._names
                pgconn.send_prepare(name, text.encode())
                preparing.append(text)
            pgconn.send_query_prepared(name, values, _BINARY[: len(values)], 1)
            preparing.append(None)
        pgconn.pipeline_sync()
        self._send(ends_s)
        results: list[pq.abc.PGresult] = []
        failure: pq.abc.PGresult | None = None
        for prepares in preparing:
            result = self._result(ends_s)
            if result is None:
                raise psycopg.OperationalError("the server sent less than was asked for")
            self._next_is_over(ends_s)
            if result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                if prepares is None:
                    results.append(result)
                continue
            failure = failure or result
            if prepares is not None:
                del prepared[prepares]
        self._result(ends_s)  # the end of the round
        return results, failure

    def _next_is_over(self, ends_s: float) -> None:
        if self._result(ends_s) is not None:
            raise psycopg.OperationalError("the server sent more than was asked for")

    def _send(self, ends_s: float) -> None:
        pgconn = self._pgconn
        while pgconn.flush():
            self._poll.modify(pgconn.socket, select.POLLIN | select.POLLOUT)
            self._wait(ends_s)
            self._poll.modify(pgconn.socket, select.POLLIN)
            pgconn.consume_input()

    def _result(self, ends_s: float) -> pq.abc.PGresult | None:
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._wait(ends_s)
            pgconn.consume_input()
        return pgconn.get_result()

    def _wait(self, ends_s: float) -> None:
        left_s = ends_s - self._clock.monotonic()
        if left_s <= 0 or not self._poll.poll(left_s * 1000):
            raise psycopg.OperationalError("the server did not answer in time")
