"""The entities of the simulated namespace, and a plain model of where a message that is sent to one of them ends up.

Entities that forward to one another are one *group*: a message sent to any of them turns up in the group once. A
subscription is a group of its own. Four stores; partitioned entities have a fragment in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.entity_path import subscription_path
from busway.rules.rule import CorrelationFilter, Rule, SqlFilter

STORE_COUNT: Final = 4
PARTITION_COUNT: Final = 4
MAX_DELIVERIES: Final = 6
LOCK_S: Final = 15.0
WEEK_MS: Final = 7 * 24 * 3600 * 1000
VALUE_CHARACTERS: Final = 8

COLOURS: Final = ("red", "green", "blue")
LABELS: Final = ("alpha", "beta")
SIZES: Final = (1, 5, 9)

#: Everything that is partitioned; copies of a partitioned topic lie beside it.
PARTITIONED: Final = frozenset(
    {"orders", "talks", "once", "pool", "gate", "graves", "drops"}
    | {f"events/Subscriptions/{name}" for name in ("all", "red", "large", "alpha", "relayed")}
    | {"beyond", "ledger"}
    | {f"{topic}/Subscriptions/{name}" for topic in ("events", "ledger") for name in ("watched", "neighbour")}
    | {"ledger/Subscriptions/red"}
)
SESSIONS: Final = ("talks", "chats")
#: The last two of both are only there with an operator (`operated`).
DEDUPLICATED: Final = ("once", "single", "digest", "ledger")
TOPICS: Final = ("events", "news", "digest", "ledger")
#: What one sends to.
SENDABLE: Final = (
    *("orders", "tasks", "talks", "chats", "once", "single", "events", "news"),
    *("archive", "inbox", "pool", "gate", "brief", "drops"),
)
#: What one receives from, one lock for each message.
RECEIVABLE: Final = (
    *("orders", "tasks", "once", "single", "archive", "pool", "brief", "graves"),
    *(f"events/Subscriptions/{name}" for name in ("all", "red", "large", "alpha")),
    *(f"news/Subscriptions/{name}" for name in ("every", "blue")),
)
#: Receive-and-delete only: what is on the way to a receiver is lost with it.
DROPS: Final = "drops"
#: Has a time to live; what is expired goes to the graves.
BRIEF: Final = "brief"
#: Where messages have a time to live of their own; what expires in the graves stays there, as a dead letter.
MORTAL: Final = (BRIEF, "graves")
#: Entities whose messages move on: only their dead-letter queues can be received from.
FORWARDING: Final = ("inbox", "gate", "events/Subscriptions/relayed")
#: Transactions take place here; what is sent via them goes to the archive.
TRANSACTIONAL: Final = ("orders", "tasks")
VIA_TARGET: Final = "archive"
TRANSFERS: Final = "transfers of "

_GROUPS: Final = {
    "gate": "archive",
    "events/Subscriptions/relayed": "archive",
    "inbox": "pool",
    "brief": "graves",
    **{TRANSFERS + path: VIA_TARGET for path in TRANSACTIONAL},
}


@dataclass(frozen=True)
class Traits:
    """What rules can see of a message."""

    colour: str
    label: str
    size: int


ALL_TRAITS: Final = tuple(
    Traits(colour, label, size) for colour in COLOURS for label in LABELS for size in SIZES
)


def _encoded(traits: Traits) -> bytes:
    message = AmqpMessage(
        [b"0" * VALUE_CHARACTERS],
        DATA,
        application_properties={"colour": traits.colour, "size": traits.size},
    )
    message.properties = Properties()
    message.properties.subject = traits.label
    return encode_message(message)


_BARE_WITHOUT_VALUE: Final = {traits: _encoded(traits)[:-VALUE_CHARACTERS] for traits in ALL_TRAITS}


def bare_of(value: str, traits: Traits) -> bytes:
    return _BARE_WITHOUT_VALUE[traits] + value.encode()


def value_of(bare: bytes) -> str:
    return bare[-VALUE_CHARACTERS:].decode()


def group_of(path: str) -> str:
    return _GROUPS.get(path, path)


def destinations(path: str, traits: Traits) -> list[str]:
    """The groups in which a message sent to `path` must turn up."""
    if path == "news":
        names = ["every"] + (["blue"] if traits.colour == "blue" else [])
        return [f"news/Subscriptions/{name}" for name in names]
    if path != "events":
        return [group_of(path)]
    selected = {
        "all": True,
        "red": traits.colour == "red",
        "large": traits.size > 4 and traits.colour != "blue",
        "alpha": traits.label == "alpha",
        "relayed": traits.colour == "green",
    }
    return [group_of(f"events/Subscriptions/{name}") for name, is_selected in selected.items() if is_selected]


def detects_duplicates(group: str) -> bool:
    """A queue, or a subscription of a topic."""
    return group.split("/")[0] in DEDUPLICATED


def moves_on(path: str) -> bool:
    """Its messages get their numbers later, where they go."""
    return path in FORWARDING or path.startswith(TRANSFERS)


def index_of_key(key: str) -> int:
    """P-24, as the data format says it."""
    return crc32(key.encode()) % PARTITION_COUNT


def fragment_index(number: int) -> int:
    return number >> 48


KEYS: Final = tuple(f"key-{n}" for n in range(8))
SESSION_IDS: Final = tuple(f"talk-{n}" for n in range(5))


def queue(path: str, **values: object) -> NewEntity:
    description = QueueDescription(
        path,
        lock_duration_ms=int(LOCK_S * 1000),
        max_delivery_count=MAX_DELIVERIES,
        enable_partitioning=path in PARTITIONED,
        requires_session=path in SESSIONS,
        requires_duplicate_detection=path in DEDUPLICATED,
        duplicate_detection_history_time_window_ms=WEEK_MS,
        forward_to=_text(values, "forward_to"),
        forward_dead_lettered_messages_to=_text(values, "forward_dead_letters_to"),
        dead_lettering_on_message_expiration=path in MORTAL,
    )
    return NewEntity(description)


def subscription(topic: str, name: str, rule: Rule | None, forward_to: str | None = None) -> NewEntity:
    description = SubscriptionDescription(
        subscription_path(topic, name),
        lock_duration_ms=int(LOCK_S * 1000),
        max_delivery_count=MAX_DELIVERIES,
        forward_to=forward_to,
    )
    return NewEntity(description, () if rule is None else (rule,))


def entities() -> list[NewEntity]:
    """In an order in which they can be created."""
    return [
        *(queue(path) for path in ("orders", "tasks", "archive", "pool", "graves", "drops")),
        *(queue(path) for path in (*SESSIONS, "once", "single")),
        queue("inbox", forward_to="pool"),
        queue("gate", forward_to="archive"),
        queue("brief", forward_dead_letters_to="graves"),
        NewEntity(TopicDescription("events", enable_partitioning=True)),
        subscription("events", "all", None),
        subscription("events", "red", _sql("colour = 'red'")),
        subscription("events", "large", _sql("size > 4 AND colour <> 'blue'")),
        subscription("events", "alpha", Rule("label", CorrelationFilter(label="alpha"))),
        subscription("events", "relayed", _sql("colour IN ('green')"), "archive"),
        NewEntity(TopicDescription("news")),
        subscription("news", "every", None),
        subscription("news", "blue", _sql("colour LIKE 'bl%'")),
    ]


def _text(values: dict[str, object], name: str) -> str | None:
    found = values.get(name)
    return found if isinstance(found, str) else None


def _sql(expression: str) -> Rule:
    return Rule("rule", SqlFilter(expression))
