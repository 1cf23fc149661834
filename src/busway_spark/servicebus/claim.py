"""A claim: which messages a micro-batch of a stream consists of, as it stands in Spark's offset log.

    {"entity": "orders", "claim": 7, "stamp": "5f0c…", "held": [[1041, 250], [1300, 12]]}

`held` lists runs of sequence numbers, [first, count], with the session as a third item where there are sessions.
`claim` counts from 1; 0 is before the first. Everything that a restart needs is in here, so nothing is searched for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

#: Numbers, ascending, by session; None is the key where there are no sessions.
Held = dict[str | None, list[int]]


class WrongOffset(ValueError):
    """The checkpoint does not fit the query."""


@dataclass(frozen=True)
class Claim:
    entity: str
    number: int = 0
    #: What the messages that it holds bear; unique, so that nobody else's deferred messages are taken for its own.
    stamp: str = ""
    held: Held = field(default_factory=dict)

    def next_of(self, taken: Iterable[tuple[str | None, int]]) -> "Claim":
        held: Held = {}
        for session_id, number in taken:
            held.setdefault(session_id, []).append(number)
        ordered = {session_id: sorted(numbers) for session_id, numbers in held.items()}
        return Claim(self.entity, self.number + 1, uuid4().hex, ordered)

    def offset(self) -> dict[str, object]:
        runs: list[list[object]] = []
        for session_id, numbers in self.held.items():
            tail = [] if session_id is None else [session_id]
            runs += [[first, count, *tail] for first, count in runs_of(numbers)]
        return {"entity": self.entity, "claim": self.number, "stamp": self.stamp, "held": runs}

    @classmethod
    def of_offset(cls, offset: Mapping[str, object], entity: str) -> "Claim":
        """Raises WrongOffset."""
        number, stamp, runs = offset.get("claim"), offset.get("stamp"), offset.get("held")
        if not isinstance(number, int) or not isinstance(stamp, str) or not isinstance(runs, list):
            raise WrongOffset("The checkpoint holds no offset of a 'servicebus' stream.")
        if offset.get("entity") != entity:
            raise WrongOffset(
                f"The checkpoint belongs to '{str(offset.get('entity'))[:260]}', the query reads '{entity}'. "
                "Use another checkpointLocation."
            )
        return cls(entity, number, stamp, _held(runs))


def runs_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, count)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][0] + found[-1][1] == number:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found


def _held(runs: list[object]) -> Held:
    held: Held = {}
    for run in runs:
        match run:
            case [int(first), int(count), str(session_id)]:
                held.setdefault(session_id, []).extend(range(first, first + count))
            case [int(first), int(count)]:
                held.setdefault(None, []).extend(range(first, first + count))
            case _:
                raise WrongOffset("The checkpoint holds a run of messages that cannot be read.")
    return held
