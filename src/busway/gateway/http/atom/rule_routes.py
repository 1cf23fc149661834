"""Rules of subscriptions over HTTP (E-70…E-74, T-11):

    GET    /T/Subscriptions/S/Rules      a page of them by name, `$Default` first (E-64); Listen is enough (A-9)
    GET    /T/Subscriptions/S/Rules/R    one; 404 when it is missing
    PUT    /T/Subscriptions/S/Rules/R    create; with If-Match another filter or action under the same name
    DELETE /T/Subscriptions/S/Rules/R

A rule keeps no time of its last change, so its ETag is a digest of what it says.
"""

import asyncio
from functools import partial
from hashlib import sha256

from starlette.responses import Response

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.gateway.http.atom.atom import EntryAddress, described, entry_of, local_name
from busway.gateway.http.atom.atom_answers import (
    check_match,
    deleted_answer,
    entry_answer,
    entry_url,
    feed_answer,
    is_update,
    page_found,
)
from busway.gateway.http.atom.manage_right import require_below_topic
from busway.gateway.http.atom.rule_xml import RULE_DESCRIPTION, parse_rule, rule_element
from busway.gateway.http.atom.topic_address import TopicAddress
from busway.gateway.http.call import Call
from busway.gateway.http.statuses import HttpRefusal, missing_below_topic
from busway.model.errors import BadArgument, EntityNotFound
from busway.rules.rule import Rule


class RuleRoutes:
    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock

    def require(self, call: Call, topic: str, subscription: str, rule: str) -> None:
        require_below_topic(call, TopicAddress(topic, subscription, rule), self._namespace.limits)

    def require_list(self, call: Call, topic: str, subscription: str) -> None:
        address = TopicAddress(topic, subscription, lists_rules=True)
        require_below_topic(call, address, self._namespace.limits)

    async def rule(self, call: Call, topic: str, subscription: str, rule: str) -> Response:
        address = TopicAddress(topic, subscription, rule)
        found = self._found(address)
        place = EntryAddress(entry_url(call, self._path(address, found), scheme="sb"))
        return entry_answer(200, _entry_at(place, found), _etag(found))

    async def rules(self, call: Call, topic: str, subscription: str) -> Response:
        """Others have their turn between two entries: each may be large."""
        address = TopicAddress(topic, subscription, lists_rules=True)
        try:
            page = page_found(call, partial(self._namespace.rules.by_name, address.path))
        except EntityNotFound as error:
            raise self._lost(address) from error
        entries: list[str] = []
        path = self._namespace.description(address.path).path
        for rule in page.items:
            await asyncio.sleep(0)
            entries.append(self._list_entry(call, path, rule))
        return feed_answer(call, "Rules", self._clock.wall_ms(), entries, page.next_url)

    def _list_entry(self, call: Call, path: str, rule: Rule) -> str:
        query = f"?api-version={call.api_version}"
        url = f"{call.root}/{path}/Rules/{rule.name}{query}"
        return _entry_at(EntryAddress(url, base=call.url, link=f"Rules/{rule.name}{query}"), rule)

    async def put(self, call: Call, topic: str, subscription: str, rule: str) -> Response:
        address = TopicAddress(topic, subscription, rule)
        description = described(await call.body())
        if local_name(description) != RULE_DESCRIPTION:
            raise BadArgument(f"The entry's content must be one {RULE_DESCRIPTION}.")
        wanted = parse_rule(description, rule)
        if is_update(call):
            check_match(call, rule, _etag(self._found(address)))
            made, status = await self._namespace.rules.replace(address.path, wanted), 200
        else:
            made, status = await self._added(address, wanted), 201
        place = EntryAddress(entry_url(call, self._path(address, made)))
        return entry_answer(status, _entry_at(place, made, is_fresh=status == 201), _etag(made))

    async def _added(self, address: TopicAddress, rule: Rule) -> Rule:
        try:
            return await self._namespace.rules.add(address.path, rule)
        except EntityNotFound as error:
            raise self._lost(address) from error

    async def delete(self, call: Call, topic: str, subscription: str, rule: str) -> Response:
        address = TopicAddress(topic, subscription, rule)
        found = self._found(address)
        check_match(call, found.name, _etag(found))
        await self._namespace.rules.remove(address.path, found.name)
        return deleted_answer(_etag(found))

    def _found(self, address: TopicAddress) -> Rule:
        """By name, not from the list: a subscription may have a hundred thousand rules."""
        try:
            found = self._namespace.rules.get(address.path, address.rule or "")
        except EntityNotFound as error:
            raise self._lost(address) from error
        if found is None:
            raise missing_below_topic(self._namespace.name, address.topic, address.subscription, address.rule)
        return found

    def _lost(self, address: TopicAddress) -> HttpRefusal:
        """It is the subscription that does not exist."""
        return missing_below_topic(self._namespace.name, address.topic, address.subscription)

    def _path(self, address: TopicAddress, rule: Rule) -> str:
        """Under the spelling that topic, subscription and rule were created with (E-7)."""
        return f"{self._namespace.description(address.path).path}/Rules/{rule.name}"


def _entry_at(place: EntryAddress, rule: Rule, *, is_fresh: bool = False) -> str:
    return entry_of(
        rule_element(rule, is_fresh=is_fresh),
        place,
        title=rule.name,
        published=rule.created_at_ms,
        updated=rule.created_at_ms,
    )


def _etag(rule: Rule) -> str:
    return sha256(rule_element(rule).encode()).hexdigest()[:16]
