"""Subscriptions over HTTP (E-60…E-64):

    GET    /T/Subscriptions        a page of them
    GET    /T/Subscriptions/S      one; 404 when it is missing
    PUT    /T/Subscriptions/S      create, perhaps with its first rule; with If-Match update
    DELETE /T/Subscriptions/S

A subscription's rights are its topic's (A-2): a rule of the topic opens everything below it.
"""

from starlette.responses import Response

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.gateway.http.atom.atom import EntryAddress, entry_of
from busway.gateway.http.atom.atom_answers import (
    check_match,
    deleted_answer,
    entry_answer,
    entry_url,
    etag_of,
    feed_answer,
    is_update,
    page_of,
)
from busway.gateway.http.atom.entity_xml import EntityInput, RuntimeNumbers, entity_element, parse_entity
from busway.gateway.http.atom.manage_right import check_targets, require_below_topic
from busway.gateway.http.atom.topic_address import TopicAddress
from busway.gateway.http.call import Call
from busway.gateway.http.statuses import missing_below_topic
from busway.model.descriptions import Description, NewEntity, SubscriptionDescription
from busway.model.entity_path import subscription_path
from busway.model.errors import EntityNotFound


class SubscriptionRoutes:
    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock

    def require(self, call: Call, topic: str, subscription: str | None = None) -> None:
        require_below_topic(call, TopicAddress(topic, subscription), self._namespace.limits)

    async def subscriptions(self, call: Call, topic: str) -> Response:
        try:
            known = self._namespace.subscriptions(topic)
        except EntityNotFound as error:
            raise missing_below_topic(self._namespace.name, topic) from error
        page = page_of(call, known)
        counts = await self._namespace.counts_of([entry.path for entry in page.items])
        entries = [
            self._list_entry(call, entry, RuntimeNumbers(number))
            for entry, number in zip(page.items, counts, strict=True)
        ]
        return feed_answer(call, "Subscriptions", self._clock.wall_ms(), entries, page.next_url)

    def _list_entry(self, call: Call, description: SubscriptionDescription, numbers: RuntimeNumbers) -> str:
        query = f"?api-version={call.api_version}"
        link = f"Subscriptions/{description.name}{query}"
        place = EntryAddress(f"{call.root}/{description.path}{query}", base=call.url, link=link)
        return _entry_at(place, call, description, numbers)

    async def subscription(self, call: Call, topic: str, subscription: str) -> Response:
        present = self._found(TopicAddress(topic, subscription))
        numbers = RuntimeNumbers(await self._namespace.counts(present.path))
        place = EntryAddress(entry_url(call, present.path, scheme="sb"))
        return entry_answer(200, _entry_at(place, call, present, numbers), etag_of(present))

    async def put(self, call: Call, topic: str, subscription: str) -> Response:
        sent = parse_entity(await call.body(), call.api_version)
        change = self._update if is_update(call) else self._create
        return await change(call, TopicAddress(topic, subscription), sent)

    async def _create(self, call: Call, address: TopicAddress, sent: EntityInput) -> Response:
        topic = self._namespace.description(address.topic)
        check_targets(call, sent, None, self._namespace.limits)
        start = SubscriptionDescription(subscription_path(topic.path, address.subscription or ""))
        wanted = sent.on(start)
        rules = () if sent.default_rule is None else (sent.default_rule,)
        (made,) = await self._namespace.create([NewEntity(wanted, rules)])
        place = EntryAddress(entry_url(call, made.path))
        return entry_answer(201, _entry_at(place, call, made, None), etag_of(made))

    async def _update(self, call: Call, address: TopicAddress, sent: EntityInput) -> Response:
        present = self._found(address)
        check_match(call, present.path, etag_of(present))
        wanted = sent.on(present)
        check_targets(call, sent, present, self._namespace.limits)
        changed = await self._namespace.update(wanted)
        numbers = RuntimeNumbers(await self._namespace.counts(changed.path))
        place = EntryAddress(entry_url(call, changed.path))
        return entry_answer(200, _entry_at(place, call, changed, numbers), etag_of(changed))

    async def delete(self, call: Call, topic: str, subscription: str) -> Response:
        present = self._found(TopicAddress(topic, subscription))
        check_match(call, present.path, etag_of(present))
        await self._namespace.delete(present.path)
        return deleted_answer(etag_of(present))

    def _found(self, address: TopicAddress) -> SubscriptionDescription:
        try:
            found = self._namespace.description(address.path)
        except EntityNotFound as error:
            raise missing_below_topic(self._namespace.name, address.topic, address.subscription) from error
        assert isinstance(found, SubscriptionDescription), "nothing else can have such a path (E-8)"
        return found


def _entry_at(
    place: EntryAddress, call: Call, description: Description, numbers: RuntimeNumbers | None
) -> str:
    assert isinstance(description, SubscriptionDescription), "these are the routes of subscriptions"
    return entry_of(
        entity_element(description, numbers, call.root, call.api_version),
        place,
        title=description.name,
        published=description.created_at_ms,
        updated=description.updated_at_ms,
    )
