"""What an operator changes while others send and receive. The one list of changes, `CHANGES`: the matrix goes through
it, the simulator draws from it, and `make chaos` applies it to a real server.
"""

from __future__ import annotations

from typing import Final

from busway.model.descriptions import SubscriptionDescription
from busway.model.entity_path import subscription_path
from busway.rules.rule import DEFAULT_RULE_NAME, Rule, SqlFilter, TrueFilter
from tests.changes.change import Administrator as Administrator
from tests.changes.change import Change as Change
from tests.changes.change import Made as Made
from tests.changes.change import Step as Step
from tests.changes.change import Subject as Subject
from tests.changes.kinds import SUBSCRIPTIONS, TOPICS, all_but, is_topic
from tests.changes.link_changes import link_changes
from tests.changes.property_changes import hub_changes, property_changes

#: The subscription whose rules change where a topic is the subject.
WATCHED: Final = "watched"
#: One that comes and goes beside it.
NEIGHBOUR: Final = "neighbour"
#: Matches everything; so whatever happens to the others, there is one copy of each message.
ALWAYS: Final = Rule("always", TrueFilter())
_SOME: Final = Rule("some", SqlFilter("colour = 'red'"))
_OTHERS: Final = Rule("some", SqlFilter("colour LIKE 'b%' OR size > 1"))

_ONLY_TOPICS: Final = {kind: "it has no subscriptions" for kind in all_but(*TOPICS, *SUBSCRIPTIONS)}
_NO_RULES: Final = {kind: "it has no rules" for kind in all_but(*TOPICS, *SUBSCRIPTIONS)}


def _topic_path(subject: Subject) -> str:
    description = subject.made[0].description
    return description.topic_path if isinstance(description, SubscriptionDescription) else subject.path


def _subscription(subject: Subject) -> str:
    """The one that traffic comes out of."""
    return subscription_path(subject.path, WATCHED) if is_topic(subject.kind) else subject.path


def _neighbour(subject: Subject) -> str:
    return subscription_path(_topic_path(subject), NEIGHBOUR)


# -- rules


async def _add_rule(administrator: Administrator, subject: Subject) -> None:
    await administrator.add_rule(_subscription(subject), _SOME)


async def _change_rule(administrator: Administrator, subject: Subject) -> None:
    await administrator.replace_rule(_subscription(subject), _OTHERS)


async def _remove_rule(administrator: Administrator, subject: Subject) -> None:
    await administrator.remove_rule(_subscription(subject), _SOME.name)


async def _keep_all(administrator: Administrator, subject: Subject) -> None:
    await administrator.add_rule(_subscription(subject), ALWAYS)


async def _remove_default(administrator: Administrator, subject: Subject) -> None:
    await administrator.remove_rule(_subscription(subject), DEFAULT_RULE_NAME)


async def _add_default(administrator: Administrator, subject: Subject) -> None:
    await administrator.add_rule(_subscription(subject), Rule(DEFAULT_RULE_NAME, TrueFilter()))


async def _remove_always(administrator: Administrator, subject: Subject) -> None:
    await administrator.remove_rule(_subscription(subject), ALWAYS.name)


# -- subscriptions beside the one that is watched


async def _add_neighbour(administrator: Administrator, subject: Subject) -> None:
    await administrator.create(SubscriptionDescription(_neighbour(subject)))


async def _remove_neighbour(administrator: Administrator, subject: Subject) -> None:
    await administrator.delete(_neighbour(subject))


async def _neighbour_forwards(administrator: Administrator, subject: Subject) -> None:
    await administrator.update(_neighbour(subject), forward_to=subject.elsewhere)


async def _neighbour_stays(administrator: Administrator, subject: Subject) -> None:
    await administrator.update(_neighbour(subject), forward_to=None)


# -- the rest


async def _rotate(administrator: Administrator, subject: Subject) -> None:
    await administrator.rotate_keys(subject.path)


async def _disable_store(administrator: Administrator, subject: Subject) -> None:
    await administrator.disable_store(subject.store)


async def _enable_store(administrator: Administrator, subject: Subject) -> None:
    await administrator.enable_store(subject.store)


async def _delete(administrator: Administrator, subject: Subject) -> None:
    await administrator.delete(subject.path)


async def _make_again(administrator: Administrator, subject: Subject) -> None:
    for made in subject.made:
        await administrator.create(made.description, made.rules)


CHANGES: Final[tuple[Change, ...]] = (
    *property_changes(),
    *hub_changes(),
    Change("rule created", _NO_RULES, (_add_rule,), (_remove_rule,)),
    Change("rule changed", _NO_RULES, (_add_rule, _change_rule), (_remove_rule,)),
    Change("rule deleted", _NO_RULES, (_keep_all, _remove_default), (_add_default, _remove_always)),
    Change("subscription created", _ONLY_TOPICS, (_add_neighbour,), (_remove_neighbour,)),
    Change("subscription deleted", _ONLY_TOPICS, (_add_neighbour, _remove_neighbour), ()),
    Change(
        "subscription re-created",
        _ONLY_TOPICS,
        (_add_neighbour, _remove_neighbour, _add_neighbour),
        (_remove_neighbour,),
    ),
    Change(
        "neighbour's ForwardTo",
        _ONLY_TOPICS,
        (_add_neighbour, _neighbour_forwards, _neighbour_stays, _neighbour_forwards),
        (_remove_neighbour,),
    ),
    Change(
        "keys rotated",
        {kind: "the rules of its topic count" for kind in SUBSCRIPTIONS},
        (_rotate,),
        (_rotate,),
    ),
    Change("store disabled", {}, (_disable_store,), (_enable_store,)),
    Change("entity re-created", {}, (_delete,), (_make_again,), drops_messages=True),
    *link_changes(),
)
CHANGE_OF: Final = {change.name: change for change in CHANGES}
