"""Where dead letters go when they are sent again, and what keeps each from going twice.

On Busway a transaction sends the message and takes the dead letter away, together or not at all. It may go to any
entity: by way of the entity whose dead letters they are (*via*), which is needed too where that is partitioned, as a
transaction keeps to one fragment. Elsewhere the message is sent first and then taken away; a destination that detects
duplicates drops what a crash made us send twice, since the id that it gets follows from the dead letter. Where there
is neither, a crash may leave a message in both places.

A destination that detects duplicates remembers the ids of the originals too, and would drop what comes back under
such an id. So there every message gets an id of its own: the old one and the place of the dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from busway.client.entity_entry import BadAnswer, EntityEntry
from busway.client.errors import ClientError, EntityMissing, Unreachable
from busway.client.resubmitted_id import resubmitted_id
from busway_spark.pipeline.job import JobFailed
from busway_spark.wire.bus import BUSWAY, Bus, administration

DEAD_LETTER: Final = "/$DeadLetterQueue"
TRANSACTION: Final = "transaction"
DUPLICATE_DETECTION: Final = "duplicate detection"
AT_LEAST_ONCE: Final = "at least once"
_SUBSCRIPTIONS: Final = "/subscriptions/"
_CLOSED: Final = ("Disabled", "SendDisabled")


@dataclass(frozen=True)
class Route:
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


def find_route(bus: Bus, source: str, into: str | None) -> Route:
    """Asks the bus about both ends. Raises JobFailed when the destination cannot take anything."""
    destination = top_of(source) if into is None else into.strip("/")
    known = _ask(bus, destination)
    if known is not None:
        _check_open(destination, known)
    detects = None if known is None else bool(known.properties.get("RequiresDuplicateDetection", False))
    needs_session = known is not None and known.properties.get("RequiresSession") is True
    if _is_busway(bus):
        is_via = destination.lower() != top_of(source).lower() or _is_partitioned(known)
        return Route(source, destination, TRANSACTION, is_via, detects is not False, needs_session)
    guarantee = DUPLICATE_DETECTION if detects else AT_LEAST_ONCE
    return Route(source, destination, guarantee, False, detects is not False, needs_session)


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
