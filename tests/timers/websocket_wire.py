"""Our client's connection over WebSocket: what it writes goes into binary frames, what it reads comes out of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from busway.client.connection_string import ConnectionString
from busway.client.wire import Wire
from busway.gateway.http.websocket import SUBPROTOCOL, WEBSOCKET_PATHS

_UPGRADE = (
    f"GET {WEBSOCKET_PATHS[0]} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
).encode()
_BINARY, _CLOSE = 0x02, 0x08


class FrameReader(asyncio.StreamReader):
    """Only `read` is used."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        super().__init__()
        self._stream = stream

    async def read(self, n: int = -1) -> bytes:
        """The bytes of the next frame; none at the end."""
        del n
        try:
            while True:
                kind, size = await self._stream.readexactly(2)
                if size >= 126:
                    size = int.from_bytes(await self._stream.readexactly(2 if size == 126 else 8), "big")
                data = await self._stream.readexactly(size)
                if kind & 0x0F == _CLOSE:
                    return b""
                if data:
                    return data
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


class FrameWriter(asyncio.StreamWriter):
    """As much of a writer as a wire uses."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream

    def __del__(self, *_: object) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._stream.write(frame(bytes(data)))

    def is_closing(self) -> bool:
        return self._stream.is_closing()

    def close(self) -> None:
        self._stream.close()

    async def wait_closed(self) -> None:
        await self._stream.wait_closed()


def frame(data: bytes) -> bytes:
    """The mask is made of zeros, so the data look as they are."""
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes([0x80 | _BINARY]) + length + bytes(4) + data


async def open_wire(target: ConnectionString, ca_file: Path | None, *, plain_login: bool = False) -> Wire:
    """In place of `busway.client.wire.open_wire`."""
    del ca_file
    reader, writer = await asyncio.open_connection(target.host, target.http_port)
    writer.write(_UPGRADE)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head.splitlines()[0], head
    wire = Wire(target, FrameReader(reader), FrameWriter(writer), plain_login=plain_login)
    await wire.start()
    return wire
