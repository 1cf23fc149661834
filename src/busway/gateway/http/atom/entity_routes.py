"""Entity management over HTTP, as the official admin clients speak it (ERR-43).

    GET    /$namespaceinfo                 the namespace
    GET    /$Resources/queues|topics       a page of entities
    GET    /NAME                           a queue or topic; a missing one is 200 with a feed without entries
    PUT    /NAME                           create (409 when it exists); with If-Match update (404 when missing)
    DELETE /NAME                           200, or 404

What lies below a topic is in `subscription_routes` and `rule_routes`.

Every route asks for Manage (A-9) before it looks at anything else, so a stranger learns nothing, not even
which names exist. A valid token without Manage learns only that (`manage_right`).
"""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from starlette.responses import Response

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.gateway.http.atom.atom import EntryAddress, entry_of, namespace_entry
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
from busway.gateway.http.atom.manage_right import check_address, check_targets, require_manage
from busway.gateway.http.atom.topic_address import TopicAddress
from busway.gateway.http.call import Call, host_of
from busway.gateway.http.statuses import HttpRefusal
from busway.model.description_checks import default_queue, default_topic
from busway.model.descriptions import (
    Description,
    NewEntity,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.entity_path import check_path, shown
from busway.model.errors import BadArgument, EntityNotFound, InvalidOperation, Unauthorized

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
        return _entry_at(place, call, description, numbers)

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
        return _entry_at(place, call, description, numbers)

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


def _entry_at(
    place: EntryAddress, call: Call, description: Description, numbers: RuntimeNumbers | None
) -> str:
    return entry_of(
        entity_element(description, numbers, call.root, call.api_version),
        place,
        title=description.path,
        published=description.created_at_ms,
        updated=description.updated_at_ms,
    )
