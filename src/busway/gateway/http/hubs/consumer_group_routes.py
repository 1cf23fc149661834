"""Consumer groups of an event hub, as administration clients of the service write them (H-5):

    GET    /HUB/consumergroups           a page of them
    GET    /HUB/consumergroups/GROUP     one; 404 when it is missing
    PUT    /HUB/consumergroups/GROUP     create (409 when it exists); with If-Match update (404 when missing)
    DELETE /HUB/consumergroups/GROUP     200, or 404

They ask for Manage on the hub. Our own way to manage hubs is in `hub_routes`.
"""

from typing import Final
from xml.etree.ElementTree import Element

from starlette.responses import Response

from busway.atom_names import CONNECT, INSTANCE
from busway.clock import Clock
from busway.gateway.http.atom.atom import (
    EntryAddress,
    described,
    entry_of,
    is_nil,
    local_name,
    text_of,
    timestamp,
    xml_escaped,
)
from busway.gateway.http.atom.atom_answers import (
    check_match,
    deleted_answer,
    entry_answer,
    entry_url,
    feed_answer,
    is_update,
    page_of,
)
from busway.gateway.http.call import Call
from busway.message.dotnet_time import ticks_of
from busway.model.descriptions import MANAGE
from busway.model.entity_path import path_key
from busway.model.errors import BadArgument
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import ConsumerGroupDescription, group_of_json

_KEYWORD: Final = "consumergroups"
_DESCRIPTION: Final = "ConsumerGroupDescription"
_READ_ONLY: Final = frozenset({"CreatedAt", "UpdatedAt", "EventHubPath", "Name"})


class ConsumerGroupRoutes:
    def __init__(self, hubs: EventHubs, clock: Clock) -> None:
        self._hubs = hubs
        self._clock = clock

    @staticmethod
    def require(call: Call, hub: str, _: str = "") -> None:
        call.require_for(hub, call.path, MANAGE, path_key(hub))

    async def groups(self, call: Call, hub: str) -> Response:
        page = page_of(call, self._hubs.groups(hub))
        entries = [self._list_entry(call, group) for group in page.items]
        return feed_answer(call, "ConsumerGroups", self._clock.wall_ms(), entries, page.next_url)

    def _list_entry(self, call: Call, group: ConsumerGroupDescription) -> str:
        query = f"?api-version={call.api_version}"
        link = f"{_KEYWORD}/{group.name}{query}"
        return _entry_at(EntryAddress(f"{call.root}/{_path(group)}{query}", base=call.url, link=link), group)

    async def group(self, call: Call, hub: str, group: str) -> Response:
        present = self._hubs.group(hub, group)
        return entry_answer(
            200, _entry_at(EntryAddress(entry_url(call, _path(present))), present), _etag(present)
        )

    async def delete(self, call: Call, hub: str, group: str) -> Response:
        present = self._hubs.group(hub, group)
        check_match(call, present.name, _etag(present))
        await self._hubs.delete_group(hub, present.name)
        return deleted_answer(_etag(present))

    async def put(self, call: Call, hub: str, group: str) -> Response:
        wanted = _group_of(described(await call.body()), self._hubs.description(hub).path, group)
        if is_update(call):
            present = self._hubs.group(hub, group)
            check_match(call, present.name, _etag(present))
            made, status = await self._hubs.update_group(wanted), 200
        else:
            made, status = await self._hubs.create_group(wanted), 201
        return entry_answer(status, _entry_at(EntryAddress(entry_url(call, _path(made))), made), _etag(made))


def _group_of(element: Element, hub: str, name: str) -> ConsumerGroupDescription:
    if local_name(element) != _DESCRIPTION:
        raise BadArgument(f"The entry's content must be one {_DESCRIPTION}.")
    metadata: str | None = None
    for child in element:
        if local_name(child) == "UserMetadata":
            metadata = None if is_nil(child) else text_of(child) or None
        elif local_name(child) not in _READ_ONLY:
            raise BadArgument(f"A {_DESCRIPTION} has UserMetadata and nothing else that can be set.")
    return group_of_json(hub, {"Name": name, "UserMetadata": metadata})


def _path(group: ConsumerGroupDescription) -> str:
    return f"{group.hub_path}/{_KEYWORD}/{group.name}"


def _etag(group: ConsumerGroupDescription) -> str:
    return str(ticks_of(group.updated_at_ms))


def _entry_at(place: EntryAddress, group: ConsumerGroupDescription) -> str:
    metadata = "" if group.user_metadata is None else xml_escaped(group.user_metadata)
    content = (
        f'<{_DESCRIPTION} xmlns="{CONNECT}" xmlns:i="{INSTANCE}"><CreatedAt>{timestamp(group.created_at_ms)}'
        f"</CreatedAt><UpdatedAt>{timestamp(group.updated_at_ms)}</UpdatedAt>"
        f"<UserMetadata>{metadata}</UserMetadata></{_DESCRIPTION}>"
    )
    return entry_of(
        content, place, title=group.name, published=group.created_at_ms, updated=group.updated_at_ms
    )
