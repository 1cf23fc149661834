"""What a world with an operator has besides: topics that detect duplicates, subscriptions whose rules change, queues
to forward to. And which entities its operator may change, as `tests.changes` wants them."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Final

from busway.broker.namespace.namespace import Namespace
from busway.model.descriptions import NewEntity, TopicDescription
from busway.model.entity_path import path_key
from busway.rules.rule import Rule, SqlFilter
from tests.changes.changes import NEIGHBOUR, WATCHED, Made, Subject
from tests.simulator.topology import (
    RECEIVABLE,
    SENDABLE,
    TOPICS,
    WEEK_MS,
    entities,
    queue,
    subscription,
)

#: What subjects forward to, when an operator says so.
TARGETS: Final = ("aside", "beyond")
#: What a neighbour forwards to.
ELSEWHERE: Final = "elsewhere"
_TOPICS_BESIDES: Final = ("digest", "ledger")
NEIGHBOURS: Final = tuple(f"{topic}/Subscriptions/{NEIGHBOUR}" for topic in TOPICS)
SENDABLE_BESIDES: Final = _TOPICS_BESIDES
RECEIVABLE_BESIDES: Final = (
    *(*TARGETS, ELSEWHERE),
    *(f"{topic}/Subscriptions/{WATCHED}" for topic in TOPICS),
    *(f"{topic}/Subscriptions/red" for topic in _TOPICS_BESIDES),
)
#: path → kind, one of `tests.changes.kinds`.
SUBJECTS: Final = {
    **{path: "queue" for path in ("tasks", "single", "inbox")},
    "chats": "session queue",
    **{path: "partitioned queue" for path in ("orders", "once", "drops", "gate")},
    "talks": "partitioned session queue",
    **{path: "topic" for path in ("news", "digest")},
    **{path: "partitioned topic" for path in ("events", "ledger")},
    **{f"news/Subscriptions/{name}": "subscription" for name in ("every", "blue", WATCHED)},
    f"digest/Subscriptions/{WATCHED}": "subscription",
    **{f"events/Subscriptions/{name}": "partitioned subscription" for name in ("red", WATCHED)},
    f"ledger/Subscriptions/{WATCHED}": "partitioned subscription",
}
#: What goes to `gate` and a copy of what goes to `events` end in the same queue.
_COMES_FROM: Final = {"gate": "events"}


def entities_besides() -> list[NewEntity]:
    topics = [
        TopicDescription(
            path,
            enable_partitioning=path == "ledger",
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window_ms=WEEK_MS,
        )
        for path in _TOPICS_BESIDES
    ]
    return [
        *(queue(path) for path in (*TARGETS, ELSEWHERE)),
        *(NewEntity(topic) for topic in topics),
        *(subscription(topic, WATCHED, None) for topic in TOPICS),
        *(subscription(topic, "red", Rule("rule", SqlFilter("colour = 'red'"))) for topic in _TOPICS_BESIDES),
    ]


def chosen_subjects(chance: Random, count: int) -> list[str]:
    """No two subscriptions of one topic: both may forward to the same queue, and then a message would be there twice
    by right."""
    chosen: list[str] = []
    for path in chance.sample(sorted(SUBJECTS), len(SUBJECTS)):
        if len(chosen) < count and _origin(path) not in {_origin(other) for other in chosen}:
            chosen.append(path)
    return chosen


def _origin(path: str) -> str:
    if path in TOPICS:
        return f"the topic {path}"  # it forwards nothing itself
    topic = path.split("/")[0]
    return _COMES_FROM.get(topic, topic)


@cache
def made_of(path: str) -> tuple[Made, ...]:
    """The entity, then a topic's subscriptions."""
    made = {
        new.description.path: Made(new.description, new.rules) for new in (*entities(), *entities_besides())
    }
    return (made[path], *(each for other, each in made.items() if other.startswith(f"{path}/")))


def subject(path: str, namespace: Namespace) -> Subject:
    """`namespace` tells where it lies."""
    row = namespace.contents.entities.rows.get(path_key(path))
    return Subject(
        path,
        SUBJECTS[path],
        TARGETS,
        "store-0" if row is None else row.store_names[0],
        made_of(path),
        ELSEWHERE,
    )


def all_receivable(has_operator: bool) -> tuple[str, ...]:
    return (*RECEIVABLE, *RECEIVABLE_BESIDES) if has_operator else RECEIVABLE


def all_sendable(has_operator: bool) -> tuple[str, ...]:
    return (*SENDABLE, *SENDABLE_BESIDES) if has_operator else SENDABLE
