"""What time brings to one connection: its phases, and when the next of them ends.

A connection names its next deadline; the gateway's one timer calls it then. The phases and their deadlines: handshake
(SASL and open, the engine's), first token (A-7), first link and last link gone (R-22), tokens that end (A-8), idle
links (R-22), output that nobody takes, the engine's heartbeats and silence.

Here is only looked at what is due; the connection acts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.errors import AmqpError, Condition

if TYPE_CHECKING:
    from busway.gateway.amqp.carrier import Carrier
    from busway.gateway.amqp.links.link_host import AttachedLink
    from busway.gateway.amqp.shared import Shared

#: Wall clocks step: the end of a token is looked at again at least this often.
_EXPIRY_LOOK_S: Final = 30.0
_NEVER: Final = float("inf")


class Deadlines:
    """Of one connection."""

    def __init__(self, shared: Shared, carrier: Carrier) -> None:
        self._settings = shared.settings
        self._clock = shared.clock
        self._container_id = shared.engine_settings.container_id
        self._carrier = carrier
        self._began_at = shared.clock.monotonic()
        #: The client has opened the connection: its handshake is over.
        self.is_open = False

    def next(self, now: float) -> float:
        carrier, settings = self._carrier, self._settings
        engine_due = carrier.engine.next_deadline()
        due = _NEVER if engine_due is None else engine_due
        if carrier.stalled_since is not None:
            due = min(due, carrier.stalled_since + settings.write_stall_s)
        if not self.is_open or carrier.is_closing:
            return due
        if carrier.is_stranger:
            due = min(due, self._began_at + settings.token_s)
        due = min(due, carrier.links.none_until(), self.expiry(now))
        return min((due, *(self._idle_until(link, now) for link in carrier.links)))

    # -- what is due

    def is_stalled(self, now: float) -> bool:
        """The peer has taken nothing for too long."""
        stalled_since = self._carrier.stalled_since
        return stalled_since is not None and now >= stalled_since + self._settings.write_stall_s

    def end_of_phase(self, now: float) -> AmqpError | None:
        """Why the connection must be closed now, if it must."""
        if self.is_open and self._carrier.is_stranger and now >= self._began_at + self._settings.token_s:
            return AmqpError(Condition.UNAUTHORIZED_ACCESS, "No token was put on '$cbs' in time.")
        links = self._carrier.links
        if links.none_until() <= now:
            told = f"The connection was closed by container '{self._container_id}' because it did"
            told += f" not have any active links in the past {round(links.none_s() * 1000)} milliseconds."
            return AmqpError(Condition.CONNECTION_FORCED, told)
        return None

    def idle_links(self, now: float) -> list[AttachedLink]:
        """R-22: links without credit and traffic."""
        idle: list[AttachedLink] = []
        for link in self._carrier.links:
            if not link.is_idle():
                link.used_at = now
            elif now >= link.used_at + self._settings.link_idle_s:
                idle.append(link)
        return idle

    def idle_error(self, link: AttachedLink) -> AmqpError:
        told = f"The link '{link.link.name[:64]}' is force detached: it was idle for "
        told += f"{round(self._settings.link_idle_s)} seconds."
        return AmqpError(Condition.LINK_DETACH_FORCED, self._carrier.tracking.describe(told, link.node.path))

    # -- when it is due

    def expiry(self, now: float) -> float:
        """Of the first token that ends (A-8)."""
        expiry_ms = self._carrier.tokens.earliest_expiry_ms()
        if expiry_ms is None:
            return _NEVER
        left_s = max(0.0, (expiry_ms - self._clock.wall_ms()) / 1000)
        return now + min(left_s, _EXPIRY_LOOK_S)

    def _idle_until(self, link: AttachedLink, now: float) -> float:
        since = link.used_at if link.is_idle() else now
        return since + self._settings.link_idle_s
