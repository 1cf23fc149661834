"""Which part of the message API a request means (R-23, S-5):

    POST            ENTITY/messages               send
    POST, DELETE    ENTITY/messages/head          receive
    any             ENTITY/messages/ID/TOKEN      settle or renew a lock

ENTITY is a path as AMQP addresses have it (E-8): `orders`, `topic/subscriptions/name`, `orders/$DeadLetterQueue`.
Everything else is management's, so a queue may be called `a/messages`, and is managed under that name; a topic of
that name has subscriptions under `a/messages/subscriptions/NAME`, where no lock's token can stand.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import unquote_to_bytes

_MESSAGES: Final = "messages"
_HEAD: Final = "head"
_SUBSCRIPTIONS: Final = "subscriptions"
_TOKEN: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_SETTLING: Final = frozenset({"POST", "PUT", "DELETE"})
_RECEIVING: Final = frozenset({"POST", "DELETE"})


class MessageRoute(Enum):
    SEND = "send"
    RECEIVE = "receive"
    LOCK = "lock"


@dataclass(frozen=True)
class MessageAddress:
    """`entity` is what comes before `messages`, as written, with its sub-queue."""

    route: MessageRoute
    entity: str
    message_id: str = ""
    lock_token: str = ""


def message_address(method: str, raw_path: bytes) -> MessageAddress | None:
    """None when the request is not about messages. Each segment is decoded by itself: an id may hold a slash. The
    caller has made sure that the path is UTF-8."""
    raw = raw_path.removeprefix(b"/").removesuffix(b"/").split(b"/")
    segments = [unquote_to_bytes(segment).decode("utf-8", "replace") for segment in raw]
    words = [segment.lower() for segment in segments]
    if method == "POST" and len(words) > 1 and words[-1] == _MESSAGES:
        return MessageAddress(MessageRoute.SEND, "/".join(segments[:-1]))
    if method in _RECEIVING and len(words) > 2 and words[-2:] == [_MESSAGES, _HEAD]:
        return MessageAddress(MessageRoute.RECEIVE, "/".join(segments[:-2]))
    if method in _SETTLING and len(words) > 3 and words[-3] == _MESSAGES and not _is_subscription(words):
        return MessageAddress(MessageRoute.LOCK, "/".join(segments[:-3]), segments[-2], segments[-1])
    return None


def _is_subscription(words: list[str]) -> bool:
    """Of a topic whose name ends in `messages`: a message's id may be `subscriptions`, but its token is a UUID."""
    return words[-2] == _SUBSCRIPTIONS and _TOKEN.fullmatch(words[-1]) is None
