"""What comes and goes by links: temporary queues beside the subject, subscribers of JMS, and the end of a durable
subscription that clients come to again and again."""

from __future__ import annotations

from typing import Final

from busway.model.descriptions import QueueDescription, SubscriptionDescription
from busway.model.entity_path import subscription_path
from busway.rules.rule import DEFAULT_RULE_NAME, Rule, SqlFilter
from tests.changes.change import Administrator, Change, Step, Subject
from tests.changes.in_process import InProcess
from tests.changes.kinds import SUBSCRIPTIONS, TOPICS, all_but
from tests.changes.links import Links
from tests.changes.traffic import VISITS

_IDLE_MS: Final = 300_000
_TEMPORARY: Final = "temporary-beside"
_SUBSCRIBER: Final = "subscriber~nd"
_DURABLE: Final = "durable~client"
_SELECTORS: Final = ("colour = 'red'", "colour LIKE 'b%' OR size > 1")

_NO_SUBSCRIBERS: Final = {kind: "nobody subscribes to it" for kind in all_but(*TOPICS, *SUBSCRIPTIONS)}
_NO_SUBSCRIPTION: Final = {
    kind: "only subscriptions are unsubscribed from" for kind in all_but(*SUBSCRIPTIONS)
}


def _links(administrator: Administrator) -> Links:
    assert isinstance(administrator, InProcess), "it has links"
    return administrator.links


def _beside(subject: Subject, name: str) -> str:
    return subscription_path(subject.path.partition("/")[0], name)


def _rules(selector: str) -> tuple[Rule, ...]:
    return (Rule(DEFAULT_RULE_NAME, SqlFilter(selector)),)


async def _make_temporary(administrator: Administrator, _: Subject) -> None:
    made = QueueDescription(_TEMPORARY, auto_delete_on_idle_ms=_IDLE_MS, made_for_a_link=True)
    await _links(administrator).hold(made)


async def _leave_temporary(administrator: Administrator, _: Subject) -> None:
    await _links(administrator).let_go(_TEMPORARY)


async def _subscribe(administrator: Administrator, subject: Subject) -> None:
    path = _beside(subject, _SUBSCRIBER)
    made = SubscriptionDescription(path, auto_delete_on_idle_ms=_IDLE_MS)
    await _links(administrator).hold(made, _rules(_SELECTORS[0]))


async def _leave(administrator: Administrator, subject: Subject) -> None:
    await _links(administrator).let_go(_beside(subject, _SUBSCRIBER))


def _subscribe_durably(selector: str) -> Step:
    async def step(administrator: Administrator, subject: Subject) -> None:
        await administrator.create(SubscriptionDescription(_beside(subject, _DURABLE)), _rules(selector))

    return step


async def _unsubscribe(administrator: Administrator, subject: Subject) -> None:
    await _links(administrator).unsubscribe(_beside(subject, _DURABLE))


async def _unsubscribe_subject(administrator: Administrator, subject: Subject) -> None:
    await _links(administrator).unsubscribe(subject.path)


async def _make_again(administrator: Administrator, subject: Subject) -> None:
    for made in subject.made:
        await administrator.create(made.description, made.rules)


def link_changes() -> list[Change]:
    first, second = map(_subscribe_durably, _SELECTORS)
    return [
        Change("temporary queue beside it", {}, (_make_temporary,), (_leave_temporary,), is_by_links=True),
        Change("subscriber comes and goes", _NO_SUBSCRIBERS, (_subscribe,), (_leave,), is_by_links=True),
        Change(
            "selector of a subscriber changed",
            _NO_SUBSCRIBERS,
            (first, _unsubscribe, second),
            (_unsubscribe,),
            is_by_links=True,
        ),
        Change(
            "unsubscribed",
            _NO_SUBSCRIPTION,
            (_unsubscribe_subject,),
            (_make_again,),
            drops_messages=True,
            is_by_links=True,
            only_with=(VISITS, "somebody receives from it all the time"),
        ),
    ]
