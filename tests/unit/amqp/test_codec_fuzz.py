"""Seeded mutations of good frames and messages: whatever the bytes, only DecodeError comes out, and soon.

The seeds are fixed, so a failure repeats. Each mutant also goes through the fast readers, which must agree with the
generic one in every case: same value, or both refuse.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from busway.amqp.decode import DecodeError, decode_value, skip_value
from busway.amqp.encode import encode_value
from busway.amqp.errors import AmqpError
from busway.amqp.performatives import (
    ACCEPTED,
    TABLE,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    Flow,
    Header,
    Modified,
    Open,
    Performative,
    Properties,
    Rejected,
    SaslInit,
    SaslMechanisms,
    Source,
    Target,
    TransactionalState,
    Transfer,
    decode_disposition,
    decode_flow,
    decode_performative,
    decode_transfer,
    encode_flow,
    encode_performative,
)
from busway.amqp.sections import (
    DATA,
    SEQUENCE,
    VALUE,
    AmqpMessage,
    compound_start,
    decode_message,
    encode_message,
    is_simple_value,
    scan,
    scan_header,
    scan_properties,
    split_batch,
)
from busway.amqp.types import Array, Described, Symbol, Timestamp, UInt, ULong

FRAMES: list[bytes] = [
    encode_performative(frame)
    for frame in (
        Open("container", "host", 65_536, 4999, 120_000, ["en"], None, ["a", "b"], None, {"product": "x"}),
        Begin(1, 1, 5000, 65_536, 255),
        Attach(
            "link", 3, True, 0, 1, Source("q", filter={"f": None, "g": Described(ULong(0x137000000C), "s")}),
            Target("t"), {b"tag": Described(ULong(0x24), [])}, False, 0, 2**40, None, ["c"],
            {"com.microsoft:timeout": UInt(5)},
        ),
        Attach("controller", 0, False, target=Coordinator(["amqp:local-transactions"])),
        Flow(1, 2, 3, 4, 5, 6, 7, 8, True, False, {"a": 1}),
        Transfer(1, 2, b"0123456789abcdef", 0, False),
        Transfer(1, 300, b"tag", 0x80013700, True, True, 1, TransactionalState(b"txn", ACCEPTED)),
        Disposition(True, 1, 2, False, ACCEPTED),
        Disposition(True, 300, None, True, Modified(True, False, {"a": "b"})),
        Disposition(True, 1, 1, False, Rejected(AmqpError("com.microsoft:dead-letter", "d", {"k": "v"}))),
        Detach(3, True, AmqpError("amqp:not-found", "gone", {})),
        Close(AmqpError("amqp:connection:forced")),
        SaslMechanisms(["MSSBCBS", "PLAIN", "ANONYMOUS"]),
        SaslInit("PLAIN", b"\0user\0password", "host"),
    )
]  # fmt: skip
FRAMES += [
    encode_flow(1, 5000, 1, 65_536, 3, 0, 100),
    bytes.fromhex("005314c0180b5203700000012ca0040000000143560056004040404040") + b"payload",
    bytes.fromhex("005315c0 12 06 5601 700000012c 700000012c 5600 00532445 40"),
]

MESSAGES: list[bytes] = [
    encode_message(message)
    for message in (
        AmqpMessage(
            [b"body" * 30, b""],
            DATA,
            header=Header(True, 4, 60_000, False, 1),
            delivery_annotations={"x-opt-lock-token": b"0" * 16},
            message_annotations={"x-opt-partition-key": "k", ULong(5): Timestamp(5)},
            properties=Properties("id", b"u", "to", "s", "r", 5, "t", "e", 1, 2, "g", 3, "rg"),
            application_properties={"a": 1, "u": Described(Symbol("com.microsoft:uri"), "x")},
            footer={"f": None},
        ),
        AmqpMessage({"operation": [1, {"x": Array([1, 2], 0x81)}]}, VALUE, properties=Properties(5)),
        AmqpMessage([[1, None], []], SEQUENCE, application_properties={}),
    )
]
MESSAGES.append(encode_message(AmqpMessage(MESSAGES[:3], DATA, properties=Properties("first"))))

#: Constructors and sizes that are likely to hurt.
NASTY = bytes.fromhex("00404143444550525354555660707273808183849498a0a1a3b0b1b3c0c1d0d1e0f045ff7f0001")


def mutant(chance: random.Random, raw: bytes) -> bytes:
    """One to four small damages: a byte changed, cut out, doubled, inserted, the end lost, or a size blown up."""
    data = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(data)) if data else 0
        kind = chance.randrange(7)
        if kind == 0 and data:
            data[at] = chance.randrange(256)
        elif kind == 1 and data:
            data[at] = chance.choice(NASTY)
        elif kind == 2:
            del data[at : at + chance.randint(1, 4)]
        elif kind == 3:
            data[at:at] = bytes(chance.choice(NASTY) for _ in range(chance.randint(1, 5)))
        elif kind == 4:
            data[at:at] = data[at : at + chance.randint(1, 20)]
        elif kind == 5:
            del data[at:]
        else:
            data[at : at + 4] = b"\xff\xff\xff\xff" if chance.random() < 0.5 else b"\x00\x00\x00\x01"
    return bytes(data)


def attempt(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except DecodeError as problem:
        return problem


def attributes(value: Performative) -> dict[str, Any]:
    row = next(row for row in TABLE.rows if row.make is type(value))
    return {field.name: getattr(value, field.name) for field in row.fields}


def check_fast(data: bytes, generic: Any) -> None:
    """Each fast reader gives what the generic one gives, or refuses."""
    end = len(data)
    for kind, read in ((Transfer, decode_transfer), (Disposition, decode_disposition), (Flow, decode_flow)):
        fast = attempt(read, data, 0, end)
        at = end
        if isinstance(fast, tuple):
            fast, at = fast
        if isinstance(fast, DecodeError):
            good = isinstance(generic, tuple) and type(generic[0]) is kind
            assert not good or (kind is not Transfer and generic[1] != end)
        else:
            assert isinstance(generic, tuple)
            assert attributes(generic[0]) == attributes(fast)
            assert generic[1] == at


@pytest.mark.parametrize("seed", range(4))
def test_mutated_frames_raise_only_decode_errors(seed: int) -> None:
    """Attack: 40,000 mutants of every kind of frame, by all readers."""
    chance = random.Random(f"frames {seed}")
    understood = 0
    for _ in range(10_000):
        data = mutant(chance, chance.choice(FRAMES))
        generic = attempt(decode_performative, data, 0, len(data))
        check_fast(data, generic)
        if isinstance(generic, tuple):
            understood += 1
            assert encode_performative(generic[0])
    assert 1_000 < understood < 9_000


@pytest.mark.parametrize("seed", range(4))
def test_mutated_messages_raise_only_decode_errors(seed: int) -> None:
    """Attack: 16,000 mutants of messages and batches, by every reader of sections."""
    chance = random.Random(f"messages {seed}")
    found_some = 0
    for _ in range(4_000):
        data = mutant(chance, chance.choice(MESSAGES))
        attempt(split_batch, data)
        attempt(decode_message, data)
        found = attempt(scan, data)
        if isinstance(found, DecodeError):
            continue
        found_some += 1
        attempt(scan_header, data, found)
        attempt(scan_properties, data, found)
        for at, end in (
            (found.properties_at, found.properties_end),
            (found.application_properties_at, found.application_properties_end),
            (found.message_annotations_at, found.message_annotations_end),
        ):
            started = attempt(compound_start, data, at, end) if at >= 0 else None
            if isinstance(started, tuple):
                attempt(is_simple_value, data, started[1], end)
    assert found_some > 500


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_raise_only_decode_errors(seed: int) -> None:
    """Attack: 40,000 strings of likely constructors; what is decoded was skipped to the same end."""
    chance = random.Random(f"values {seed}")
    for _ in range(10_000):
        data = bytes(
            chance.choice(NASTY) if chance.random() < 0.8 else chance.randrange(256)
            for _ in range(chance.randint(0, 60))
        )
        decoded = attempt(decode_value, data)
        skipped = attempt(skip_value, data, 0, len(data))
        if isinstance(decoded, tuple):
            assert skipped == decoded[1]
            assert decode_value(encode_value(decoded[0]))[1] > 0


def test_the_worst_frame_costs_little() -> None:
    """Attack: 64 KiB that is as expensive as the limits allow stays far below a second."""
    chance = random.Random("worst")
    bombs = [
        b"\xd0\x00\x00\xff\xf0\x00\x00\xff\xe0" + b"\x40" * 65_520,
        b"\xf0\x00\x00\x00\x05\x00\x01\x00\x00\x45" * 6_000,
        b"\xd1\x00\x00\xff\xf0\x00\x00\x7f\xf0" + b"\xa1\x02ab\x40" * 13_000,
        bytes(chance.choice(NASTY) for _ in range(65_000)),
    ]
    for bomb in bombs:
        started = time.thread_time()
        attempt(decode_value, bomb)
        attempt(skip_value, bomb, 0, len(bomb))
        assert time.thread_time() - started < 1.0
