"""A queue of sessions as simple as the rules allow: what the broker is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.model.plain_queue import ACTIVE, DEFERRED, SCHEDULED


@dataclass
class SessionRow:
    """A message of the queue itself."""

    body: str
    session_id: str
    state: str = ACTIVE
    due_at_ms: int = 0
    count: int = 0
    token: bytes | None = None


@dataclass
class Claim:
    """A session that somebody holds, until its lock ends."""

    locked_until: float
    credit: int = 0


@dataclass
class PlainSessions:
    """Rows by number, claims and states by session id; dead letters by number → delivery count."""

    lock_s: float
    max_delivery_count: int
    window_ms: int
    rows: dict[int, SessionRow] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)
    dead: dict[int, int] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    last_number: int = 0

    # -- sending

    def send(self, body: str, session_id: str, due_at_ms: int, message_id: str | None, now_ms: int) -> None:
        """S-40: an id that was seen inside the window leaves no trace."""
        if message_id is not None:
            seen_ms = self.ids.get(message_id)
            if seen_ms is not None and now_ms - seen_ms <= self.window_ms:
                return
            self.ids[message_id] = now_ms
        state = SCHEDULED if due_at_ms > now_ms else ACTIVE
        self.last_number += 1
        self.rows[self.last_number] = SessionRow(body, session_id, state, due_at_ms)

    def _activate_due(self, now_ms: int) -> None:
        """S-34: by their times, each with a new number."""
        due = [(row.due_at_ms, n) for n, row in self.rows.items() if row.state == SCHEDULED]
        for due_at_ms, number in sorted(due):
            if due_at_ms <= now_ms:
                self.last_number += 1
                row = self.rows[self.last_number] = self.rows.pop(number)
                row.state = ACTIVE

    # -- who holds what

    def available(self, session_id: str) -> list[int]:
        """What the holder of the session may get, in order (X-12)."""
        return sorted(
            number
            for number, row in self.rows.items()
            if row.session_id == session_id and row.state == ACTIVE and row.token is None
        )

    def next_session(self) -> str | None:
        """X-6: the free one with the oldest message."""
        free = [
            (number, row.session_id)
            for number, row in self.rows.items()
            if row.state == ACTIVE and row.session_id not in self.claims
        ]
        return min(free)[1] if free else None

    def claim(self, session_id: str, credit: int, now: float) -> None:
        assert session_id not in self.claims, f"{session_id} is held twice"
        assert all(row.token is None for row in self.rows.values() if row.session_id == session_id)
        self.claims[session_id] = Claim(now + self.lock_s, credit)

    def lock(self, number: int, token: bytes) -> None:
        row = self.rows[number]
        assert row.token is None, f"{number} is locked twice"
        assert row.session_id in self.claims
        row.token = token

    def locked(self, session_id: str) -> list[int]:
        return sorted(
            number
            for number, row in self.rows.items()
            if row.token is not None and row.session_id == session_id
        )

    def tokens(self) -> set[bytes]:
        return {row.token for row in self.rows.values() if row.token is not None}

    # -- settling

    def complete(self, number: int) -> None:
        del self.rows[number]

    def release(self, number: int) -> None:
        self.rows[number].token = None

    def fail(self, number: int) -> None:
        """Abandoned, or the session's lock ended (R-40, X-10)."""
        row = self.rows[number]
        row.token, row.count = None, row.count + 1
        if row.count >= self.max_delivery_count:
            self.dead_letter(number)

    def defer(self, number: int) -> None:
        """R-44: it counts as a delivery."""
        self.rows[number].count += 1
        self.hold(number)

    def hold(self, number: int) -> None:
        self.rows[number].token, self.rows[number].state = None, DEFERRED

    def dead_letter(self, number: int) -> None:
        self.dead[number] = self.rows.pop(number).count

    # -- ends

    def close(self, session_id: str) -> None:
        """X-11: free at once, and nothing is counted."""
        del self.claims[session_id]
        for number in self.locked(session_id):
            self.release(number)

    def pass_time(self, now: float, now_ms: int) -> list[str]:
        """Returns the sessions whose lock has ended (X-10)."""
        ended = sorted(name for name, claim in self.claims.items() if claim.locked_until <= now)
        for session_id in ended:
            del self.claims[session_id]
            for number in self.locked(session_id):
                self.fail(number)
        self._activate_due(now_ms)
        return ended

    def lose_memory(self) -> None:
        """A restart or a failed store: locks are gone, nothing else (R-7)."""
        self.claims.clear()
        for row in self.rows.values():
            row.token = None

    # -- looking

    def numbers_in(self, state: str, session_id: str | None = None) -> list[int]:
        return sorted(
            number
            for number, row in self.rows.items()
            if row.state == state and session_id in (None, row.session_id)
        )
