"""Transfer frames as client libraries really write them, out of the recorded conversations of `tests/wire`, and
mutants of them."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from struct import unpack_from

from busway.amqp.performatives import Transfer, decode_performative

WIRE = Path(__file__).parents[1] / "wire"
#: What is worth trying in place of a byte: constructors, and the ends of what a byte can be.
TELLING = bytes(
    (0x00, 0x01, 0x40, 0x41, 0x42, 0x43, 0x45, 0x52, 0x53, 0x56, 0x70, 0x7F, 0x80, 0xA0, 0xA1, 0xA3)
)
TELLING += bytes((0xB0, 0xB1, 0xC0, 0xC1, 0xD0, 0xD1, 0xFE, 0xFF, 0x14, 0x72, 0x73, 0x74, 0x75, 0x77, 0x78))


@cache
def real_transfers() -> dict[str, list[bytes]]:
    """Recording → whole frames that its client wrote, of every kind of transfer."""
    found: dict[str, list[bytes]] = {}
    for file in sorted(WIRE.glob("*transcripts/*.txt")):
        streams: dict[str, bytes] = {}
        for line in file.read_text("ascii").splitlines():
            if line.startswith("C"):
                who, data = line.split()
                streams[who] = streams.get(who, b"") + bytes.fromhex(data)
        frames = [frame for stream in streams.values() for frame in _transfers(stream)]
        if frames:
            found[f"{file.parent.name}/{file.stem}"] = frames
    return found


def _transfers(stream: bytes) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at + 8 <= len(stream):
        if stream[at : at + 4] == b"AMQP":
            at += 8
            continue
        size, doff = unpack_from(">IB", stream, at)
        body = at + 4 * doff
        if stream[body : body + 3] == b"\x00\x53\x14":
            found.append(stream[at : at + size])
        at += size
    return found


def transfer_of(frame: bytes) -> tuple[Transfer, bytes]:
    """A frame's transfer and its payload."""
    transfer, payload_at = decode_performative(frame, 4 * frame[4], len(frame))
    assert isinstance(transfer, Transfer)
    return transfer, frame[payload_at:]


@cache
def whole_payloads() -> list[bytes]:
    """Messages that came in one frame, each of them once."""
    found: dict[bytes, bool] = {}
    for frames in real_transfers().values():
        goes_on = False
        for frame in frames:
            transfer, payload = transfer_of(frame)
            if not goes_on and not transfer.more and payload:
                found[payload] = True
            goes_on = transfer.more
    return list(found)


def mutated(chance: random.Random, data: bytes, most: int = 3) -> bytes:
    """With up to so many changes: bytes replaced, flipped, left out, doubled; sizes are not mended."""
    made = bytearray(data)
    for _ in range(chance.randint(0, most)):
        at = chance.randrange(len(made) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(made):
            made[at] = chance.choice(TELLING)
        elif kind == 1 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del made[at : at + chance.randint(1, 8)]
        elif kind == 3:
            made[at:at] = made[at : at + chance.randint(1, 8)]
        elif kind == 4:
            made[at:at] = bytes((chance.choice(TELLING),))
        elif at < len(made):
            made[at] = (made[at] + chance.choice((1, -1))) % 256
    return bytes(made)


def with_right_size(frame: bytes) -> bytes:
    """Whatever its parts say, the frame itself is as long as it is."""
    return len(frame).to_bytes(4, "big") + frame[4:] if len(frame) >= 8 else frame
