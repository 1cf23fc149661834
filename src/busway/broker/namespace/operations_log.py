"""The operations log: what was created, changed and deleted, when, by whom, and whether it worked (O-7).

Each operation becomes one record on the logger `busway.operations`, with its fields under their service names,
and the last of them are kept in memory for whoever wants to look. Records hold no secrets: callers are names of
rules, and texts among the properties pass the same net as every line of the log.
"""

import logging
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from busway.clock import Clock, Entropy
from busway.log_lines import HIDDEN, redacted
from busway.model.authorization import present_caller

_log = logging.getLogger("busway.operations")

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
#: Records that are kept in memory.
RECORDS_MAX: Final = 1_000
_PROPERTIES_MAX: Final = 64
_TEXT_CHARACTERS_MAX: Final = 256
#: Properties that are about keys are named but never shown.
_SECRET_WORDS: Final = ("key", "signature", "password", "token")


@dataclass(frozen=True)
class OperationRecord:
    activity_id: str
    event_name: str  # "Create Queue", "AutoDelete Delete Queue" …
    entity: str
    status: str
    caller: str  # name of the authorization rule; "" when the server acted by itself
    properties: Mapping[str, object]
    at_ms: int

    @property
    def fields(self) -> dict[str, object]:
        """Under the names that the service's log has."""
        return {
            "ActivityId": self.activity_id,
            "EventName": self.event_name,
            "EntityName": self.entity,
            "Status": self.status,
            "Caller": self.caller,
            "EventProperties": dict(self.properties),
            "EventTimeString": datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(),
        }


class OperationsLog:
    def __init__(self, clock: Clock, entropy: Entropy, records_max: int = RECORDS_MAX) -> None:
        self._clock = clock
        self._entropy = entropy
        self._records: deque[OperationRecord] = deque(maxlen=records_max)

    def record(
        self,
        event_name: str,
        entity: str,
        *,
        status: str = SUCCEEDED,
        caller: str | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> OperationRecord:
        """`caller`: None takes the one that the request's gateway has noted. A failure is logged as a warning."""
        made = OperationRecord(
            activity_id=str(uuid.UUID(bytes=self._entropy.bytes(16), version=4)),
            event_name=event_name,
            entity=entity,
            status=status,
            caller=present_caller() if caller is None else caller,
            properties=_shown(properties or {}),
            at_ms=self._clock.wall_ms(),
        )
        self._records.append(made)
        _log.log(
            logging.INFO if status == SUCCEEDED else logging.WARNING,
            "%s %s: %s, caller=%s activity=%s",
            event_name,
            entity,
            status,
            made.caller or "(server)",
            made.activity_id,
            extra={"fields": made.fields},
        )
        return made

    def records(self) -> list[OperationRecord]:
        """The latest ones, oldest first."""
        return list(self._records)


def _shown(properties: Mapping[str, object]) -> dict[str, object]:
    """Plain values, bounded, without secrets."""
    return {
        name[:_TEXT_CHARACTERS_MAX]: HIDDEN if _is_secret(name) else _value(value)
        for name, value in list(properties.items())[:_PROPERTIES_MAX]
    }


def _is_secret(name: str) -> bool:
    folded = name.lower()
    return any(folded.endswith(word) for word in _SECRET_WORDS)


def _value(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return redacted(str(value))[:_TEXT_CHARACTERS_MAX]
