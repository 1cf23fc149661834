"""Reading a range of a partition in bulk, for Spark and for tools.

    GET  /HUB/partitions/N/events?from=NUMBER&to=NUMBER&bytes=SIZE&format=chunks|arrow&parts=all|heads|numbers

`from` is the first sequence number wanted (the oldest that is retained when it is left out), `to` the first one not
wanted any more (the end as it is now when it is left out). The answer is cut behind about `bytes`; whoever wants more
goes on behind the last number that came, and an answer without events says that there is nothing in the range.

`chunks` (the default) is a sequence of stored chunks (`busway.event_chunk`), each behind its length in four bytes,
little-endian: what lies in the store is sent as it lies there, and no single event is touched. The first and the last
chunk may hold events outside the range; whoever reads leaves them out. With `parts` bodies are left out, or all but
numbers and times (`busway.chunk_parts`).

`arrow` is an Arrow IPC stream with the columns sequence_number, enqueued_time and message (the AMQP message). It
needs the `arrow` extra on the server.

The caller needs Listen on the hub. Pages are read from the store while the client takes them: a slow client holds one
page in memory, nothing else. A chunk at the start of the range that is damaged, or that the store cannot read, is
refused with what is lost; one behind it ends the answer before it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from starlette.responses import Response, StreamingResponse

from busway.broker.descriptions import LISTEN
from busway.broker.entity_path import path_key, shown
from busway.broker.errors import BadArgument, EventsLost
from busway.chunk_parts import ALL, HEADS, NUMBERS, PARTS, heads_of, numbers_of
from busway.event_chunk import span
from busway.gateway.http.call import Call
from busway.store.log_contract import ChunkPage
from busway.streams.cursor import first_damage
from busway.streams.event_hubs import EventHubs
from busway.streams.partition_log import PartitionLog

if TYPE_CHECKING:
    from busway.gateway.http.arrow_stream import ArrowStream

CHUNKS_TYPE: Final = "application/vnd.busway.chunks"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
BYTES_DEFAULT: Final = 64 * 1024 * 1024
#: Read from the store in one go.
PAGE_BYTES: Final = 4 * 1024 * 1024
_DIGITS_MAX: Final = 18
_LENGTH: Final = struct.Struct("<I")

#: The bytes of a stored chunk → what is sent, in pieces.
Encode = Callable[[bytes], tuple[bytes, ...]]


def is_bulk_path(segments: list[str]) -> bool:
    """Of a path in lower case."""
    return len(segments) == 4 and segments[1] == "partitions" and segments[3] == "events"


class BulkRoute:
    def __init__(self, hubs: EventHubs) -> None:
        self._hubs = hubs

    async def handle(self, call: Call) -> Response:
        hub, _, partition_id, _ = call.path.split("/")
        call.require(LISTEN, path_key(hub))
        call.allow("GET", "HEAD")
        log = self._hubs.hub(hub).partition(partition_id)
        info = log.info()
        first = max(_number(call, "from", 0), info.begin_number, 0)
        end = min(_number(call, "to", info.last_number + 1), info.last_number + 1)
        bytes_max = _number(call, "bytes", BYTES_DEFAULT)
        form = call.request.query_params.get("format", "chunks")
        if form == "chunks":
            return await _answer(log, first, end, bytes_max, CHUNKS_TYPE, _framing(call), None)
        if form == "arrow":
            stream = _arrow_stream()
            return await _answer(log, first, end, bytes_max, ARROW_TYPE, stream.batch, stream)
        raise BadArgument(f"format: {shown(form)} is neither 'chunks' nor 'arrow'.")


async def _answer(
    log: PartitionLog,
    first: int,
    end: int,
    bytes_max: int,
    media_type: str,
    encode: Encode,
    arrow: ArrowStream | None,
) -> Response:
    """The first page is read before the answer begins, so that what is wrong with it can still be said."""
    chunks: list[bytes] = []
    if first < end:
        page = await log.page(first, min(PAGE_BYTES, bytes_max))
        chunks = _before_damage(page, first)
        lost = first_damage(page, first)
        if lost is not None and lost.first_number < end and not chunks:
            raise EventsLost.in_partition(log.name, lost.first_number, lost.last_number)
    pages = _pages(log, chunks, end, bytes_max)
    return StreamingResponse(_body(pages, encode, arrow), media_type=media_type)


async def _pages(
    log: PartitionLog, chunks: list[bytes], end: int, bytes_max: int
) -> AsyncIterator[list[bytes]]:
    while chunks:
        while chunks and span(chunks[-1])[0] >= end:
            chunks.pop()
        yield chunks
        bytes_max -= sum(map(len, chunks))
        reached = span(chunks[-1])[1] + 1 if chunks else end
        if reached >= end or bytes_max <= 0:
            return
        try:
            page = await log.page(reached, min(PAGE_BYTES, bytes_max))
        except EventsLost:
            return  # as before damage: whoever asks from there on is told
        chunks = _before_damage(page, reached)


def _before_damage(page: ChunkPage, number: int) -> list[bytes]:
    """The page goes on behind what is damaged; an answer does not, so that nothing is left out in silence."""
    lost = first_damage(page, number)
    if lost is None:
        return page.chunks
    return [data for data in page.chunks if span(data)[0] < lost.first_number]


async def _body(
    pages: AsyncIterator[list[bytes]], encode: Encode, arrow: ArrowStream | None
) -> AsyncIterator[bytes]:
    if arrow is not None:
        yield arrow.begin()
    async for chunks in pages:
        pieces: list[bytes] = []
        for data in chunks:
            pieces += encode(data)
            if encode is not _framed:
                await asyncio.sleep(0)  # it looks at each event: others have their turn between chunks
        yield b"".join(pieces)
    if arrow is not None:
        yield arrow.end()


def _framing(call: Call) -> Encode:
    """Raises BadArgument."""
    parts = call.request.query_params.get("parts", ALL)
    if parts not in _FRAMINGS:
        raise BadArgument(f"parts: {shown(parts)} is none of {', '.join(PARTS)}.")
    return _FRAMINGS[parts]


def _framed(data: bytes) -> tuple[bytes, ...]:
    """In two pieces: a chunk is large and is copied once, with the others of its page."""
    return _LENGTH.pack(len(data)), data


_FRAMINGS: Final[dict[str, Encode]] = {
    ALL: _framed,
    HEADS: lambda data: _framed(heads_of(data)),
    NUMBERS: lambda data: _framed(numbers_of(data)),
}


def _arrow_stream() -> ArrowStream:
    try:
        from busway.gateway.http.arrow_stream import ArrowStream
    except ImportError as error:
        raise BadArgument(
            "format: this server has no pyarrow; install busway[arrow], or ask for 'chunks'."
        ) from error
    return ArrowStream()


def _number(call: Call, name: str, default: int) -> int:
    text = call.request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise BadArgument(f"{name}: {shown(text)} is not a number.")
    return int(text)
