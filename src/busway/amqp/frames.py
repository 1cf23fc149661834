"""Cutting the byte stream into frames, and putting frames together.

A frame:   size (4 bytes, the whole frame) | doff (1, header length in words) | type (1) | channel (2) | body
A header:  "AMQP" | protocol id (0 AMQP, 3 SASL) | 1 | 0 | 0

`FrameBuffer` keeps what one read left unfinished. It never copies complete frames: a read that holds whole
frames is cut in place, and only the unfinished rest at its end is kept. A declared size is compared with the cap
of the moment before a single byte is waited for, and nothing is ever allocated from it, so a peer pays for every
byte it makes us hold.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_BYTES: Final = 8

FRAME_TYPE_AMQP: Final = 0
FRAME_TYPE_SASL: Final = 1

#: size, doff, type, channel. The channel's two bytes mean nothing in a SASL frame.
FRAME_HEAD: Final = Struct(">IBBH")
FRAME_HEAD_BYTES: Final = 8

#: The smallest max-frame-size the standard allows a peer to announce [2.7.1], and the cap of SASL frames [5.3.1].
MIN_MAX_FRAME_BYTES: Final = 512
SASL_FRAME_BYTES_MAX: Final = 512
#: The cap until the peer's open has been read. Big enough for the longest open an SDK writes, small for strangers.
OPEN_FRAME_BYTES_MAX: Final = 8_192

EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def frame(channel: int, body: bytes) -> bytes:
    """An AMQP frame around an encoded performative."""
    return FRAME_HEAD.pack(FRAME_HEAD_BYTES + len(body), 2, FRAME_TYPE_AMQP, channel) + body


def sasl_frame(body: bytes) -> bytes:
    return FRAME_HEAD.pack(FRAME_HEAD_BYTES + len(body), 2, FRAME_TYPE_SASL, 0) + body


def head_fault(size: int, doff: int, frame_bytes_max: int) -> str | None:
    """What is wrong with a frame head, as a sentence; None when it is sound."""
    if size > frame_bytes_max:
        return f"A frame of {size} bytes exceeds the allowed {frame_bytes_max} bytes."
    if size < FRAME_HEAD_BYTES:
        return f"A frame cannot be {size} bytes long."
    if doff < 2 or doff * 4 > size:
        return f"The data offset {doff} does not fit a frame of {size} bytes."
    return None


class FrameBuffer:
    """The unfinished end of the last read.

    `join` gives the bytes to cut next, or nothing while the frame at the front is known to be unfinished: then the
    new bytes are only appended, so a frame that trickles in byte by byte costs linear, not quadratic, work.
    """

    __slots__ = ("_needed", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        #: Bytes that `_rest` must reach before looking at it makes sense.
        self._needed = 0

    def join(self, data: bytes) -> bytes:
        rest = self._rest
        if not rest:
            return data
        rest += data
        if len(rest) < self._needed:
            return b""
        joined = bytes(rest)
        self._rest = bytearray()
        return joined

    def keep(self, data: bytes, offset: int, needed: int) -> None:
        """Hold `data[offset:]`, which begins a frame (or header) of `needed` bytes."""
        self._rest = bytearray(data[offset:]) if offset else bytearray(data)
        self._needed = needed

    def wake(self) -> None:
        """What was kept may be looked at again, however little it is."""
        self._needed = 0

    def clear(self) -> None:
        self._rest = bytearray()

    def __len__(self) -> int:
        return len(self._rest)
