"""AMQP over WebSockets as a client: frames, the handshake, answers of strangers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from busway.client.connection_string import BadConnectionString, ConnectionString
from busway.client.wire import FRAME_BYTES_MAX, WebSocketRefused, WebSocketStream, masked, open_websocket


@pytest.mark.parametrize("size", [0, 1, 4, 5, 1000])
def test_masking_twice_is_nothing(size: int) -> None:
    """RFC 6455, 5.3: each byte with one of the mask's in turn."""
    data, mask = bytes(at % 251 for at in range(size)), b"\x00\xff\x0f\x81"
    found = masked(data, mask)
    assert found == bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    assert masked(found, mask) == data


class Sink:
    """Takes what a stream writes."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...


async def reads(came: bytes, work: Callable[[WebSocketStream, Sink], Awaitable[None]]) -> None:
    reader, sink = asyncio.StreamReader(), Sink()
    reader.feed_data(came)
    reader.feed_eof()
    await work(WebSocketStream(reader, sink), sink)  # type: ignore[arg-type]


def test_frames_of_all_sizes_are_read_and_pings_answered() -> None:
    """RFC 6455, 5.2: borders mean nothing; an empty frame is no end, a close frame and a cut one are."""
    long, longer = bytes(126), bytes(70_000)
    came = b"\x82\x03abc\x82\x00\x89\x02hi\x80\x01d"
    came += b"\x82\x7e" + struct.pack(">H", 126) + long + b"\x82\x7f" + struct.pack(">Q", 70_000) + longer
    came += b"\x88\x02\x03\xe8" + b"\x82\x05ab"

    async def work(stream: WebSocketStream, sink: Sink) -> None:
        assert [await stream.read(1) for _ in range(5)] == [b"abc", b"d", long, longer, b""]
        assert (sink.data[0], sink.data[1]) == (0x8A, 0x82)
        assert masked(sink.data[6:], sink.data[2:6]) == b"hi"
        assert await stream.read(1) == b""

    asyncio.run(reads(came, work))


@pytest.mark.parametrize("came", [b"\x82\x83....abc", b"\x82\x7f" + struct.pack(">Q", FRAME_BYTES_MAX + 1)])
def test_a_frame_that_is_masked_or_enormous_is_refused(came: bytes) -> None:
    """Attack: a server does not mask, and what it announces is not made room for."""

    async def work(stream: WebSocketStream, _: Sink) -> None:
        with pytest.raises(WebSocketRefused):
            await stream.read(1)

    asyncio.run(reads(came, work))


@pytest.mark.parametrize("size", [5, 125, 126, 65_535, 65_536])
def test_frames_are_written_with_their_size(size: int) -> None:
    """RFC 6455, 5.2: of one byte, of two, of eight."""

    async def work(stream: WebSocketStream, sink: Sink) -> None:
        stream.write(bytes(size))
        width = {125: 0, 65_535: 2}.get(size, 0 if size < 126 else 2 if size < 65_536 else 8)
        assert sink.data[0] == 0x82
        assert len(sink.data) == 2 + width + 4 + size

    asyncio.run(reads(b"", work))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: no\r\n\r\n",
        b"",
        b"x" * 200_000,
    ],
)
def test_an_answer_that_is_no_websocket_is_told(answer: bytes) -> None:
    """RFC 6455, 4.1: the proof must fit the key."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            with pytest.raises(WebSocketRefused):
                await open_websocket("127.0.0.1", server.sockets[0].getsockname()[1], None)

    asyncio.run(run())


def test_a_connection_string_tells_the_transport() -> None:
    """The official clients' word; over WebSockets AMQP goes where HTTP does."""
    text = "Endpoint=sb://host;SharedAccessKeyName=n;SharedAccessKey=k"
    assert ConnectionString.parse(text).amqp_port == 5671
    assert ConnectionString.parse(f"{text};TransportType=AmqpWebSockets").amqp_port == 443
    assert ConnectionString.parse(f"{text};TransportType=Amqp").amqp_port == 5671
    with pytest.raises(BadConnectionString, match="neither Amqp nor AmqpWebSockets"):
        ConnectionString.parse(f"{text};TransportType=Pigeon")
