"""How far the partitions of a hub are, and waiting until one of them goes on, for streams that read a hub.

    GET  /HUB/partitions?known=NUMBER,NUMBER,…&wait=SECONDS

    {"createdAtMs": …, "partitions": [{"first": …, "next": …, "lastOffset": …, "lastAtMs": …}, …]}

`first` is the oldest event that is there, `next` the number that the next one gets: equal where nothing is. `known`
are the numbers that the caller knows as `next`, in order of the partitions. Where all of them still hold the answer
waits, at most `wait` seconds; without `known` it comes at once. The caller needs Listen on the hub, or, when it only
wants to know where it publishes, Send.

A request that waits holds nothing but its connection. It ends with the first of: an event in any partition, a store
that goes, its time, the client's leaving, the server's end; whatever is true then is told.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from starlette.responses import JSONResponse, Response

from busway.gateway.http.call import Call
from busway.gateway.http.presence import presence_of
from busway.model.descriptions import LISTEN, SEND, Json
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument, Unauthorized
from busway.streams.event_hub import EventHub
from busway.streams.event_hubs import EventHubs

WAIT_S_MAX: Final = 10.0
#: More than these are answered at once.
WAITING_MAX: Final = 5_000
_SECONDS: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,6})?")
_NUMBERS: Final = re.compile(r"[0-9]{1,19}(?:,[0-9]{1,19}){0,1023}")


class PartitionsRoute:
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
            log.watch_end(news.set)
        try:
            async with asyncio.timeout(wait_s):
                await news.wait()
        except TimeoutError:
            pass
        finally:
            for log in logs:
                log.unwatch_end(news.set)
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
