"""The operations log: what was created, changed and deleted, when, by whom, and whether it worked (O-7).

Each operation becomes one record on the logger `busway.operations`, with its fields under their service names.
Records hold no secrets: callers are names of rules, and texts among the properties pass the same net as every line of
the log.
"""

import logging
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from busway.clock import Clock, Entropy
from busway.log_lines import HIDDEN, redacted
from busway.model.authorization import present_caller

_log = logging.getLogger("busway.operations")

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
_PROPERTIES_MAX: Final = 64
_TEXT_CHARACTERS_MAX: Final = 256
#: Properties that are about keys are named but never shown.
_SECRET_WORDS: Final = ("key", "signature", "password", "token")


class OperationsLog:
    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy

    def record(
        self,
        event_name: str,
        entity: str,
        *,
        status: str = SUCCEEDED,
        caller: str | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """`event_name`: "Create Queue", "AutoDelete Delete Queue" … `caller`: the name of an authorization rule, None
        for the one that the request's gateway has noted; it is "" when the server acted by itself. A failure is
        logged as a warning."""
        activity_id = str(uuid.UUID(bytes=self._entropy.bytes(16), version=4))
        by = present_caller() if caller is None else caller
        fields = {
            "ActivityId": activity_id,
            "EventName": event_name,
            "EntityName": entity,
            "Status": status,
            "Caller": by,
            "EventProperties": _shown(properties or {}),
            "EventTimeString": datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).isoformat(),
        }
        _log.log(
            logging.INFO if status == SUCCEEDED else logging.WARNING,
            "%s %s: %s, caller=%s activity=%s",
            event_name,
            entity,
            status,
            by or "(server)",
            activity_id,
            extra={"fields": fields},
        )


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
