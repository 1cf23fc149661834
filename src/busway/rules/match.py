"""What rules give to one owner (a subscription) of a message: the answer of a selection."""

from busway.rules.actions import CompiledAction
from busway.rules.errors import FilterError


class ActingRule:
    """A rule with an action, as the one who makes copies needs it (T-4)."""

    __slots__ = ("action", "name")

    def __init__(self, name: str, action: CompiledAction) -> None:
        self.name = name
        self.action = action


class Match:
    """What one owner gets of a message. Shared: not to be changed by who receives it."""

    __slots__ = ("acting", "errors", "is_plain", "ordinal", "owner")

    def __init__(self, owner: str, ordinal: int) -> None:
        self.owner = owner
        #: The owner's place in every answer.
        self.ordinal = ordinal
        #: At least one rule without an action matches: one copy (T-4).
        self.is_plain = False
        #: The rules with an action that match, in the order of their addition: one copy each.
        self.acting: list[ActingRule] = []
        #: Filters that failed, one sentence each that names the rule (T-60).
        self.errors: list[FilterError] = []

    def add(self, acting: ActingRule | None) -> None:
        """One more rule matches; None for a plain one."""
        if acting is None:
            self.is_plain = True
        else:
            self.acting.append(acting)
