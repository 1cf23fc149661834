"""Publishing over HTTP (H-15), with the bodies of the message API (`sent_message`):

POST  HUB/messages                  one event, or a batch in JSON; `PartitionKey` among the BrokerProperties  201
POST  HUB/partitions/N/messages     to that partition                                                        201
POST  HUB/publishers/P/messages     as that publisher, whose name is the partition key (H-13)                201
"""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from busway.amqp.decode import DecodeError
from busway.clock import Clock
from busway.gateway.http.call import Call
from busway.gateway.http.messages.sent_message import batch_payloads, is_batch, single_payload
from busway.gateway.http.presence import spelled_headers
from busway.message.event_record import Event, event_of
from busway.model.descriptions import SEND
from busway.model.entity_path import path_key
from busway.model.errors import BadArgument, BrokerError, InvalidOperation, MessageTooLarge
from busway.streams.event_hub import EventHub, put_publisher
from busway.streams.event_hubs import EventHubs

_MADE_AT_ONCE: Final = 2_000

Done = Callable[[BrokerError | None], None]


class HubMessages:
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
