"""The tokens a client has put on its connection, by audience (A-7, A-8, L-18).

A token says two things: its grant (what `sr` and the rule allow) and the audience it was put for (`name` of the
put-token request). A link is checked against the grants whose audience covers its path. A later token for the
same audience replaces the earlier one; that is all a renewal is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.broker.errors import QuotaExceeded
from busway.gateway.amqp.addresses import path_of

if TYPE_CHECKING:
    from busway.broker.authorization import Grant

#: An audience longer than any path we know with any scheme and host before it.
AUDIENCE_CHARACTERS_MAX: Final = 2_048


class TokenHolder:
    """The grants of one connection."""

    def __init__(self, tokens_max: int, changed: Callable[[], None]) -> None:
        self._tokens_max = tokens_max
        #: Told after each change, so that the connection can look at its links and deadlines again.
        self._changed = changed
        self._grants: dict[str, Grant] = {}
        #: SASL PLAIN: a namespace rule's name and key, good for every path its scope covers.
        self._connection_grant: Grant | None = None

    def hold(self, audience: str, grant: Grant) -> None:
        """A verified token. Raises QuotaExceeded when the connection holds too many (L-18)."""
        if len(audience) > AUDIENCE_CHARACTERS_MAX:
            raise QuotaExceeded("The audience of the token is too long.")
        key = _covered_prefix(audience)
        if key not in self._grants and len(self._grants) >= self._tokens_max:
            raise QuotaExceeded(f"A connection can hold {self._tokens_max} tokens; this would be one more.")
        self._grants[key] = grant
        self._changed()

    def hold_for_connection(self, grant: Grant) -> None:
        self._connection_grant = grant
        self._changed()

    def has_any(self) -> bool:
        return bool(self._grants) or self._connection_grant is not None

    def covering(self, path: str) -> list[Grant]:
        """The grants to be asked for a link on this path. A handful of look-ups, however many are held."""
        found = [] if self._connection_grant is None else [self._connection_grant]
        prefix = path.strip("/").lower() + "/"
        at = len(prefix)
        while at >= 0:
            grant = self._grants.get(prefix[:at])
            if grant is not None:
                found.append(grant)
            at = prefix.rfind("/", 0, at - 1) + 1 if at > 0 else -1
        return found

    def all(self) -> list[Grant]:
        held = list(self._grants.values())
        return held if self._connection_grant is None else [self._connection_grant, *held]

    def earliest_expiry_ms(self) -> int | None:
        """The first wall time after `now` at which rights may end; the owner re-checks its links then."""
        return min((grant.expires_at_ms for grant in self.all()), default=None)

    def forget_expired(self, now_ms: int) -> None:
        for key in [key for key, grant in self._grants.items() if grant.expires_at_ms <= now_ms]:
            del self._grants[key]
        grant = self._connection_grant
        if grant is not None and grant.expires_at_ms <= now_ms:
            self._connection_grant = None


def _covered_prefix(audience: str) -> str:
    """`sb://host/Orders/$management` → `orders/$management/`; the whole namespace is the empty prefix."""
    path = path_of(audience).lower()
    return path + "/" if path else ""
