"""How the entities were at a time, as far as an operator's calls tell.

A call that was answered with yes has happened between its two moments; one of which nobody knows may happen at any
time until the next that is certain: a change, or a look at what is there. So for each moment there are one or more
states that an entity may have been in, and usually it is one.

A broker that begins without the catalogue's home works with a copy, which may lack the last changes: until the home
is back an entity may be as it was before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from uuid import UUID

from busway.message.message import Message
from busway.message.message_subject import MessageSubject
from busway.model.descriptions import Description, NewEntity, SubscriptionDescription, TopicDescription
from busway.rules.compiled_rule import compiled_filter
from busway.rules.rule import DEFAULT_RULE_NAME, Filter, Rule, TrueFilter
from tests.chaos.history import FAIL, OK
from tests.simulator.journal import NEVER, Changed, Outage, on_a_copy
from tests.simulator.topology import Traits, bare_of

#: The store that keeps the catalogue.
_HOME = "store-0"
_DEFAULT_RULES = (Rule(DEFAULT_RULE_NAME, TrueFilter()),)


@dataclass(frozen=True)
class State:
    """An entity that is there."""

    description: Description
    #: Of a subscription.
    rules: tuple[Rule, ...] = ()

    @property
    def forwards_to(self) -> str | None:
        description = self.description
        return None if isinstance(description, TopicDescription) else description.forward_to

    @property
    def window_ms(self) -> int:
        """In which duplicates are detected; 0 when they are not."""
        description = self.description
        if isinstance(description, SubscriptionDescription) or not description.requires_duplicate_detection:
            return 0
        return description.duplicate_detection_history_time_window_ms

    @property
    def lock_ms(self) -> int:
        description = self.description
        return 0 if isinstance(description, TopicDescription) else description.lock_duration_ms

    def selects(self, traits: Traits) -> bool:
        """A subscription's rules."""
        return any(_selects(rule.filter, traits) for rule in self.rules)


@cache
def _selects(filter_: Filter, traits: Traits) -> bool:
    subject = MessageSubject(Message(b"", bare_of("00000000", traits)))
    return compiled_filter(filter_, lambda: UUID(int=0)).matches(subject)


#: None: it is not there.
Possible = Sequence[State | None]


def routes(description: Description) -> tuple[str | None, str | None]:
    """Where its messages and its dead letters go."""
    if isinstance(description, TopicDescription):
        return (None, None)
    return (description.forward_to, description.forward_dead_lettered_messages_to)


class Timeline:
    """See the head of this file. `changes` and `outages`: grow while the run goes on."""

    def __init__(
        self, made: Iterable[NewEntity], changes: list[Changed], outages: list[Outage] | None = None
    ) -> None:
        self._changes = changes
        self._outages = [] if outages is None else outages
        self._known = 0
        self._first: dict[str, State] = {}
        for new in made:
            rules: tuple[Rule, ...] = ()
            if isinstance(new.description, SubscriptionDescription):
                rules = new.rules or _DEFAULT_RULES
            self._first[new.description.path] = State(new.description, rules)
        self._of_path: dict[str, list[Changed]] = {}

    def of(self, path: str) -> list[Changed]:
        """What happened to it, or may have, in order."""
        for change in self._changes[self._known :]:
            self._of_path.setdefault(change.path, []).append(change)
        self._known = len(self._changes)
        return [change for change in self._of_path.get(path, ()) if change.result != FAIL]

    def paths(self) -> list[str]:
        """All that ever were there."""
        self.of("")
        return list(dict.fromkeys((*self._first, *self._of_path)))

    def during(self, path: str, began: float, ended: float) -> Possible:
        """The states that it may have been in at any moment of this time."""
        present: list[State | None] = [self._first.get(path)]
        met: list[State | None] = []
        lacking = [
            since for since, until in on_a_copy(self._outages, _HOME) if since <= ended and began <= until
        ]
        for change in self.of(path):
            if change.invoked > ended:
                break
            after = _unique(_after(change, state) for state in present)
            if change.verb == "update":  # nobody updates what is not there
                after = [state for state in after if state is not None] or after
            if change.result != OK:
                present = _unique((*present, *after))
            else:
                if change.done >= began or any(change.done <= since for since in lacking):
                    met += present
                present = after
        return _unique((*met, *present))

    def is_over(self, change: Changed) -> float:
        """When whatever it did was done for certain."""
        if change.result == OK:
            return change.done
        later = [each for each in self.of(change.path) if each.invoked > change.invoked and each.result == OK]
        return later[0].done if later else NEVER

    def deletions(self, path: str) -> list[Changed]:
        return [change for change in self.of(path) if change.verb == "delete"]

    def incarnation(self, path: str, moment: float) -> int:
        """How many of its name were there before."""
        return sum(1 for each in self.deletions(path) if each.result == OK and each.done < moment)


def _unique(states: Iterable[State | None]) -> list[State | None]:
    return list(dict.fromkeys(states))


def _after(change: Changed, state: State | None) -> State | None:
    return _EFFECTS[change.verb](change, state)


def _updated(change: Changed, state: State | None) -> State | None:
    assert change.description is not None
    return None if state is None else State(change.description, state.rules)


def _created(change: Changed, state: State | None) -> State | None:
    if state is not None:
        return state
    assert change.description is not None
    is_subscription = isinstance(change.description, SubscriptionDescription)
    return State(change.description, (change.rules or _DEFAULT_RULES) if is_subscription else ())


def _deleted(change: Changed, state: State | None) -> State | None:
    del change, state
    return None


def _looked(change: Changed, state: State | None) -> State | None:
    del state
    return None if change.description is None else State(change.description, change.rules)


def _rule_added(change: Changed, state: State | None) -> State | None:
    if state is None or any(rule.name == change.rules[0].name for rule in state.rules):
        return state
    return State(state.description, state.rules + change.rules)


def _rule_replaced(change: Changed, state: State | None) -> State | None:
    if state is None:
        return None
    (fresh,) = change.rules
    kept = tuple(fresh if rule.name == fresh.name else rule for rule in state.rules)
    return State(state.description, kept)


def _rule_removed(change: Changed, state: State | None) -> State | None:
    if state is None:
        return None
    return State(state.description, tuple(rule for rule in state.rules if rule.name != change.name))


_EFFECTS: dict[str, Callable[[Changed, State | None], State | None]] = {
    "update": _updated,
    "create": _created,
    "delete": _deleted,
    "look": _looked,
    "add-rule": _rule_added,
    "replace-rule": _rule_replaced,
    "remove-rule": _rule_removed,
}
