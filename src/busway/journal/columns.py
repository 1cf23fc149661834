"""The columns of the journal's files, and which operations there are: a contract, as reports read old files too.

    DIR/date=2026-11-15/hour=09/NAME.parquet

One row for each operation on a message. An operation that leads to another has a row for each: the abandonment that
was one too many is an `abandon` and a `deadLetter`, a copy for a subscription is a `send` there besides that of its
topic, a forwarded message is a `forward` here and a `send` there. Folders are named by the hour of `time` (UTC); a
file appears whole or not at all, and what begins with `_` or `.` is not finished.
"""

from typing import Final

TIMESTAMP: Final = "timestamp[us, UTC]"
TEXT: Final = "string"
WORD: Final = "dictionary<string>"
LONG: Final = "int64"
INTEGER: Final = "int32"

#: Name → type, in their order. Null means: not known, or not of this operation.
COLUMNS: Final[dict[str, str]] = {
    "time": TIMESTAMP,  # when it was durable
    "operation": WORD,
    "entity": WORD,  # "orders", "news/Subscriptions/all", "orders/$DeadLetterQueue", a hub's name
    "fragment": INTEGER,  # of a partitioned entity, or a hub's partition; 0 else
    "sequenceNumber": LONG,
    "sessionId": TEXT,
    "partitionKey": TEXT,
    "sizeBytes": LONG,
    "deliveryCount": INTEGER,  # failed deliveries so far, the one that ends here included
    "enqueuedTime": TIMESTAMP,  # of the message: `time` − `enqueuedTime` of a `complete` is its latency
    "reason": TEXT,  # why it was dead-lettered
}

SEND: Final = "send"
DUPLICATE: Final = "duplicate"  # sent again and dropped: duplicate detection
SCHEDULE: Final = "schedule"
CANCEL: Final = "cancel"
ACTIVATE: Final = "activate"  # its scheduled time came
RECEIVE: Final = "receive"  # locked, or taken with receive-and-delete
COMPLETE: Final = "complete"  # also by receive-and-delete
ABANDON: Final = "abandon"
DEFER: Final = "defer"
DEAD_LETTER: Final = "deadLetter"
EXPIRE: Final = "expire"  # and was dropped; one that goes to the dead-letter queue is a `deadLetter`
LOCK_LOST: Final = "lockLost"
FORWARD: Final = "forward"
SESSION_ACCEPT: Final = "sessionAccept"
SESSION_END: Final = "sessionEnd"  # closed or lost
PUBLISH: Final = "publish"  # into a hub
DELETE: Final = "delete"  # by a batch delete: nobody received it

OPERATIONS: Final = (
    SEND, DUPLICATE, SCHEDULE, CANCEL, ACTIVATE, RECEIVE, COMPLETE, ABANDON, DEFER, DEAD_LETTER, EXPIRE,
    LOCK_LOST, FORWARD, SESSION_ACCEPT, SESSION_END, PUBLISH, DELETE,
)  # fmt: skip
