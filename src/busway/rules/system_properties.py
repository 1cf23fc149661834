"""The message properties that `sys.` names (T-24): how they are spelt, and which of them an action may set (T-51).

Settable is what a sender may set; what the broker gives (numbers, times, states) is not.
"""

import difflib
from typing import Final

TEXT: Final = "a string"
MOMENT: Final = "a date and time"
DURATION: Final = "a duration"
TRUTH: Final = "a boolean"

#: By canonical name what an action must give it.
SETTABLE: Final[dict[str, str]] = {
    "MessageId": TEXT,
    "SessionId": TEXT,
    "PartitionKey": TEXT,
    "ViaPartitionKey": TEXT,
    "CorrelationId": TEXT,
    "Label": TEXT,
    "To": TEXT,
    "ReplyTo": TEXT,
    "ReplyToSessionId": TEXT,
    "ContentType": TEXT,
    "TimeToLive": DURATION,
    "ScheduledEnqueueTimeUtc": MOMENT,
    "ForcePersistence": TRUTH,
}
_READABLE_ONLY: Final = (
    "EnqueuedTimeUtc",
    "EnqueuedSequenceNumber",
    "SequenceNumber",
    "ExpiresAtUtc",
    "DeliveryCount",
    "Size",
    "State",
    "DeadLetterSource",
    "LockToken",
    "LockedUntilUtc",
)
#: Canonical name by folded name. Newer clients say Subject for Label.
CANONICAL: Final[dict[str, str]] = {
    **{name.casefold(): name for name in (*SETTABLE, *_READABLE_ONLY)},
    "subject": "Label",
}


def similar_names(folded_name: str) -> str:
    """A hint for a name that is not known: ' Did you mean sys.X?', or nothing."""
    close = difflib.get_close_matches(folded_name, CANONICAL, n=1)
    return f" Did you mean sys.{CANONICAL[close[0]]}?" if close else ""
