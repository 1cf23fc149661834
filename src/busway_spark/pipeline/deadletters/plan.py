"""The plan of a resubmission: which dead letters are moved, where to, and what keeps each from going twice.

It also says how they are changed, and what became of each. It lies in a file beside the job, not in memory, since
there may be millions; a number is looked up when its message is received. It is no journal: after a crash the next
run makes a new plan from what is still dead-lettered, and the bus itself knows what was moved.

On Busway a transaction sends the message and takes the dead letter away, together or not at all. It may go to any
entity: by way of the entity whose dead letters they are (*via*), which is needed too where that is partitioned, as
a transaction keeps to one fragment. Elsewhere the message is sent first and then taken away; a destination that
detects duplicates drops what a crash made us send twice, since the id that it gets follows from the dead letter.
Where there is neither, a crash may leave a message in both places.

A destination that detects duplicates remembers the ids of the originals too, and would drop what comes back under
such an id. So there every message gets an id of its own: the old one and the place of the dead letter.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from busway.amqp.decode import decode_value
from busway.amqp.encode import encode_value
from busway.client.atom_entries import BadAnswer, EntityEntry
from busway.client.errors import ClientError, EntityMissing, Unreachable
from busway.client.messages import resubmitted_id
from busway_spark.pipeline.job import JobFailed
from busway_spark.wire.bus import BUSWAY, Bus, administration

DEAD_LETTER: Final = "/$DeadLetterQueue"
TRANSACTION: Final = "transaction"
DUPLICATE_DETECTION: Final = "duplicate detection"
AT_LEAST_ONCE: Final = "at least once"
_SUBSCRIPTIONS: Final = "/subscriptions/"
_CLOSED: Final = ("Disabled", "SendDisabled")


@dataclass(frozen=True)
class LetterRoute:
    """Where dead letters go when they are sent again, and what keeps each from going twice."""

    #: The queue or subscription whose dead letters they are, without `/$DeadLetterQueue`.
    source: str
    destination: str
    #: TRANSACTION, DUPLICATE_DETECTION or AT_LEAST_ONCE.
    guarantee: str
    is_via: bool = False
    #: The destination drops ids that it has seen.
    derives_id: bool = True
    needs_session: bool = False

    @property
    def dead_letters(self) -> str:
        return self.source + DEAD_LETTER

    @property
    def top(self) -> str:
        return top_of(self.source)

    def message_id(self, original: object, number: int) -> str | None:
        """The id to send it under; None keeps its own."""
        if not self.derives_id:
            return None
        return resubmitted_id(original, self.source, number)


def source_of(entity: str) -> str:
    """The dead-letter queue's own path means the same."""
    plain = entity.strip("/")
    return plain[: -len(DEAD_LETTER)] if plain.lower().endswith(DEAD_LETTER.lower()) else plain


def top_of(source: str) -> str:
    """The queue itself, or the topic of a subscription."""
    at = source.lower().find(_SUBSCRIPTIONS)
    return source if at < 0 else source[:at]


def find_route(bus: Bus, source: str, into: str | None) -> LetterRoute:
    """Asks the bus about both ends. Raises JobFailed when the destination cannot take anything."""
    destination = top_of(source) if into is None else into.strip("/")
    known = _ask(bus, destination)
    if known is not None:
        _check_open(destination, known)
    detects = None if known is None else bool(known.properties.get("RequiresDuplicateDetection", False))
    needs_session = known is not None and known.properties.get("RequiresSession") is True
    if _is_busway(bus):
        is_via = destination.lower() != top_of(source).lower() or _is_partitioned(known)
        return LetterRoute(source, destination, TRANSACTION, is_via, detects is not False, needs_session)
    guarantee = DUPLICATE_DETECTION if detects else AT_LEAST_ONCE
    return LetterRoute(source, destination, guarantee, False, detects is not False, needs_session)


def _is_busway(bus: Bus) -> bool:
    try:
        return bus.kind() == BUSWAY
    except Unreachable as error:
        raise JobFailed(str(error)) from error


def _is_partitioned(known: EntityEntry | None) -> bool:
    """What is not known is taken to be: a message sent via the entity is at home everywhere."""
    return known is None or known.properties.get("EnablePartitioning") is not False


def _check_open(destination: str, entry: EntityEntry) -> None:
    status = entry.properties.get("Status")
    if status in _CLOSED:
        raise JobFailed(
            f"'{destination}' takes no messages: its status is {status}. Enable it, or say --into."
        )


def _ask(bus: Bus, destination: str) -> EntityEntry | None:
    """None when the key does not allow the question."""
    try:
        with administration(bus) as client:
            return client.get_queue_or_topic(destination)
    except EntityMissing as error:
        raise JobFailed(f"There is no queue or topic '{destination}' to send dead letters into.") from error
    except Unreachable as error:
        raise JobFailed(str(error)) from error
    except (ClientError, BadAnswer, OSError, ValueError):
        return None


#: What becomes of a dead letter.
PLANNED: Final = "planned"
UNCERTAIN: Final = "uncertain"  # the connection broke while it was moved
RESUBMITTED: Final = "resubmitted"
REFUSED: Final = "refused"  # the destination did not take it; it stays
GONE: Final = "gone"  # somebody else took it meanwhile
LOCKED: Final = "locked"  # somebody else holds it; it stays
OUTCOMES: Final = (RESUBMITTED, REFUSED, GONE, LOCKED, PLANNED)

_TABLE: Final = """
    CREATE TABLE letter (
        source INTEGER NOT NULL, number INTEGER NOT NULL, is_deferred INTEGER NOT NULL, changes BLOB,
        outcome TEXT NOT NULL, detail TEXT, PRIMARY KEY (source, number)
    ) WITHOUT ROWID
"""
#: So that what is left is found without passing what is done; it helps where the same words stand in the question.
#: Made behind the first rows, which is quicker.
_INDEX: Final = """
    CREATE INDEX IF NOT EXISTS letter_left ON letter (source, number) WHERE outcome IN ('planned', 'uncertain')
"""
_ROWS_AT_ONCE: Final = 1_000

Row = tuple[int, int, bool, Mapping[str, Any]]
#: Without changes.
PlainRow = tuple[int, int, bool]


class Plan:
    """`with Plan(file) as plan:`. A number is that of a message in the dead-letter queue of a source."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        # It need not outlive the machine, nor even the process.
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("PRAGMA journal_mode = MEMORY")
        self._database.execute(_TABLE)

    def __enter__(self) -> Plan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def add(self, rows: Iterable[Row]) -> None:
        """Rows of (source, number, is it deferred, changes)."""
        self._add(
            "INSERT OR REPLACE INTO letter VALUES (?, ?, ?, ?, 'planned', NULL)",
            (
                (source, number, is_deferred, encode_value(dict(changes)) if changes else None)
                for source, number, is_deferred, changes in rows
            ),
        )

    def add_plain(self, rows: Iterable[PlainRow]) -> None:
        """The same of those that go as they are."""
        self._add("INSERT OR REPLACE INTO letter VALUES (?, ?, ?, NULL, 'planned', NULL)", rows)

    def _add(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(statement, rows)
        self._database.execute(_INDEX)
        self._database.execute("COMMIT")

    def changes_of(self, source: int, number: int) -> Mapping[str, Any] | None:
        """None when it is not to be moved, or no more."""
        found = self._database.execute(
            "SELECT changes FROM letter WHERE source = ? AND number = ? AND outcome IN ('planned', 'uncertain')",
            (source, number),
        ).fetchone()
        if found is None:
            return None
        return {} if found[0] is None else _unpacked(found[0])

    def mark(self, source: int, numbers: Iterable[int], outcome: str, detail: str | None = None) -> None:
        rows = [(outcome, detail, source, number) for number in numbers]
        self._database.execute("BEGIN")
        self._database.executemany(
            "UPDATE letter SET outcome = ?, detail = ? WHERE source = ? AND number = ?", rows
        )
        self._database.execute("COMMIT")

    def mark_between(
        self, source: int, first: int, last: int, outcome: str, but: Collection[int] = ()
    ) -> int:
        """All that are still to be moved from the first number to the last, without some; how many."""
        begins = [first, *(number + 1 for number in sorted(but))]
        ends = [*(number - 1 for number in sorted(but)), last]
        marked = 0
        self._database.execute("BEGIN")
        for begin, end in zip(begins, ends, strict=True):
            if begin <= end:
                marked += self._database.execute(
                    "UPDATE letter SET outcome = ? WHERE source = ? AND number BETWEEN ? AND ?"
                    " AND outcome IN ('planned', 'uncertain')",
                    (outcome, source, begin, end),
                ).rowcount
        self._database.execute("COMMIT")
        return marked

    def outcome_of(self, source: int, number: int) -> tuple[str, str | None] | None:
        found = self._database.execute(
            "SELECT outcome, detail FROM letter WHERE source = ? AND number = ?", (source, number)
        ).fetchone()
        return None if found is None else (str(found[0]), None if found[1] is None else str(found[1]))

    def has_left(self, source: int) -> bool:
        """Whether some are still to be moved."""
        found = self._database.execute(
            "SELECT EXISTS (SELECT 1 FROM letter WHERE source = ? AND outcome IN ('planned', 'uncertain'))",
            (source,),
        ).fetchone()
        return bool(found[0])

    def counts(self) -> dict[str, int]:
        with closing(self._database.execute("SELECT outcome, count(*) FROM letter GROUP BY outcome")) as rows:
            return {str(outcome): int(count) for outcome, count in rows}

    def refusals(self, count: int) -> list[str]:
        """The first sentences of what was refused, each once."""
        rows = self._database.execute(
            "SELECT DISTINCT detail FROM letter WHERE outcome = ? AND detail IS NOT NULL LIMIT ?",
            (REFUSED, count),
        )
        return [str(detail) for (detail,) in rows]

    def letters_left(self, source: int) -> Iterator[tuple[int, bytes]]:
        """What is still to be moved, ascending: (number, encoded changes). It may be marked meanwhile."""
        after = -1
        while True:
            page = self._database.execute(
                "SELECT number, changes FROM letter"
                " WHERE source = ? AND number > ? AND outcome IN ('planned', 'uncertain')"
                " ORDER BY number LIMIT ?",
                (source, after, _ROWS_AT_ONCE),
            ).fetchall()
            if not page:
                return
            after = int(page[-1][0])
            for number, changes in page:
                yield int(number), b"" if changes is None else bytes(changes)

    def pages_left(self, source: int, *, is_deferred: bool | None = None) -> Iterator[list[tuple[int, str]]]:
        """What is still to be moved, ascending: (number, PLANNED or UNCERTAIN). It may be marked meanwhile."""
        after = -1
        wanted = (0, 1) if is_deferred is None else (int(is_deferred), int(is_deferred))
        while True:
            page = self._database.execute(
                "SELECT number, outcome FROM letter"
                " WHERE source = ? AND number > ? AND outcome IN ('planned', 'uncertain')"
                " AND is_deferred IN (?, ?) ORDER BY number LIMIT ?",
                (source, after, *wanted, _ROWS_AT_ONCE),
            ).fetchall()
            if not page:
                return
            after = int(page[-1][0])
            yield [(int(number), str(outcome)) for number, outcome in page]


def _unpacked(packed: bytes) -> dict[str, Any]:
    value, _ = decode_value(packed)
    assert isinstance(value, dict), "changes are kept as a map"
    return {str(name): each for name, each in value.items()}
