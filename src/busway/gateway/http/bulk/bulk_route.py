"""Reading a range of a partition in bulk, for Spark and for tools.

    GET  /HUB/partitions/N/events?from=NUMBER&to=NUMBER&bytes=SIZE&format=chunks|arrow&parts=all|heads|numbers

`from` is the first sequence number wanted (the oldest that is retained when it is left out), `to` the first one not
wanted any more (the end as it is now when it is left out). The answer is cut behind about `bytes`; whoever wants more
goes on behind the last number that came, and an answer without events says that there is nothing in the range.

`chunks` (the default) is a sequence of stored chunks (`message.event_chunk`), each behind its length in four bytes,
little-endian: what lies in the store is sent as it lies there, and no single event is touched. The first and the last
chunk may hold events outside the range; whoever reads leaves them out. With `parts` bodies are left out, or all but
numbers and times (`busway.message.event_chunk`).

`arrow` is an Arrow IPC stream with the columns sequence_number, enqueued_time and message (the AMQP message). It
needs the `arrow` extra on the server.

The caller needs Listen on the hub. Pages are read from the store while the client takes them: a slow client holds one
page in memory, two at most (`bulk_admission` says when). A chunk at the start of the range that is damaged, or that
the store cannot read, is refused with what is lost; one behind it ends the answer before it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from busway.gateway.http.bulk.admission import BulkAdmission, BulkPlace
from busway.gateway.http.bulk.answer import BulkAnswer, Page
from busway.gateway.http.call import SOON_S, Call
from busway.gateway.http.presence import presence_of
from busway.message.event_chunk import ALL, HEADS, NUMBERS, PARTS, heads_of, numbers_of, span
from busway.model.descriptions import LISTEN
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument, EventsLost
from busway.store.contract import ChunkPage
from busway.streams.cursor import first_damage
from busway.streams.event_hubs import EventHubs
from busway.streams.partition_log import PartitionLog

if TYPE_CHECKING:
    from busway.gateway.http.bulk.arrow_stream import ArrowStream

CHUNKS_TYPE: Final = "application/vnd.busway.chunks"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
BYTES_DEFAULT: Final = 64 * 1024 * 1024
#: Read from the store in one go.
PAGE_BYTES: Final = 1024 * 1024
_DIGITS_MAX: Final = 18
_LENGTH: Final = struct.Struct("<I")

#: The bytes of a stored chunk → what is sent, in pieces.
Encode = Callable[[bytes], tuple[bytes, ...]]


class BulkRoute:
    def __init__(self, hubs: EventHubs, admission: BulkAdmission) -> None:
        self._hubs = hubs
        self._admission = admission

    @staticmethod
    def require(call: Call, hub: str, _: str) -> None:
        call.require(LISTEN, path_key(hub))

    async def read(self, call: Call, hub: str, partition: str) -> Response:
        call.retry_after_s = SOON_S
        log = self._hubs.hub(hub).partition(partition)
        info = log.info()
        first = max(_number(call, "from", 0), info.begin_number, 0)
        end = min(_number(call, "to", info.last_number + 1), info.last_number + 1)
        bytes_max = _number(call, "bytes", BYTES_DEFAULT)
        form = call.request.query_params.get("format", "chunks")
        if form not in ("chunks", "arrow"):
            raise BadArgument(f"format: {shown(form)} is neither 'chunks' nor 'arrow'.")
        arrow = _arrow_stream() if form == "arrow" else None
        encode = _framing(call) if arrow is None else arrow.batch
        place = self._admission.enter(call.caller, presence_of(call.request))
        try:
            reading = _Reading(log, end, bytes_max, place)
            await reading.begin(first)
        except BaseException:
            place.close()
            raise
        pages = _body(reading, encode, arrow, place)
        return BulkAnswer(place, pages, CHUNKS_TYPE if arrow is None else ARROW_TYPE)


class _Reading:
    """Pages of a log up to a number, the next one on its way while one is written, if there is room for both."""

    def __init__(self, log: PartitionLog, end: int, bytes_max: int, place: BulkPlace) -> None:
        self._log = log
        self._end = end
        self._left = bytes_max
        self._place = place
        self._chunks: list[bytes] = []

    async def begin(self, first: int) -> None:
        """The first page is read before the answer begins, so that what is wrong with it can still be said."""
        if first >= self._end:
            return
        await self._place.hold(min(PAGE_BYTES, self._left))
        page = await self._page(first)
        self._chunks = _before_damage(page, first)
        self._place.holds(sum(map(len, self._chunks)))
        lost = first_damage(page, first)
        if lost is not None and lost.first_number < self._end and not self._chunks:
            raise EventsLost.in_partition(self._log.name, lost.first_number, lost.last_number)

    async def pages(self) -> AsyncGenerator[list[bytes], None]:
        coming: asyncio.Task[ChunkPage] | None = None
        try:
            while self._chunks:
                chunks, reached = self._chunks, span(self._chunks[-1])[1] + 1
                while chunks and span(chunks[-1])[0] >= self._end:
                    chunks.pop()
                self._left -= sum(map(len, chunks))
                goes_on = bool(chunks) and reached < self._end and self._left > 0
                if goes_on and self._place.extend(min(PAGE_BYTES, self._left)):
                    coming = asyncio.create_task(self._page(reached))
                yield chunks
                self._chunks = []
                if not goes_on:
                    return
                self._chunks = await self._following(reached, coming)
                coming = None
        finally:
            if coming is not None:
                coming.cancel()

    async def _following(self, reached: int, coming: asyncio.Task[ChunkPage] | None) -> list[bytes]:
        """What is behind the page that was written. `coming`: it is on its way, and held already."""
        if coming is None:
            self._place.holds(0)
            await self._place.hold(min(PAGE_BYTES, self._left))
        try:
            page = await (self._page(reached) if coming is None else coming)
        except EventsLost:
            return []  # as before damage: whoever asks from there on is told
        chunks = _before_damage(page, reached)
        self._place.holds(sum(map(len, chunks)))
        return chunks

    async def _page(self, number: int) -> ChunkPage:
        async with self._place.working(self._log.store.name):
            return await self._log.page(number, min(PAGE_BYTES, self._left))


async def _body(
    reading: _Reading, encode: Encode, arrow: ArrowStream | None, place: BulkPlace
) -> AsyncGenerator[Page, None]:
    if arrow is not None:
        yield [arrow.begin()]
    async with aclosing(reading.pages()) as pages:
        async for chunks in pages:
            if encode is _framed:
                yield [piece for data in chunks for piece in encode(data)]
            else:
                yield await _looked_at(chunks, encode, place)
    if arrow is not None:
        yield [arrow.end()]


async def _looked_at(chunks: list[bytes], encode: Encode, place: BulkPlace) -> Page:
    """Of an encoder that looks at each event: a turn for each chunk, which is let go of when it is done."""
    pieces: list[bytes] = []
    for at, data in enumerate(chunks):
        await place.turn()
        pieces += encode(data)
        chunks[at] = b""
    return pieces


def _before_damage(page: ChunkPage, number: int) -> list[bytes]:
    """The page goes on behind what is damaged; an answer does not, so that nothing is left out in silence."""
    lost = first_damage(page, number)
    if lost is None:
        return page.chunks
    return [data for data in page.chunks if span(data)[0] < lost.first_number]


def _framing(call: Call) -> Encode:
    """Raises BadArgument."""
    parts = call.request.query_params.get("parts", ALL)
    if parts not in _FRAMINGS:
        raise BadArgument(f"parts: {shown(parts)} is none of {', '.join(PARTS)}.")
    return _FRAMINGS[parts]


def _framed(data: bytes) -> tuple[bytes, ...]:
    """In two pieces: a chunk is large and is copied once, with the others of its slice."""
    return _LENGTH.pack(len(data)), data


_FRAMINGS: Final[dict[str, Encode]] = {
    ALL: _framed,
    HEADS: lambda data: _framed(heads_of(data)),
    NUMBERS: lambda data: _framed(numbers_of(data)),
}


def _arrow_stream() -> ArrowStream:
    try:
        from busway.gateway.http.bulk.arrow_stream import ArrowStream
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
