"""Who may do what, as the rules say it (A-1…A-9, E-61, F-5), and the tokens to try it with.

Nothing here looks at the code it judges: `allows` is written from the rules, tokens are signed by hand. A rule of
the same name stands on every level, each with keys of its own, so a level that is looked up wrongly shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from busway.broker.namespace.namespace import Namespace
from busway.model.descriptions import (
    LISTEN,
    MANAGE,
    SEND,
    AuthorizationRule,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.rules.rule import Rule, SqlFilter
from tests.unit.gateway.http_exchange import sas_token

HOST = "localhost"
NOW_S = 1_700_000_000
QUEUE, OTHER_QUEUE, DEEP_QUEUE = "queue1", "queue10", "queue1/deep"
TOPIC = "topic1"
SUBSCRIPTION, SESSIONS = f"{TOPIC}/Subscriptions/sub1", f"{TOPIC}/Subscriptions/sessions"
#: Where a rule may stand (A-2); "" is the namespace.
PLACES = ("", QUEUE, TOPIC, OTHER_QUEUE)
RIGHT_SETS = {
    "sender": frozenset({SEND}),
    "listener": frozenset({LISTEN}),
    "manager": frozenset({MANAGE, SEND, LISTEN}),
}
#: What is asked of an operation that any valid token may do.
ANY = "any"
#: Ways to be valid: scope of the token, audience asked for, which key.
SOUND = ("exact", "entity", "root", "entity named", "root named", "secondary")
DEFECTS = (
    "expired",
    "wrong key",
    "wrong host",
    "wrong path",
    "sibling prefix",
    "too narrow",
    "unknown rule",
    "no signature",
    "no expiry",
    "expiry of letters",
    "doubled part",
    "not a token",
    "empty",
    "missing",
)
#: The namespace itself has neither a sibling nor a path that its token could miss.
_NEED_A_PATH = ("sibling prefix",)


def key_of(place: str, rule_name: str, which: str = "primary") -> str:
    return f"{which}-key-of-{rule_name}-at-{place or 'the-namespace'}"


def rules_at(place: str) -> tuple[AuthorizationRule, ...]:
    return tuple(
        AuthorizationRule(name, rights, key_of(place, name), key_of(place, name, "secondary"))
        for name, rights in RIGHT_SETS.items()
    )


# -- the rules


@dataclass(frozen=True)
class Wish:
    """An operation as far as rights go: `path` is the address that is asked for, `entity` the queue or topic whose
    rules count there ("" is the namespace alone; those of a subscription are its topic's), `right` what A-9 asks
    for."""

    entity: str
    path: str
    right: str


@dataclass(frozen=True)
class Cell:
    """Somebody with a rule's key tries something, with a token that is sound or has a defect."""

    wish: Wish
    place: str
    rule_name: str
    token_kind: str

    def __str__(self) -> str:
        return f"{self.rule_name} of {self.place or 'the namespace'}, token {self.token_kind}"


def knows_rule(cell: Cell) -> bool:
    """A-5, A-7: the token is sound, and its rule stands where it is shown or above."""
    shown_for = "" if cell.token_kind == "root named" else cell.wish.entity
    return cell.token_kind in SOUND and cell.place in ("", shown_for)


def allows(cell: Cell) -> bool:
    """A-9: and the rule gives the right."""
    return knows_rule(cell) and (cell.wish.right == ANY or cell.wish.right in RIGHT_SETS[cell.rule_name])


def cells(wish: Wish, token_kinds: tuple[str, ...] = (*SOUND, *DEFECTS)) -> Iterator[Cell]:
    for place in PLACES:
        for rule_name in RIGHT_SETS:
            for kind in token_kinds:
                if wish.path or kind not in _NEED_A_PATH:
                    yield Cell(wish, place, rule_name, kind)


# -- the tokens


def token_of(cell: Cell, scheme: str = "sb") -> str | None:
    """None: there is none."""
    path, kind = cell.wish.path, cell.token_kind
    if kind == "missing":
        return None
    if kind in ("not a token", "empty"):
        return "" if kind == "empty" else "Bearer of bad news"
    scopes = {
        "entity": cell.wish.entity,
        "entity named": cell.wish.entity,
        "root": "",
        "root named": "",
        "wrong path": "elsewhere",
        "sibling prefix": path[:-1],
        "too narrow": f"{path}/below".lstrip("/"),
    }
    host = "elsewhere.example" if kind == "wrong host" else HOST
    rule_name = "nobody" if kind == "unknown rule" else cell.rule_name
    expiry = NOW_S - 1 if kind == "expired" else NOW_S + 3600
    made = sas_token(f"{scheme}://{host}/{scopes.get(kind, path)}", rule_name, _key(cell), expiry)
    return _spoiled(made, kind)


def _key(cell: Cell) -> str:
    if cell.token_kind == "wrong key":
        return "nobody's key"
    return key_of(cell.place, cell.rule_name, "secondary" if cell.token_kind == "secondary" else "primary")


def _spoiled(token: str, kind: str) -> str:
    head, parts = token.split(" ")[0], token.split(" ")[1].split("&")
    if kind == "no signature":
        parts = [part for part in parts if not part.startswith("sig=")]
    elif kind == "no expiry":
        parts = [part for part in parts if not part.startswith("se=")]
    elif kind == "expiry of letters":
        parts = [part if not part.startswith("se=") else "se=later" for part in parts]
    elif kind == "doubled part":
        parts.append(parts[0])
    return f"{head} {'&'.join(parts)}"


# -- the namespace they are tried on

_ENTITIES = (
    NewEntity(QueueDescription(QUEUE, authorization_rules=rules_at(QUEUE))),
    NewEntity(QueueDescription(OTHER_QUEUE, authorization_rules=rules_at(OTHER_QUEUE))),
    NewEntity(QueueDescription(DEEP_QUEUE)),
    NewEntity(TopicDescription(TOPIC, authorization_rules=rules_at(TOPIC))),
    NewEntity(SubscriptionDescription(SUBSCRIPTION)),
    NewEntity(SubscriptionDescription(SESSIONS, requires_session=True)),
)
FRESH_QUEUE, FRESH_TOPIC, FRESH_SUBSCRIPTION = "fresh-queue", "fresh-topic", f"{TOPIC}/Subscriptions/fresh"
#: A rule that is there, and one that is not.
KNOWN_RULE, FRESH_RULE = "known", "fresh"
_RULE = Rule(KNOWN_RULE, SqlFilter("color = 'red'"))


async def build(namespace: Namespace) -> None:
    await namespace.access.set((*namespace.access.rules(), *rules_at("")))
    await restore(namespace)


async def restore(namespace: Namespace) -> None:
    """What an allowed operation made or took away is as it was."""
    changed = [place for place in PLACES if place and _has_lost_rules(namespace, place)]
    for path in (FRESH_QUEUE, FRESH_TOPIC, FRESH_SUBSCRIPTION, *changed):
        if namespace.exists(path):
            await namespace.delete(path)
    missing = [new for new in _ENTITIES if not namespace.exists(new.description.path)]
    if missing:
        await namespace.create([replace(new) for new in missing])
    names = {rule.name for rule in namespace.rules.of(SUBSCRIPTION)}
    if FRESH_RULE in names:
        await namespace.rules.remove(SUBSCRIPTION, FRESH_RULE)
    if KNOWN_RULE not in names:
        await namespace.rules.add(SUBSCRIPTION, _RULE)
    if {rule.name for rule in namespace.access.rules()} != {"RootManageSharedAccessKey", *RIGHT_SETS}:
        root = [rule for rule in namespace.access.rules() if rule.name == "RootManageSharedAccessKey"]
        await namespace.access.set((*root, *rules_at("")))


def _has_lost_rules(namespace: Namespace, path: str) -> bool:
    """An update says all there is to say: one without rules takes them away."""
    if not namespace.exists(path):
        return False
    description = namespace.description(path)
    assert not isinstance(description, SubscriptionDescription)
    return not description.authorization_rules
