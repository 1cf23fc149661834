"""The links that stand on one connection, and since when there are none.

Each is kept with the paths by which its rights are checked. A connection without links is closed after a while
(R-22), sooner when it never had one; so the moment of the last one's going is kept here. Management nodes ask about
the other links of their connection here, by name (`LinkLookup`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from busway.gateway.amqp.links.addresses import paths_of

if TYPE_CHECKING:
    from busway.amqp.session import Session
    from busway.clock import Clock
    from busway.gateway.amqp.links.link_host import AttachedLink
    from busway.gateway.amqp.shared import GatewaySettings
    from busway.model.authorization import Segments

_NEVER: Final = float("inf")


class AttachedLinks:
    """Of one connection."""

    def __init__(self, clock: Clock, settings: GatewaySettings) -> None:
        self._clock = clock
        self._settings = settings
        #: With the paths by which they are checked.
        self._links: dict[AttachedLink, tuple[Segments, ...]] = {}
        self.had_any = False
        #: When the last one went, or the connection was opened; None while there are some, or before it is open.
        self.none_since: float | None = None

    def __iter__(self) -> Iterator[AttachedLink]:
        """Those of this moment: whoever is called may end others."""
        return iter(list(self._links))

    def __contains__(self, link: object) -> bool:
        return link in self._links

    def add(self, link: AttachedLink) -> None:
        link.link.owner = link
        self._links[link] = paths_of(link.node)
        self.had_any = True
        self.none_since = None

    def remove(self, link: AttachedLink) -> None:
        del self._links[link]
        link.link.owner = None
        if not self._links:
            self.none_since = self._clock.monotonic()

    def none_s(self) -> float:
        """How long there may be none."""
        return self._settings.last_link_gone_s if self.had_any else self._settings.first_link_s

    def none_until(self) -> float:
        return _NEVER if self.none_since is None else self.none_since + self.none_s()

    def of_session(self, session: Session) -> list[AttachedLink]:
        """Inside one AMQP session."""
        return [link for link in self._links if link.link.session is session]

    def below(self, audiences: set[Segments]) -> list[AttachedLink]:
        """Those that grants for one of these may have opened."""
        return [
            link
            for link, paths in self._links.items()
            if any(path[:count] in audiences for path in paths for count in range(len(path) + 1))
        ]

    # -- LinkLookup

    def touch_link(self, link_name: str) -> None:
        for link in self._links:
            if link.link.name == link_name:
                link.used_at = self._clock.monotonic()

    def session_of_link(self, link_name: str) -> str | None:
        for link in self._links:
            session_id: str | None = getattr(link, "session_id", None)
            if session_id is not None and link.link.name == link_name:
                return session_id
        return None

    def holds_session(self, path: str, session_id: str) -> bool:
        wanted = path.lower()
        return any(
            getattr(link, "session_id", None) == session_id and link.node.path.lower() == wanted
            for link in self._links
        )
