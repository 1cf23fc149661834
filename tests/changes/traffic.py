"""What clients do while an entity is changed. The clients themselves are in `crowd`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.changes.kinds import HUB, KINDS, SUBSCRIPTIONS, TOPICS, all_but

#: Receivers that come and go: between two of them somebody may end what they receive from.
VISITS: Final = "visits"
_NO_EVENTS: Final = {HUB: "events are published to hubs and read from them"}


@dataclass(frozen=True)
class Traffic:
    name: str
    #: What makes it this traffic (`record.Work.kind`): all of it must have gone well before the change and after it,
    #: and some of it must have been under way while the change was made.
    work: tuple[str, ...]
    #: Kind of entity → why it has no such traffic.
    impossible: Mapping[str, str]


def _messages(name: str, *work: str, **reasons: str) -> Traffic:
    return Traffic(name, work, {**_NO_EVENTS, **reasons})


_WITHOUT_SESSIONS: Final = {
    kind: "its messages have no sessions; the session queue is a kind of its own"
    for kind in ("queue", "partitioned queue")
}
_NO_SUBSCRIBERS: Final = {kind: "subscribers come to subscriptions" for kind in all_but(HUB, *SUBSCRIPTIONS)}
_TOPICS_STAY: Final = {kind: "a topic forwards nothing, its subscriptions do" for kind in TOPICS}

TRAFFIC: Final[tuple[Traffic, ...]] = (
    _messages("send", "send"),
    _messages("batch", "batch"),
    _messages("staging", "stage"),
    _messages("scheduled", "schedule", "due"),
    _messages("duplicates", "send", "duplicate"),
    _messages("peek-lock", "receive", "complete", "abandon"),
    _messages("receive-and-delete", "delete"),
    _messages("sessions", "accept", "complete", **_WITHOUT_SESSIONS),
    _messages("deferral", "defer", "by number"),
    _messages("transactions", "transaction"),
    _messages("forwarding in", "send", "receive"),
    _messages("forwarding out", "send", "receive", **_TOPICS_STAY),
    _messages("dead-lettering", "dead-letter", "dead complete"),
    _messages("expiry", "send", "expire"),
    _messages(VISITS, "visit", "complete", **_NO_SUBSCRIBERS),
    Traffic(
        "publishing to a hub",
        ("publish", "read"),
        {kind: "events are published to hubs only" for kind in all_but(HUB)},
    ),
)
TRAFFIC_OF: Final = {traffic.name: traffic for traffic in TRAFFIC}
assert set(KINDS) >= {kind for traffic in TRAFFIC for kind in traffic.impossible}
