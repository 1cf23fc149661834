"""Managing event hubs, in JSON under the names of `streams.hub_descriptions`:

    GET     /$eventhubs                              [{hub …}]
    GET     /$eventhubs/HUB                          {hub …}
    PUT     /$eventhubs/HUB                          {property …, ConsumerGroups?}: created; changed with `If-Match`
    DELETE  /$eventhubs/HUB                          with everything in it
    GET     /$eventhubs/HUB/consumergroups           [{group …}]
    GET     /$eventhubs/HUB/consumergroups/GROUP
    PUT     /$eventhubs/HUB/consumergroups/GROUP     {UserMetadata?}: created; changed with `If-Match`
    DELETE  /$eventhubs/HUB/consumergroups/GROUP
    GET     /$eventhubs/HUB/partitions               [{partition, store, health, begin, last, events, bytes …}]

All of them ask for Manage on the namespace (`router`). A property that a change does not name stays as it is.
"""

from typing import Final

from starlette.responses import JSONResponse, Response

from busway.gateway.http.atom.atom import timestamp
from busway.gateway.http.call import Call
from busway.gateway.http.json_input import parse_json
from busway.model.descriptions import Json, rule_json
from busway.model.entity_path import shown
from busway.model.errors import BadArgument, EntityNotFound
from busway.streams.event_hub import EventHub
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import (
    ConsumerGroupDescription,
    EventHubDescription,
    changed_hub,
    group_of_json,
    hub_of_json,
    hub_properties,
)

_HUB_KEYS: Final = frozenset(
    {
        "Name",
        "PartitionCount",
        "MessageRetentionInDays",
        "RetentionDescription",
        "Status",
        "UserMetadata",
        "CaptureDescription",
        "RevokedPublishers",
        "AuthorizationRules",
        "ConsumerGroups",
    }
)
_GROUP_KEYS: Final = frozenset({"Name", "UserMetadata"})
#: Keys are in the answers: no cache on the way may keep them.
_NO_STORE: Final = {"Cache-Control": "no-store"}


class HubRoutes:
    def __init__(self, hubs: EventHubs) -> None:
        self._hubs = hubs

    async def nothing(self, call: Call, _: str) -> Response:
        raise EntityNotFound(f"There is nothing under {shown(call.path)}.")

    # -- hubs

    async def hubs(self, _: Call) -> Response:
        return _json([self._shown(hub) for hub in self._hubs.hubs()])

    async def hub(self, _: Call, hub: str) -> Response:
        return _json(self._shown(self._hubs.description(hub)))

    async def delete_hub(self, _: Call, hub: str) -> Response:
        await self._hubs.delete(hub)
        return Response(status_code=200)

    async def put_hub(self, call: Call, hub: str) -> Response:
        sent = _members(await call.body(), _HUB_KEYS)
        groups = _groups_of(hub, sent.pop("ConsumerGroups", []))
        if "if-match" not in call.request.headers:
            made = await self._hubs.create(hub_of_json({**sent, "Name": hub}), groups)
            return _json(self._shown(made), 201)
        present = self._hubs.description(hub)
        return _json(self._shown(await self._hubs.update(changed_hub(present, sent))))

    def _shown(self, hub: EventHubDescription) -> Json:
        return {
            "Name": hub.path,
            **hub_properties(hub),
            "PartitionIds": [str(index) for index in range(hub.partition_count)],
            "ConsumerGroups": [group.name for group in self._hubs.groups(hub.path)],
            "AuthorizationRules": [rule_json(rule) for rule in hub.authorization_rules],
            "CreatedAt": timestamp(hub.created_at_ms),
            "UpdatedAt": timestamp(hub.updated_at_ms),
        }

    async def partitions(self, _: Call, hub: str) -> Response:
        found = self._hubs.hub(hub)
        stores = enumerate(self._hubs.store_names(hub))
        return _json([_partition_shown(found, index, store) for index, store in stores])

    # -- consumer groups

    async def groups(self, _: Call, hub: str) -> Response:
        return _json([_group_shown(group) for group in self._hubs.groups(hub)])

    async def group(self, _: Call, hub: str, group: str) -> Response:
        return _json(_group_shown(self._hubs.group(hub, group)))

    async def delete_group(self, _: Call, hub: str, group: str) -> Response:
        await self._hubs.delete_group(hub, group)
        return Response(status_code=200)

    async def put_group(self, call: Call, hub: str, group: str) -> Response:
        sent = _members(await call.body(), _GROUP_KEYS)
        wanted = group_of_json(hub, {**sent, "Name": group})
        if "if-match" in call.request.headers:
            return _json(_group_shown(await self._hubs.update_group(wanted)))
        return _json(_group_shown(await self._hubs.create_group(wanted)), 201)


def _members(body: bytes, known: frozenset[str]) -> Json:
    sent = parse_json(body or b"{}", "The body")
    if not isinstance(sent, dict):
        raise BadArgument("The body must be a JSON object.")
    strange = next((key for key in sent if key not in known), None)
    if strange is not None:
        raise BadArgument(f"{shown(strange)} is not known here; known are {', '.join(sorted(known))}.")
    return sent


def _groups_of(hub: str, sent: object) -> list[ConsumerGroupDescription]:
    """Names, or objects with a name."""
    if not isinstance(sent, list):
        raise BadArgument("ConsumerGroups: a list is expected.")
    groups: list[ConsumerGroupDescription] = []
    for entry in sent:
        if isinstance(entry, str):
            groups.append(ConsumerGroupDescription(hub, entry))
        elif isinstance(entry, dict):
            groups.append(group_of_json(hub, entry))
        else:
            raise BadArgument("ConsumerGroups: each entry is a name, or an object with a Name.")
    return groups


def _group_shown(group: ConsumerGroupDescription) -> Json:
    return {
        "Name": group.name,
        "UserMetadata": group.user_metadata,
        "CreatedAt": timestamp(group.created_at_ms),
        "UpdatedAt": timestamp(group.updated_at_ms),
    }


def _partition_shown(hub: EventHub, index: int, store: str) -> Json:
    """A partition whose store is away has no numbers to show."""
    log = hub.present_partition(index)
    if log is None:
        return {"partition": str(index), "store": store, "health": "unavailable"}
    info = log.info()
    return {
        "partition": str(index),
        "store": store,
        "health": "available",
        "beginSequenceNumber": info.begin_number,
        "lastSequenceNumber": info.last_number,
        "lastEnqueuedAt": timestamp(info.last_at_ms),
        "events": info.events,
        "sizeInBytes": info.bytes,
    }


def _json(content: object, status: int = 200) -> Response:
    return JSONResponse(content, status, _NO_STORE)
