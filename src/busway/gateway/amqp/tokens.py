"""The tokens a client has put on its connection, by audience (A-7, A-8, L-18).

Each grant knows what it opens (`Grant.audience`); the one check for all of them is `Authorizer.authorise`. Here
they are only kept: a later token for the same audience replaces the earlier one, which is all a renewal is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.broker.errors import QuotaExceeded

if TYPE_CHECKING:
    from busway.broker.authorization import Grant


class TokenHolder:
    """The grants of one connection."""

    def __init__(self, tokens_max: int, changed: Callable[[], None]) -> None:
        self._tokens_max = tokens_max
        #: Told after each change, so that the connection looks at its links and deadlines again.
        self._changed = changed
        self._grants: dict[tuple[str, ...], Grant] = {}
        #: SASL PLAIN: a namespace rule's name and key.
        self._connection_grant: Grant | None = None

    def hold(self, grant: Grant) -> None:
        """A verified token. Raises QuotaExceeded when the connection holds too many (L-18)."""
        if grant.audience not in self._grants and len(self._grants) >= self._tokens_max:
            raise QuotaExceeded(f"A connection can hold {self._tokens_max} tokens; this would be one more.")
        self._grants[grant.audience] = grant
        self._changed()

    def hold_for_connection(self, grant: Grant) -> None:
        """SASL PLAIN: good for the whole connection."""
        self._connection_grant = grant
        self._changed()

    def grants(self) -> list[Grant]:
        """All that are held, to be asked through `Authorizer.authorise`."""
        held = list(self._grants.values())
        return held if self._connection_grant is None else [self._connection_grant, *held]

    def has_any(self) -> bool:
        return bool(self._grants) or self._connection_grant is not None

    def earliest_expiry_ms(self) -> int | None:
        """The first wall time at which rights may end."""
        return min((grant.expires_at_ms for grant in self.grants()), default=None)

    def forget_expired(self, now_ms: int) -> None:
        """Drops what has ended, so that dead tokens do not fill the connection's share (L-18)."""
        for audience in [key for key, grant in self._grants.items() if grant.expires_at_ms <= now_ms]:
            del self._grants[audience]
