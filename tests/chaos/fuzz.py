"""A1, A3: mutation fuzzing of the decoder and of the engine, in this process. `rounds` is in seconds.

Two kinds of input: a damaged frame or message that goes into every reader, and a recorded conversation with damages
in it that goes into a server engine in slices, whose owner behaves as a gateway does. Only declared errors may come
out, the engine may end only as it should, and no input may take longer than INPUT_S_MAX.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from busway.amqp.connection import Connection, Role
from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionEvent,
    ConnectionOpened,
    CreditArrived,
    DeliveriesArrived,
    LinkAttached,
    OutcomesArrived,
    SaslInitArrived,
)
from busway.amqp.performatives import ACCEPTED, decode_performative
from busway.amqp.sections import decode_message, split_batch
from busway.gateway.amqp.message_mapping import message_of
from busway.model.errors import BrokerError
from tests.chaos.scenario import Outcome
from tests.harness.engine_pair import EnginePair
from tests.unit.amqp.test_codec_fuzz import FRAMES, MESSAGES, mutant

INPUTS_MIN: Final = 100_000
INPUT_S_MAX: Final = 0.05
#: A slow input is tried again: the machine may have been busy with something else.
TRIES: Final = 3
#: One conversation costs as much as many single frames.
FRAMES_PER_CONVERSATION: Final = 20

Play = Callable[[bytes], None]


def fuzz_decoder_and_engine(_: Path, rounds: int, seed: int) -> Outcome:
    return fuzz_for(rounds, seed, INPUTS_MIN * rounds // 60)


def fuzz_for(seconds: float, seed: int, inputs_min: int) -> Outcome:
    chance = random.Random(seed)
    conversation = recorded_conversation()
    violations: Counter[str] = Counter()
    inputs = 0
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for _ in range(FRAMES_PER_CONVERSATION):
            _try(read_frame, mutant(chance, chance.choice(FRAMES)), violations)
            _try(read_message, mutant(chance, chance.choice(MESSAGES)), violations)
        _try(converse, _damaged(chance, conversation), violations)
        inputs += 2 * FRAMES_PER_CONVERSATION + 1
    if inputs < inputs_min:
        violations[f"only {inputs} inputs"] = 1
    took = time.monotonic() - began
    note = f"{inputs:,} inputs"
    return Outcome(
        "fuzzed decoder and engine", round(took), round(seconds), violations=dict(violations), note=note
    )


def _try(play: Play, data: bytes, violations: Counter[str]) -> None:
    for _ in range(TRIES):
        began = time.perf_counter()
        try:
            play(data)
        except Exception as error:
            violations[f"{play.__name__}: {type(error).__name__} on {data.hex()[:400]}"] += 1
            return
        if time.perf_counter() - began <= INPUT_S_MAX:
            return
    violations[f"{play.__name__}: slow on {data.hex()[:400]}"] += 1


def read_frame(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode_performative(data, 0, len(data))
    with contextlib.suppress(DecodeError):
        decode_value(data)


def read_message(data: bytes) -> None:
    for read in (split_batch, decode_message):
        try:
            read(data)
        except DecodeError:
            continue
    with contextlib.suppress(DecodeError, BrokerError):
        message_of(data, True)


def _damaged(chance: random.Random, frames: list[bytes]) -> bytes:
    """Some frames damaged, left out, doubled or moved."""
    chosen = list(frames)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(chosen))
        kind = chance.randrange(4)
        if kind == 0:
            chosen[at] = _resized(mutant(chance, chosen[at]), chance)
        elif kind == 1:
            chosen.insert(chance.randrange(len(chosen)), chosen[at])
        elif kind == 2 and len(chosen) > 1:
            chosen.insert(chance.randrange(len(chosen)), chosen.pop(at))
        else:
            chosen[at] = mutant(chance, chosen[at])
    return b"".join(chosen)


def _resized(frame: bytes, chance: random.Random) -> bytes:
    """Mostly with the right size at its head, so that the damage gets past the cutting of frames."""
    if len(frame) < 8 or frame.startswith(b"AMQP") or chance.random() < 0.2:
        return frame
    return len(frame).to_bytes(4, "big") + frame[4:]


def converse(data: bytes) -> None:
    """A server engine reads the bytes in slices. Its books must balance at the end."""
    server = Connection(Role.SERVER, EngineSettings(container_id="server"), 0.0)
    owner = _Owner(server)
    for start in range(0, len(data), 211):
        owner.see(server.receive(data[start : start + 211], 0.0))
        server.bytes_to_send()
    owner.see(server.transport_lost())
    if owner.closed != 1:
        raise AssertionError(f"told {owner.closed} times that the connection is closed")


class _Owner:
    """Accepts everything, credits, settles and sends, as a gateway does."""

    def __init__(self, server: Connection) -> None:
        self._server = server
        self.closed = 0

    def see(self, events: list[ConnectionEvent]) -> None:
        for event in events:
            self._act_on(event)

    def _act_on(self, event: ConnectionEvent) -> None:
        if isinstance(event, SaslInitArrived):
            self.see(self._server.sasl_outcome(True))
        elif isinstance(event, ConnectionOpened):
            self._server.open()
        elif isinstance(event, LinkAttached):
            link = event.link
            link.accept(source=link.source, target=link.target, max_message_size=262_144)
            if not link.is_sender:
                link.grant_credit(50)
        elif isinstance(event, DeliveriesArrived):
            for delivery in event.deliveries:
                read_message(delivery.payload)
            event.link.settle(event.deliveries[0].delivery_id, event.deliveries[-1].delivery_id, ACCEPTED)
        elif isinstance(event, CreditArrived):
            while event.link.room() > 0:
                event.link.send(b"tag", MESSAGES[0], settled=False)
        elif isinstance(event, OutcomesArrived):
            event.link.answer(event.deliveries, event.state)
        elif isinstance(event, ConnectionClosed):
            self.closed += 1


def recorded_conversation() -> list[bytes]:
    """What a client engine writes while it logs in, sends, receives, settles and leaves; cut into frames."""
    pair = EnginePair().opened()
    sending, _ = pair.sender()
    receiving, theirs = pair.receiver(credit=5)
    for message in MESSAGES:
        sending.send(b"tag", message, settled=False)
    while theirs.room() > 0:
        theirs.send(b"tag", MESSAGES[0], settled=False)
    pair.pump()
    for event in pair.client_saw(DeliveriesArrived):
        event.link.settle(event.deliveries[0].delivery_id, event.deliveries[-1].delivery_id, ACCEPTED)
    pair.pump()
    sending.detach()
    receiving.detach()
    pair.client.close()
    pair.pump()
    return _cut(pair.from_client)


def _cut(data: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(data):
        size = 8 if data.startswith(b"AMQP", at) else int.from_bytes(data[at : at + 4], "big")
        frames.append(data[at : at + size])
        at += size
    return frames
