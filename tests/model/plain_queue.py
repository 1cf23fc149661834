"""A queue as simple as the rules allow: what the broker is compared with."""

from __future__ import annotations

from dataclasses import dataclass

ACTIVE, DEFERRED = "active", "deferred"


@dataclass
class Row:
    """A message of the queue itself."""

    body: str
    expires_at_ms: int
    state: str = ACTIVE
    count: int = 0
    token: bytes | None = None
    locked_until: float = 0.0


class PlainQueue:
    """Rows by number; dead letters by number → delivery count."""

    def __init__(self, lock_s: float, max_delivery_count: int, dead_letters_expired: bool) -> None:
        self.lock_s = lock_s
        self.max_delivery_count = max_delivery_count
        self.dead_letters_expired = dead_letters_expired
        self.rows: dict[int, Row] = {}
        self.dead: dict[int, int] = {}
        self.last_number = 0

    def send(self, body: str, expires_at_ms: int) -> None:
        self.last_number += 1
        self.rows[self.last_number] = Row(body, expires_at_ms)

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
        self.rows[number].token, self.rows[number].state = None, DEFERRED

    def dead_letter(self, number: int) -> None:
        self.dead[number] = self.rows.pop(number).count

    def pass_time(self, now: float, now_ms: int) -> None:
        for number, row in list(self.rows.items()):
            if row.token is not None and row.locked_until <= now:
                self.fail(number, now_ms)

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
        """M-43, M-45."""
        row = self.rows[number]
        if row.state == ACTIVE and row.expires_at_ms <= now_ms:
            self.sweep(number)
