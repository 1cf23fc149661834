"""AMQP over a WebSocket, for networks that let nothing but HTTPS out: looks like a socket's reader and writer.

Binary frames carry the byte stream, their borders mean nothing. What a client sends is masked, as RFC 6455 demands.
"""

import asyncio
import base64
import contextlib
import hashlib
import os
import ssl
import struct
from typing import Final

PATH: Final = "/$servicebus/websocket"
SUBPROTOCOL: Final = "AMQPWSB10"
#: A server sends AMQP frames of 64 KiB; some put several into one message.
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
_ACCEPT_TAIL: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_DATA: Final = (0x0, 0x1, _BINARY)
_LAST: Final = 0x80
_MASKED: Final = 0x80
_NORMAL: Final = struct.pack(">H", 1000)
_SHORT_MAX: Final = 125
_WORD_MAX: Final = 0xFFFF


class WebSocketRefused(OSError):
    """The server answered with something else than a WebSocket."""


class WebSocketStream:
    """Use `open_websocket`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_closed = False

    # -- as a reader

    async def read(self, _: int) -> bytes:
        """The next bytes, as many as came together; none at the end. Raises OSError."""
        while True:
            try:
                opcode, payload = await self._frame()
            except asyncio.IncompleteReadError:
                return b""
            if opcode == _CLOSE:
                return b""
            if opcode == _PING:
                self._send(0xA, payload)
            elif opcode in _DATA and payload:
                return payload

    async def _frame(self) -> tuple[int, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & ~_MASKED
        if size > _SHORT_MAX:
            width = 2 if size == _SHORT_MAX + 1 else 8
            size = int.from_bytes(await self._reader.readexactly(width), "big")
        if second & _MASKED or size > FRAME_BYTES_MAX:
            raise WebSocketRefused(f"The server sent a WebSocket frame that is masked, or of {size} bytes.")
        return first & 0xF, await self._reader.readexactly(size)

    # -- as a writer

    def write(self, data: bytes) -> None:
        self._send(_BINARY, data)

    def is_closing(self) -> bool:
        return self._is_closed or self._writer.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self._send(_CLOSE, _NORMAL)
        self._is_closed = True
        self._writer.close()

    async def wait_closed(self) -> None:
        await self._writer.wait_closed()

    def _send(self, opcode: int, data: bytes) -> None:
        size = len(data)
        if size <= _SHORT_MAX:
            head = bytes((_LAST | opcode, _MASKED | size))
        elif size <= _WORD_MAX:
            head = bytes((_LAST | opcode, _MASKED | 126)) + struct.pack(">H", size)
        else:
            head = bytes((_LAST | opcode, _MASKED | 127)) + struct.pack(">Q", size)
        mask = os.urandom(4)
        self._writer.write(head + mask + masked(data, mask))


def masked(data: bytes, mask: bytes) -> bytes:
    """Each byte with one of the mask's in turn; twice is nothing."""
    size = len(data)
    pattern = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(data, "big") ^ pattern).to_bytes(size, "big")


async def open_websocket(host: str, port: int, context: ssl.SSLContext | None) -> WebSocketStream:
    """Raises OSError."""
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        await _upgrade(reader, writer, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except BaseException:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
        raise
    return WebSocketStream(reader, writer)


async def _upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> None:
    key = base64.b64encode(os.urandom(16))
    lines = (
        f"GET {PATH} HTTP/1.1", f"Host: {authority}", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
    )  # fmt: skip
    writer.write("\r\n".join((*lines, "", "")).encode())
    try:
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise WebSocketRefused("The server does not answer as a WebSocket does.") from error
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in answer[1:])
    }
    status = answer[0].split(" ")[1:2]
    digest = hashlib.sha1(key + _ACCEPT_TAIL, usedforsecurity=False).digest()
    expected = base64.b64encode(digest).decode()
    if status != ["101"] or headers.get("sec-websocket-accept") != expected:
        raise WebSocketRefused(f"The server takes no WebSocket at {PATH}: it answered {answer[0][:80]!r}.")
