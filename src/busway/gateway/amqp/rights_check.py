"""Which links may have lost their right, and looking at them again without stopping everybody else (A-8, A-10).

Theory of operation. A right comes from a grant, a grant from a rule of the namespace or of one entity (its level). So
there are three ways to lose one, and each says what is concerned:

  a token is replaced by a lesser one, or ends  → links at and below its audience, on that connection
  rules change, or an entity goes               → the same, for the grants of that level, on the connections that
                                                  hold some; who holds what is booked here
Nothing else is looked at. What is concerned waits here, and is worked off in slices, one in each turn of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from busway.event_loop import LOOP

if TYPE_CHECKING:
    from busway.model.authorization import Grant, RuleBook, Segments

#: Levels whose rules are compared with what they were, in one turn.
SLICE_LEVELS: Final = 500
#: Links that are looked at in one turn.
SLICE_LINKS: Final = 64
#: Connections whose links are searched for those that are concerned, in one turn.
SLICE_CONNECTIONS: Final = 8

LevelKey = str | None


class Checked(Protocol):
    """A connection."""

    def audiences_of(self, level_key: LevelKey) -> Iterable[Segments]:
        """Those of its grants that come from that level."""

    def links_below(self, audiences: set[Segments]) -> list[object]:
        """Its links that such grants may have opened."""

    def check_link(self, link: object) -> None:
        """Ends the link if it has lost its right; nothing if it is gone already."""


class RightsCheck:
    """Of all connections of a gateway."""

    def __init__(self, rules: RuleBook, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._rules = rules
        self._call_soon = call_soon
        #: By level who holds grants of it, and how many.
        self._holders: dict[LevelKey, dict[Checked, int]] = {}
        #: By level its rules when they were looked at last.
        self._seen: dict[LevelKey, object] = {}
        #: What is to be looked at: levels, then audiences by connection, then links.
        self._levels: deque[LevelKey] = deque()
        self._is_changed = False
        self._concerned: dict[Checked, set[Segments]] = {}
        self._links: deque[tuple[Checked, object]] = deque()
        self._is_waiting = False

    # -- the book of grants

    def hold(self, connection: Checked, grant: Grant) -> None:
        key = grant.level.key
        holders = self._holders.setdefault(key, {})
        if not holders:
            self._seen[key] = self._now(key)
        holders[connection] = holders.get(connection, 0) + 1

    def drop(self, connection: Checked, grant: Grant) -> None:
        key = grant.level.key
        holders = self._holders.get(key)
        if holders is None or connection not in holders:
            return
        holders[connection] -= 1
        if holders[connection] == 0:
            del holders[connection]
        if not holders:
            del self._holders[key]
            self._seen.pop(key, None)

    def _now(self, key: LevelKey) -> object:
        return self._rules.rules() if key is None else self._rules.entity_rules(key)

    # -- what is concerned

    def rules_changed(self) -> None:
        """Some rules, or some entity: which, is found out by what is held at all. Many changes at once are one."""
        self._is_changed = True
        self._wait()

    def _compare(self, key: LevelKey) -> None:
        holders = self._holders.get(key)
        if holders is None:
            return
        rules = self._now(key)
        if rules != self._seen.get(key):
            self._seen[key] = rules
            for connection in holders:
                self._concerned.setdefault(connection, set()).update(connection.audiences_of(key))

    def recheck(self, connection: Checked, audiences: Iterable[Segments]) -> None:
        self._concerned.setdefault(connection, set()).update(audiences)
        self._wait()

    def forget(self, connection: Checked) -> None:
        """The connection is over."""
        self._concerned.pop(connection, None)

    # -- slices

    def _wait(self) -> None:
        if not self._is_waiting and (self._is_changed or self._levels or self._concerned or self._links):
            self._is_waiting = True
            self._call_soon(self._work)

    def _work(self) -> None:
        began_s = LOOP.now()
        self._is_waiting = False
        if self._is_changed and not self._levels:
            self._is_changed = False
            self._levels.extend(self._holders)
        for _ in range(min(SLICE_LEVELS, len(self._levels))):
            self._compare(self._levels.popleft())
        for _ in range(SLICE_CONNECTIONS):
            if self._links or not self._concerned:
                break
            connection = next(iter(self._concerned))
            links = connection.links_below(self._concerned.pop(connection))
            self._links.extend((connection, link) for link in links)
        for _ in range(min(SLICE_LINKS, len(self._links))):
            connection, link = self._links.popleft()
            connection.check_link(link)
        self._wait()
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, "a check of rights")
