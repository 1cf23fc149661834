"""Real bytes of real SDKs, replayed: the same bytes come out, and the same events, in any slices."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from busway.amqp.events import ConnectionClosed, DeliveriesArrived, LinkDetached
from busway.amqp.performatives import Accepted, Modified, Rejected
from tests.harness.frame_factory import split_frames
from tests.wire.scripted_service import ScriptedService
from tests.wire.transcript import FOLDER, load

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


def service_for(path: Path) -> ScriptedService:
    service = ScriptedService()
    service.messages.extend(data for who, data in load(path) if who == "M")
    return service


def client_bytes(path: Path) -> bytes:
    return b"".join(data for who, data in load(path) if who == "C")


def test_there_are_transcripts() -> None:
    assert [path.stem for path in TRANSCRIPTS] == ["python_receiver", "python_sender", "rhea_both_ways"]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_replay_writes_the_recorded_bytes(path: Path) -> None:
    """L-20, M-27a: every byte that the SDK understood then is written again."""
    service = service_for(path)
    owed = b""
    for who, data in load(path):
        if who == "C":
            assert owed == b""
            owed = service.receive(data)
        elif who == "S":
            assert owed == data
            owed = b""
    assert isinstance(service.events[-1], ConnectionClosed)


@pytest.mark.parametrize("step", [1, 5, 1_000])
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_slices_change_nothing_that_matters(path: Path, step: int) -> None:
    whole, sliced = service_for(path), service_for(path)
    for who, data in load(path):
        if who == "C":
            whole.receive(data)
            for at in range(0, len(data), step):
                sliced.receive(data[at : at + step])
    assert sliced.outcomes == whole.outcomes
    assert list(sliced.messages) == list(whole.messages)
    assert summary(sliced) == summary(whole)


def summary(service: ScriptedService) -> Counter[str]:
    """Events of which slices change neither kind nor number."""
    kinds = [type(event).__name__ for event in service.events]
    return Counter(
        kind for kind in kinds if kind not in ("DeliveriesArrived", "OutcomesArrived", "CreditArrived")
    )


def test_the_python_sender_is_understood() -> None:
    """A message, a batch of two, and a message in several frames."""
    [path] = [path for path in TRANSCRIPTS if path.stem == "python_sender"]
    service = service_for(path)
    service.receive(client_bytes(path))
    assert len(service.messages) == 4
    assert b"x" * 9_000 in service.messages[-1]
    formats = [
        one.message_format
        for event in service.events
        if isinstance(event, DeliveriesArrived)
        for one in event.deliveries
    ]
    assert formats == [0, 0, 0x80013700, 0]  # the token, then the messages
    assert len([event for event in service.events if isinstance(event, LinkDetached)]) == 3


def test_the_python_receiver_is_understood() -> None:
    """Complete, abandon, dead-letter, defer, as the SDK spells them."""
    [path] = [path for path in TRANSCRIPTS if path.stem == "python_receiver"]
    service = service_for(path)
    for who, data in load(path):
        if who == "C":
            service.receive(data)
    done, abandoned, dead, deferred, *rest = service.outcomes
    assert isinstance(done, Accepted)
    assert isinstance(abandoned, Modified)
    assert abandoned.undeliverable_here is False
    assert isinstance(dead, Rejected)
    assert dead.error is not None
    assert dead.error.condition == "com.microsoft:dead-letter"
    assert isinstance(deferred, Modified)
    assert deferred.undeliverable_here is True
    assert rest == [Accepted(), Accepted()]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_what_we_write_has_all_fields(path: Path) -> None:
    """Clients index fields blindly: every list has its full length, behind `00 53 code`."""
    fields = {
        0x10: 10,
        0x11: 8,
        0x12: 14,
        0x13: 11,
        0x14: 11,
        0x15: 6,
        0x16: 3,
        0x17: 1,
        0x18: 1,
        0x40: 1,
        0x44: 2,
    }
    written = b"".join(data for who, data in load(path) if who == "S")
    assert split_frames(written)
    at = 0
    while at < len(written):
        if written[at : at + 4] == b"AMQP":
            at += 8
            continue
        size = int.from_bytes(written[at : at + 4], "big")
        body = written[at + 8 : at + size]
        assert body[:2] == b"\x00\x53"
        assert body[3] in (0xC0, 0xD0)
        count = body[5] if body[3] == 0xC0 else int.from_bytes(body[8:12], "big")
        assert count == fields[body[2]]
        at += size
