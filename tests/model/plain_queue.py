"""A queue as simple as the rules allow: what the broker is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from busway.message.message import NEVER_MS

ACTIVE, DEFERRED, SCHEDULED = "active", "deferred", "scheduled"


@dataclass
class Row:
    """A message of the queue itself."""

    body: str
    expires_at_ms: int
    state: str = ACTIVE
    ttl_ms: int = -1
    due_at_ms: int = 0
    count: int = 0
    token: bytes | None = None
    locked_until: float = 0.0


class PlainQueue:
    """Rows by number; dead letters by number → delivery count."""

    def __init__(
        self,
        lock_s: float,
        max_delivery_count: int,
        dead_letters_expired: bool,
        window_ms: int | None = None,
    ) -> None:
        self.lock_s = lock_s
        self.max_delivery_count = max_delivery_count
        self.dead_letters_expired = dead_letters_expired
        self.rows: dict[int, Row] = {}
        self.dead: dict[int, int] = {}
        self.last_number = 0
        #: How long an id is remembered; None without duplicate detection.
        self.window_ms = window_ms
        self.ids: dict[str, int] = {}

    def send(
        self, body: str, ttl_ms: int, now_ms: int, *, due_at_ms: int = 0, message_id: str | None = None
    ) -> None:
        """S-40: an id that was seen inside the window leaves no trace."""
        if self.is_duplicate(message_id, now_ms):
            return
        if message_id is not None and self.window_ms is not None:
            self.ids[message_id] = now_ms
        self.last_number += 1
        row = Row(body, _expires_at_ms(ttl_ms, now_ms), ttl_ms=ttl_ms, due_at_ms=due_at_ms)
        if due_at_ms > now_ms:
            row.state, row.expires_at_ms = SCHEDULED, NEVER_MS
        self.rows[self.last_number] = row

    def is_duplicate(self, message_id: str | None, now_ms: int) -> bool:
        if message_id is None or self.window_ms is None or message_id not in self.ids:
            return False
        return now_ms - self.ids[message_id] <= self.window_ms

    def activate_due(self, now_ms: int) -> None:
        """S-34: by their times, each with a new number; the time to live starts now."""
        due = [
            (row.due_at_ms, n)
            for n, row in self.rows.items()
            if row.state == SCHEDULED and row.due_at_ms <= now_ms
        ]
        for _, number in sorted(due):
            row = self.rows.pop(number)
            row.state, row.expires_at_ms = ACTIVE, _expires_at_ms(row.ttl_ms, now_ms)
            self.last_number += 1
            self.rows[self.last_number] = row

    def available(self, now_ms: int) -> list[int]:
        """What a receiver may get, in order (R-6)."""
        return sorted(
            number
            for number, row in self.rows.items()
            if row.state == ACTIVE and row.token is None and row.expires_at_ms > now_ms
        )

    def expired(self, now_ms: int) -> set[int]:
        """What the sweep may have taken by now, or not yet (M-44)."""
        return {
            number
            for number, row in self.rows.items()
            if row.state == ACTIVE and row.token is None and row.expires_at_ms <= now_ms
        }

    def locked(self) -> dict[bytes, int]:
        return {row.token: number for number, row in self.rows.items() if row.token is not None}

    def lock(self, number: int, token: bytes, now: float) -> None:
        row = self.rows[number]
        assert row.token is None, f"{number} is locked twice"
        row.token, row.locked_until = token, now + self.lock_s

    def complete(self, number: int) -> None:
        del self.rows[number]

    def release(self, number: int, now_ms: int) -> None:
        self.rows[number].token = None
        self._expire_if_due(number, now_ms)

    def fail(self, number: int, now_ms: int) -> None:
        """Abandoned, or its lock ended (R-40, R-41)."""
        row = self.rows[number]
        row.token, row.count = None, row.count + 1
        if row.count >= self.max_delivery_count:
            self.dead_letter(number)
        else:
            self._expire_if_due(number, now_ms)

    def defer(self, number: int) -> None:
        """R-44: it counts as a delivery."""
        self.rows[number].count += 1
        self.hold(number)

    def hold(self, number: int) -> None:
        self.rows[number].token, self.rows[number].state = None, DEFERRED

    def dead_letter(self, number: int) -> None:
        self.dead[number] = self.rows.pop(number).count

    def pass_time(self, now: float, now_ms: int) -> None:
        for number, row in list(self.rows.items()):
            if row.token is not None and row.locked_until <= now:
                self.fail(number, now_ms)
        self.activate_due(now_ms)

    def lose_memory(self) -> None:
        """A restart or a failed store: locks are gone, nothing else (R-7)."""
        for row in self.rows.values():
            row.token = None

    def sweep(self, number: int) -> None:
        if self.dead_letters_expired:
            self.dead_letter(number)
        else:
            del self.rows[number]

    def _expire_if_due(self, number: int, now_ms: int) -> None:
        """M-43, M-45: only an active message that nobody holds expires by itself."""
        row = self.rows[number]
        if row.state == ACTIVE and row.expires_at_ms <= now_ms:
            self.sweep(number)


def _expires_at_ms(ttl_ms: int, now_ms: int) -> int:
    return NEVER_MS if ttl_ms < 0 else now_ms + ttl_ms
