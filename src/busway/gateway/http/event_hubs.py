"""Event hubs over HTTP: managing them, publishing, how far they are and waiting for more.

Managing them (`HubRoutes`), in JSON under the names of `streams.hub_descriptions`:

    GET     /$eventhubs                            [{hub …}]
    GET     /$eventhubs/HUB                        {hub …}
    PUT     /$eventhubs/HUB                        {property …, ConsumerGroups?}: created; changed with `If-Match`
    DELETE  /$eventhubs/HUB                        with everything in it
    GET     /$eventhubs/HUB/consumergroups         [{group …}]
    GET     /$eventhubs/HUB/consumergroups/GROUP
    PUT     /$eventhubs/HUB/consumergroups/GROUP   {UserMetadata?}: created; changed with `If-Match`
    DELETE  /$eventhubs/HUB/consumergroups/GROUP
    GET     /$eventhubs/HUB/partitions             [{partition, store, health, begin, last, events, bytes …}]

All of them ask for Manage on the namespace (`router`). A property that a change does not name stays as it is.

Consumer groups (`ConsumerGroupRoutes`), in ATOM, as administration clients of the service write them (H-5). They
ask for Manage on the hub:

    GET     /HUB/consumergroups           a page of them
    GET     /HUB/consumergroups/GROUP     one; 404 when it is missing
    PUT     /HUB/consumergroups/GROUP     create (409 when it exists); with If-Match update (404 when missing)
    DELETE  /HUB/consumergroups/GROUP     200, or 404

Publishing (`HubMessages`, H-15), with the bodies of the message API (`messages.http_message`):

    POST  HUB/messages                  one event, or a batch in JSON; `PartitionKey` among BrokerProperties    201
    POST  HUB/partitions/N/messages     to that partition                                                       201
    POST  HUB/publishers/P/messages     as that publisher, whose name is the partition key (H-13)               201

How far the partitions of a hub are, and waiting until one of them goes on, for streams that read a hub
(`PartitionsRoute`):

    GET     /HUB/partitions?known=NUMBER,NUMBER,…&wait=SECONDS

    {"createdAtMs": …, "partitions": [{"first": …, "next": …, "lastOffset": …, "lastAtMs": …}, …]}

`first` is the oldest event that is there, `next` the number that the next one gets: equal where nothing is.
`known` are the numbers that the caller knows as `next`, in order of the partitions. Where all of them still hold
the answer waits, at most `wait` seconds; without `known` it comes at once. The caller needs Listen on the hub, or,
when it only wants to know where it publishes, Send.

A request that waits holds nothing but its connection. It ends with the first of: an event in any partition, a
store that goes, its time, the client's leaving, the server's end; whatever is true then is told.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final
from xml.etree.ElementTree import Element

from starlette.responses import JSONResponse, Response

from busway.amqp.decode import DecodeError
from busway.atom_names import CONNECT, INSTANCE
from busway.clock import Clock
from busway.gateway.http.atom.atom import (
    EntryAddress,
    check_match,
    deleted_answer,
    described,
    entry_answer,
    entry_of,
    entry_url,
    feed_answer,
    is_nil,
    is_update,
    local_name,
    page_of,
    text_of,
    timestamp,
    xml_escaped,
)
from busway.gateway.http.call import Call
from busway.gateway.http.messages.http_message import batch_payloads, is_batch, single_payload
from busway.gateway.http.presence import presence_of, spelled_headers
from busway.gateway.http.untrusted_input import parse_json
from busway.message.event_record import Event, event_of
from busway.message.message import ticks_of
from busway.model.descriptions import LISTEN, MANAGE, SEND, rule_json
from busway.model.entity_path import path_key, shown
from busway.model.errors import (
    BadArgument,
    BrokerError,
    EntityNotFound,
    InvalidOperation,
    MessageTooLarge,
    Unauthorized,
)
from busway.model.json_rows import Json
from busway.streams.event_hub import EventHub, put_publisher
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import (
    HUB_PROPERTIES,
    ConsumerGroupDescription,
    EventHubDescription,
    changed_hub,
    group_of_json,
    hub_of_json,
    hub_properties,
)

_HUB_KEYS: Final = frozenset({"Name", *HUB_PROPERTIES, "ConsumerGroups"})
_GROUP_KEYS: Final = frozenset({"Name", "UserMetadata"})
#: Keys are in the answers: no cache on the way may keep them.
_NO_STORE: Final = {"Cache-Control": "no-store"}


class HubRoutes:
    """Managing event hubs, in JSON under the names of `streams.hub_descriptions`."""

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


_KEYWORD: Final = "consumergroups"
_DESCRIPTION: Final = "ConsumerGroupDescription"
_READ_ONLY: Final = frozenset({"CreatedAt", "UpdatedAt", "EventHubPath", "Name"})


class ConsumerGroupRoutes:
    """Consumer groups of an event hub, as administration clients of the service write them (H-5)."""

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


_MADE_AT_ONCE: Final = 2_000

Done = Callable[[BrokerError | None], None]


class HubMessages:
    """Publishing over HTTP (H-15), with the bodies of the message API."""

    def __init__(self, hubs: EventHubs, clock: Clock) -> None:
        self._hubs = hubs
        self._clock = clock

    async def publish(self, call: Call, hub: str, kind: str = "", name: str = "") -> Response:
        entity = f"{hub}/{kind}/{name}" if kind else hub
        call.require_for(entity, call.path, SEND, path_key(hub))
        bytes_max = self._hubs.namespace.limits.event_bytes_max
        body = await call.body(bytes_max, MessageTooLarge)
        events = await self._events(call, body)
        found = self._hubs.hub(hub)  # as it is now: all that took its time
        found.check_status(sends=True)
        if kind.lower() == "publishers":
            found.check_publisher(name)
            put_publisher(events, name)
        if kind.lower() == "partitions":
            await _published(lambda done: found.partition(name).append(events, done))
        else:
            await self._publish(found, events)
        return Response(status_code=201)

    async def _events(self, call: Call, body: bytes) -> list[Event]:
        request = call.request
        content_type = request.headers.get("content-type")
        now_ms = self._clock.wall_ms()
        if is_batch(content_type):
            payloads = await batch_payloads(body, now_ms, lambda _: None)
        else:
            payloads = [single_payload(body, spelled_headers(request), content_type, now_ms)]
        events: list[Event] = []
        try:
            for payload in payloads:
                events.append(event_of(payload))
                if len(events) % _MADE_AT_ONCE == 0:
                    await asyncio.sleep(0)  # others have their turn
        except DecodeError as error:
            raise BadArgument(f"The event cannot be stored: {error}.") from error
        return events

    async def _publish(self, hub: EventHub, events: list[Event]) -> None:
        """H-17: a batch goes to one partition, so it has one key or none."""
        keys = {event.partition_key for event in events}
        if len(keys) > 1:
            raise InvalidOperation("All events of a batch must have the same partition key.")
        key = keys.pop() if keys else None
        if key is None:
            await _published(lambda done: hub.publish(events, done))
        else:
            await _published(lambda done: hub.publish_keyed(key, events, done))


async def _published(start: Callable[[Done], None]) -> None:
    ended: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()

    def report(error: BrokerError | None) -> None:
        if not ended.done():  # the request may have been cancelled meanwhile
            ended.set_result(error)

    start(report)
    error = await ended
    if error is not None:
        raise error


WAIT_S_MAX: Final = 10.0
#: More than these are answered at once.
WAITING_MAX: Final = 5_000
_SECONDS: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,6})?")
_NUMBERS: Final = re.compile(r"[0-9]{1,19}(?:,[0-9]{1,19}){0,1023}")


class PartitionsRoute:
    """How far the partitions of a hub are, and waiting until one of them goes on, for streams that read a hub."""

    def __init__(self, hubs: EventHubs) -> None:
        self._hubs = hubs
        self._waiting: set[asyncio.Event] = set()
        self._is_closed = False

    async def tell(self, call: Call, hub: str) -> Response:
        _require(call, path_key(hub))
        known, wait_s = _known(call), _wait_s(call)
        found = self._hubs.hub(hub)
        if known is not None and wait_s > 0 and _next_numbers(found) == known:
            await self._news(call, found, wait_s)
            found = self._hubs.hub(hub)  # it may be another one by now, or none
        return JSONResponse(_partitions_json(found), headers={"Cache-Control": "no-store"})

    def close(self) -> None:
        """Whoever waits is answered now."""
        self._is_closed = True
        for news in self._waiting:
            news.set()

    async def _news(self, call: Call, hub: EventHub, wait_s: float) -> None:
        if self._is_closed or len(self._waiting) >= WAITING_MAX:
            return
        news = asyncio.Event()
        presence, logs = presence_of(call.request), hub.logs()
        self._waiting.add(news)
        presence.watch(news.set)
        for log in logs:
            log.cursors.watch_end(news.set)
        try:
            async with asyncio.timeout(wait_s):
                await news.wait()
        except TimeoutError:
            pass
        finally:
            for log in logs:
                log.cursors.unwatch_end(news.set)
            presence.unwatch(news.set)
            self._waiting.discard(news)


def _require(call: Call, owner_key: str) -> None:
    """As the same question over AMQP: whoever may use the hub may know how far it is."""
    try:
        call.require(LISTEN, owner_key)
    except Unauthorized:
        call.require(SEND, owner_key)


def _next_numbers(hub: EventHub) -> list[int]:
    """Raises ServerBusy while the store of one is away."""
    return [hub.partition(name).durable_end for name in hub.partition_ids()]


def _partitions_json(hub: EventHub) -> Json:
    partitions: list[Json] = []
    for name in hub.partition_ids():
        info = hub.partition(name).info()
        following = info.last_number + 1
        partitions.append(
            {
                "first": following if info.is_empty else info.begin_number,
                "next": following,
                "lastOffset": info.last_offset,
                "lastAtMs": info.last_at_ms,
            }
        )
    return {"createdAtMs": hub.description.created_at_ms, "partitions": partitions}


def _known(call: Call) -> list[int] | None:
    text = call.request.query_params.get("known")
    if text is None:
        return None
    if _NUMBERS.fullmatch(text) is None:
        raise BadArgument(f"known: {shown(text[:64])} is not a list of numbers.")
    return [int(number) for number in text.split(",")]


def _wait_s(call: Call) -> float:
    text = call.request.query_params.get("wait", "0")
    if _SECONDS.fullmatch(text) is None:
        raise BadArgument(f"wait: {shown(text[:32])} is not a number of seconds.")
    return min(float(text), WAIT_S_MAX)
