"""The verbs that end a lock (R-10…R-15), and how their results come back."""

from collections.abc import Callable
from enum import Enum

from mypy_extensions import mypyc_attr

from busway.model.errors import BrokerError


class Verb(Enum):
    COMPLETE = "complete"
    ABANDON = "abandon"
    RELEASE = "release"
    DEFER = "defer"
    HOLD = "hold"  # what a claim does: deferred for its holder, who has not failed with it
    DEAD_LETTER = "dead-letter"


class Settlement:
    """What is to happen to locked messages, with the application properties to change (R-11, R-14, R-21)."""

    __slots__ = ("dead_letter_description", "dead_letter_reason", "properties", "verb")

    def __init__(
        self,
        verb: Verb,
        properties: dict[str, object] | None = None,
        dead_letter_reason: str | None = None,
        dead_letter_description: str | None = None,
    ) -> None:
        self.verb = verb
        #: Values are those of `busway.amqp.types`; None means: nothing to change.
        self.properties = properties
        self.dead_letter_reason = dead_letter_reason
        self.dead_letter_description = dead_letter_description


#: Called once for each run handed over, when its fate is known: (index in the run, error) for every refused
#: item, all others are durable. `StoreOutcomeUnknown` for an item means: give no outcome, drop the link.
RunDone = Callable[[list[tuple[int, BrokerError]]], None]
#: The same for a run whose parts end one by one: called for each part, with the places of its items in the run and
#: (place in the run, error) for every refused one.
PartDone = Callable[[list[int], list[tuple[int, BrokerError]]], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class SendReport:
    """Whoever sends a run and can be told of its parts as they end; a plain entity ends it in one."""

    __slots__ = ()

    def done(self, refused: list[tuple[int, BrokerError]]) -> None:
        """All of it, as a `RunDone`."""
        raise NotImplementedError

    def part_done(self, places: list[int], refused: list[tuple[int, BrokerError]]) -> None:
        """A part of it, as a `PartDone`."""
        raise NotImplementedError
