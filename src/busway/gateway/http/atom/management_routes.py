"""Management of entities, subscriptions and rules over HTTP, as the official admin clients speak it (ERR-43).

    GET    /$namespaceinfo                 the namespace
    GET    /$Resources/queues|topics       a page of entities
    GET    /NAME                           a queue or topic; a missing one is 200 with a feed without entries
    PUT    /NAME                           create (409 when it exists); with If-Match update (404 when missing)
    DELETE /NAME                           200, or 404

Every route asks for Manage (A-9) before it looks at anything else, so a stranger learns nothing, not even which
names exist. A valid token without Manage learns only that (`management_address`).

Subscriptions (E-60…E-64):

    GET    /T/Subscriptions                a page of them
    GET    /T/Subscriptions/S              one; 404 when it is missing
    PUT    /T/Subscriptions/S              create, perhaps with its first rule; with If-Match update
    DELETE /T/Subscriptions/S

A subscription's rights are its topic's (A-2): a rule of the topic opens everything below it.

Rules of subscriptions (E-70…E-74, T-11):

    GET    /T/Subscriptions/S/Rules        a page of them by name, `$Default` first (E-64); Listen is enough (A-9)
    GET    /T/Subscriptions/S/Rules/R      one; 404 when it is missing
    PUT    /T/Subscriptions/S/Rules/R      create; with If-Match another filter or action under the same name
    DELETE /T/Subscriptions/S/Rules/R

A rule keeps no time of its last change, so its ETag is a digest of what it says.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from typing import Final

from starlette.responses import Response

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.gateway.http.atom.atom import (
    EntryAddress,
    check_match,
    deleted_answer,
    described,
    entry_answer,
    entry_of,
    entry_url,
    etag_of,
    feed_answer,
    is_update,
    local_name,
    namespace_entry,
    page_found,
    page_of,
)
from busway.gateway.http.atom.entity_xml import EntityInput, RuntimeNumbers, entity_element, parse_entity
from busway.gateway.http.atom.management_address import (
    TopicAddress,
    check_address,
    check_targets,
    require_below_topic,
    require_manage,
)
from busway.gateway.http.atom.rule_xml import RULE_DESCRIPTION, parse_rule, rule_element
from busway.gateway.http.call import Call, host_of
from busway.gateway.http.statuses import HttpRefusal, missing_below_topic
from busway.model.description_checks import default_queue, default_topic
from busway.model.descriptions import Description, NewEntity, SubscriptionDescription, TopicDescription
from busway.model.entity_path import check_path, shown, subscription_path
from busway.model.errors import BadArgument, EntityNotFound, InvalidOperation, Unauthorized
from busway.rules.rule import Rule

_MISSING_TITLE: Final = "Publicly Listed Services"
NOT_HOSTED: Final = "No service is hosted at the specified address."


class EntityRoutes:
    """The routes of entities: of every path that is nobody else's."""

    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock

    def require(self, call: Call, _: str = "") -> None:
        """ERR-43: whoever may not read an entity is told so of one that exists; one that does not is not there for
        anybody with a valid token. Raises 401s, BadArgument."""
        check_address(call, self._namespace.limits)
        try:
            require_manage(call)
        except Unauthorized:
            if not self._is_absent(call):
                raise

    def _is_absent(self, call: Call) -> bool:
        if call.method not in ("GET", "HEAD") or call.path == "" or call.path.startswith("$"):
            return False
        check_path(call.path, self._namespace.limits.path_characters_max)
        try:
            self._namespace.description(call.path)
        except EntityNotFound:
            return True
        except InvalidOperation:  # it is of another kind
            return False
        return False

    async def nothing_below_subscription(self, call: Call, path: str) -> Response:
        """Raises BadArgument, also for names that cannot be."""
        limits = self._namespace.limits
        check_address(call, limits)
        address = TopicAddress.parse(path, limits)
        raise AssertionError(f"{address} has a row of its own")

    # -- lists and the namespace --

    async def root(self, call: Call) -> Response:
        """Never a web page: clients send an empty name here by mistake (ERR-43)."""
        return self._nothing(call)

    def _nothing(self, call: Call) -> Response:
        return feed_answer(call, _MISSING_TITLE, self._clock.wall_ms())

    async def namespace_info(self, call: Call) -> Response:
        created_at_ms = min((rule.created_at_ms for rule in self._namespace.access.rules()), default=0)
        entry = namespace_entry(
            _first_label(host_of(call.authority)) or self._namespace.name,
            self._namespace.limits.sku,
            created_at_ms,
            url=call.url,
            now_ms=self._clock.wall_ms(),
        )
        return entry_answer(200, entry)

    async def queues(self, call: Call) -> Response:
        return await self._listed(call, "Queues", self._namespace.queues())

    async def topics(self, call: Call) -> Response:
        return await self._listed(call, "Topics", self._namespace.topics())

    async def event_hubs(self, call: Call) -> Response:
        return feed_answer(call, "EventHubs", self._clock.wall_ms())

    async def no_list(self, _: Call, name: str = "") -> Response:
        raise EntityNotFound(f"There is no list called {shown(name.lower())}.")

    async def _listed(self, call: Call, title: str, known: Sequence[Description]) -> Response:
        """Others have their turn between two entries: a topic may have thousands of subscriptions to sum up. What
        was deleted meanwhile is not told of."""
        page = page_of(call, known)
        entries: list[str] = []
        for description in page.items:
            await asyncio.sleep(0)
            try:
                entries.append(self._list_entry(call, description, await self._numbers(description)))
            except EntityNotFound:
                continue
        return feed_answer(call, title, self._clock.wall_ms(), entries, page.next_url)

    def _list_entry(self, call: Call, description: Description, numbers: RuntimeNumbers) -> str:
        name_and_query = f"{description.path}?api-version={call.api_version}"
        place = EntryAddress(
            f"{call.root}/{name_and_query}", self._namespace.name, call.url, f"../{name_and_query}"
        )
        return _entity_entry(place, call, description, numbers)

    # -- one queue or topic --

    async def entity(self, call: Call, path: str) -> Response:
        self._check(path)
        try:
            description = self._namespace.description(path)
        except EntityNotFound:
            return self._nothing(call)
        numbers = await self._numbers(description)
        return entry_answer(200, self._written(call, description, numbers), etag_of(description))

    def _check(self, path: str) -> None:
        check_path(path, self._namespace.limits.path_characters_max)

    async def put(self, call: Call, path: str) -> Response:
        self._check(path)
        sent = parse_entity(await call.body(), call.api_version)
        if is_update(call):
            return await self._update(call, sent)
        return await self._create(call, sent)

    async def _create(self, call: Call, sent: EntityInput) -> Response:
        check_targets(call, sent, None, self._namespace.limits)
        wanted = sent.on(self._default(call.path, sent))
        (made,) = await self._namespace.create([NewEntity(wanted)])
        return entry_answer(201, self._written(call, made, None))

    def _default(self, path: str, sent: EntityInput) -> Description:
        if sent.kind is SubscriptionDescription:
            raise BadArgument("A subscription's address is T/Subscriptions/S.")
        make = default_topic if sent.kind is TopicDescription else default_queue
        return make(path, self._namespace.limits)

    async def _update(self, call: Call, sent: EntityInput) -> Response:
        present = self._namespace.description(call.path)
        check_match(call, present.path, etag_of(present))
        wanted = sent.on(present)
        check_targets(call, sent, present, self._namespace.limits)
        changed = await self._namespace.update(wanted)
        numbers = await self._numbers(changed)
        return entry_answer(200, self._written(call, changed, numbers), etag_of(changed))

    async def delete(self, call: Call, path: str) -> Response:
        self._check(path)
        try:
            present = self._namespace.description(path)
        except EntityNotFound as error:
            raise HttpRefusal(404, NOT_HOSTED) from error
        check_match(call, present.path, etag_of(present))
        await self._namespace.delete(path)
        return deleted_answer(etag_of(present))

    def _written(self, call: Call, description: Description, numbers: RuntimeNumbers | None) -> str:
        place = EntryAddress(entry_url(call, description.path), self._namespace.name)
        return _entity_entry(place, call, description, numbers)

    async def _numbers(self, description: Description) -> RuntimeNumbers:
        counts = await self._namespace.counts(description.path)
        if not isinstance(description, TopicDescription):
            return RuntimeNumbers(counts)
        subscriptions = len(self._namespace.subscriptions(description.path))
        return RuntimeNumbers(counts, subscriptions, *self._namespace.rules.filter_counts(description.path))


def _first_label(host: str) -> str | None:
    """In the service a namespace is called so. None for an address, which has no name in it."""
    try:
        ip_address(host)
    except ValueError:
        return host.partition(".")[0] or None
    return None


def _entity_entry(
    place: EntryAddress, call: Call, description: Description, numbers: RuntimeNumbers | None
) -> str:
    return entry_of(
        entity_element(description, numbers, call.root, call.api_version),
        place,
        title=description.name if isinstance(description, SubscriptionDescription) else description.path,
        published=description.created_at_ms,
        updated=description.updated_at_ms,
    )


class SubscriptionRoutes:
    """Subscriptions over HTTP (E-60…E-64)."""

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
        return _entity_entry(place, call, description, numbers)

    async def subscription(self, call: Call, topic: str, subscription: str) -> Response:
        present = self._found(TopicAddress(topic, subscription))
        numbers = RuntimeNumbers(await self._namespace.counts(present.path))
        place = EntryAddress(entry_url(call, present.path, scheme="sb"))
        return entry_answer(200, _entity_entry(place, call, present, numbers), etag_of(present))

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
        return entry_answer(201, _entity_entry(place, call, made, None), etag_of(made))

    async def _update(self, call: Call, address: TopicAddress, sent: EntityInput) -> Response:
        present = self._found(address)
        check_match(call, present.path, etag_of(present))
        wanted = sent.on(present)
        check_targets(call, sent, present, self._namespace.limits)
        changed = await self._namespace.update(wanted)
        numbers = RuntimeNumbers(await self._namespace.counts(changed.path))
        place = EntryAddress(entry_url(call, changed.path))
        return entry_answer(200, _entity_entry(place, call, changed, numbers), etag_of(changed))

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


class RuleRoutes:
    """Rules of subscriptions over HTTP (E-70…E-74, T-11)."""

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
        return entry_answer(200, _rule_entry(place, found), _etag(found))

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
        return _rule_entry(EntryAddress(url, base=call.url, link=f"Rules/{rule.name}{query}"), rule)

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
        return entry_answer(status, _rule_entry(place, made, is_fresh=status == 201), _etag(made))

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


def _rule_entry(place: EntryAddress, rule: Rule, *, is_fresh: bool = False) -> str:
    return entry_of(
        rule_element(rule, is_fresh=is_fresh),
        place,
        title=rule.name,
        published=rule.created_at_ms,
        updated=rule.created_at_ms,
    )


def _etag(rule: Rule) -> str:
    return sha256(rule_element(rule).encode()).hexdigest()[:16]
