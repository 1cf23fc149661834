"""Everything that lies in an event hub, by links and in bulk, in the words of `stream_checker`."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from busway.amqp.sections import decode_message
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.events import StartPosition
from busway.client.messages import ServiceBusReceivedMessage
from busway.client.service_bus_client import ServiceBusClient
from busway.message.event_chunk import Chunk
from tests.chaos.stream_checker import Seen

_FILLER_BYTES_MAX: Final = 300
#: Nothing takes so long that is not lost.
READ_S_MAX: Final = 20.0
_BULK_BYTES: Final = 2_000_000


def body_of(value: str, filler_bytes: int | None = None) -> bytes:
    """Bodies differ in every bit and in their lengths."""
    seed = crc32(value.encode())
    length = seed % _FILLER_BYTES_MAX if filler_bytes is None else filler_bytes
    filler = (b"%08x" % seed) * (length // 8 + 1)
    return value.encode() + b":" + filler[:length]


def value_of(body: bytes) -> str:
    """A body that has changed shows as a value that nobody sent."""
    value, _, filler = body.partition(b":")
    text = value.decode(errors="replace")
    return text if body_of(text, len(filler)) == body else f"changed {text}"


def seen_of(message: ServiceBusReceivedMessage) -> Seen:
    annotations = decode_message(message.payload).message_annotations or {}
    offset = annotations.get("x-opt-offset")
    number, at_ms = message.sequence_number, message.enqueued_time_ms
    assert isinstance(offset, str)
    assert number is not None
    assert at_ms is not None
    return Seen(number, offset, at_ms, value_of(message.body), time.monotonic())


def partitions_of(connection_string: str, hub: str) -> list[dict[str, object]]:
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        return list(administration.hubs.partitions(hub))


def number_in(partition: dict[str, object], name: str) -> int:
    value = partition[name]
    assert isinstance(value, int)
    return value


async def read_partition(client: ServiceBusClient, hub: str, partition: str, end: int) -> list[Seen]:
    """From the first event to the one before `end`; what does not come in time is missing."""
    found: list[Seen] = []
    if end <= 0:
        return found
    deadline = time.monotonic() + READ_S_MAX
    async with client.get_event_reader(hub, partition, StartPosition.first()) as reader:
        while (not found or found[-1].number < end - 1) and time.monotonic() < deadline:
            found += [seen_of(message) for message in await reader.receive(1.0)]
    return found


def read_in_bulk(connection_string: str, hub: str, partition: str, end: int) -> list[Seen]:
    """The same over HTTP. Raises what the server refuses."""
    return [event for page in bulk_pages(connection_string, hub, partition, end) for event in page]


def bulk_pages(
    connection_string: str, hub: str, partition: str, end: int, first: int = 0
) -> Iterator[list[Seen]]:
    """Until nothing more comes."""
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        while first < end:
            query = f"&from={first}&to={end}&bytes={_BULK_BYTES}"
            answer = administration._request("GET", f"/{hub}/partitions/{partition}/events", query=query)
            came = [event for event in _events(answer) if first <= event.number < end]
            if not came:
                return
            yield came
            first = came[-1].number + 1


def _events(answer: bytes) -> Iterator[Seen]:
    at = 0
    while at < len(answer):
        (size,) = struct.unpack_from("<I", answer, at)
        chunk = Chunk(answer[at + 4 : at + 4 + size])
        at += 4 + size
        for place in range(chunk.count):
            event = seen_of(ServiceBusReceivedMessage(chunk.record(place)))
            told = (event.number, event.at_ms)
            assert told == (chunk.number(place), chunk.at_ms(place)), "a record contradicts its chunk"
            yield event
