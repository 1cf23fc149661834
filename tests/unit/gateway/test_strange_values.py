"""Values that a store could not write: they are refused at the gateway, and the store never hears of them.

A batch is all or nothing, and a store whose batch fails closes its entities: one strange value must not do that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from busway.amqp.errors import AmqpError
from busway.amqp.performatives import Accepted, Modified, Properties, Rejected
from busway.amqp.sections import VALUE, AmqpMessage, decode_message
from busway.amqp.types import Array, Char, Int, Long, Symbol, Timestamp, ULong
from busway.model.descriptions import QueueDescription
from busway.store.contract import StoreState
from tests.unit.gateway.amqp_peer import Peer, Room, body_of, in_room, payload

SESSION_FILTER = Symbol("com.microsoft:session-filter")
#: Texts at the edges of what UTF-8 and SQLite know.
TEXTS = ["", "\x00", "a\x00b", "\ufffe\uffff", "\U0010ffff", "é" * 64, "'; drop table messages; --", " \t\n"]
#: Integers at and beyond the edges of 64 signed bits.
NUMBERS = [0, -1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)]


def is_well(room: Room) -> bool:
    return room.store.state is StoreState.OPEN


async def asked(peer: Peer, links: Any, operation: str, body: dict[str, object]) -> int:
    """The status of the answer: there always is one."""
    request = AmqpMessage(
        body,
        VALUE,
        properties=Properties(message_id="1", reply_to="answers"),
        application_properties={"operation": f"com.microsoft:{operation}"},
    )
    answer = await peer.request(links, request)
    return int((answer.application_properties or {})["statusCode"])


def number(value: int) -> object:
    return ULong(value) if value >= 1 << 63 else Long(value)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_any_kind_are_kept_as_they_are(tmp_path: Path, text: str) -> None:
    """M-1, M-28, X-3, X-15, R-11, R-14: as message id, session id, property, reason; the store goes on."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("q")
        sent = payload(b"x", properties=Properties(message_id=text, group_id=text))
        (outcome,) = await peer.sent(sender, sent)
        assert isinstance(outcome, Accepted)
        link = await peer.receiver("q", filters={SESSION_FILTER: text})
        link.grant_credit(10)
        (delivery,) = await peer.received(link, 1)
        found = decode_message(delivery.payload).properties
        assert found is not None
        assert (found.message_id, found.group_id) == (text, text)
        await peer.settle(link, [delivery], Modified(True, False, {Symbol("name"): text}))
        (_, again) = await peer.received(link, 2)
        assert (decode_message(again.payload).application_properties or {})["name"] == text
        links = await peer.request_links("q/$management")
        assert (
            await asked(peer, links, "set-session-state", {"session-id": text, "session-state": b"s"}) == 200
        )
        info = {Symbol("DeadLetterReason"): text, Symbol("DeadLetterErrorDescription"): text}
        await peer.settle(link, [again], Rejected(AmqpError("com.microsoft:dead-letter", None, info)))
        (dead,) = await room.namespace.queue("q").outlet(True).peek(0, 10)
        assert dead.session_id == text
        assert is_well(room)

    wanted = QueueDescription("q", requires_session=True, requires_duplicate_detection=True)
    in_room(scenario, wanted, sqlite_folder=tmp_path)


@pytest.mark.parametrize("value", NUMBERS)
def test_numbers_beyond_64_signed_bits_are_answered(tmp_path: Path, value: int) -> None:
    """ERR-8, ERR-14, S-33, R-52, R-61: never an internal error, and the store goes on."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        links = await peer.request_links("q/$management")
        wanted = Array([number(value)], 0x80 if value >= 1 << 63 else 0x81)
        for operation in ("cancel-scheduled-message", "receive-by-sequence-number"):
            status = await asked(
                peer, links, operation, {"sequence-numbers": wanted, "receiver-settle-mode": 1}
            )
            assert status in (400, 404), operation
        body: dict[str, object] = {"from-sequence-number": number(value), "message-count": Int(1)}
        assert await asked(peer, links, "peek-message", body) in (204, 400)
        body = {"from-sequence-number": Int(0), "message-count": number(value)}
        assert await asked(peer, links, "peek-message", body) in (204, 400)
        if value < 1 << 63:
            body = {"message-count": Int(1), "enqueued-time-utc": Timestamp(value)}
            assert await asked(peer, links, "batch-delete-messages", body) == 204
        await peer.sent(await peer.sender("q"), payload(b"still here"))
        assert is_well(room)

    in_room(scenario, QueueDescription("q"), sqlite_folder=tmp_path)


@pytest.mark.parametrize("value", [*NUMBERS[:3], NUMBERS[5]])
def test_times_at_the_edges_are_answered(tmp_path: Path, value: int) -> None:
    """X-17, S-32, L-22: as the time of a state, of a schedule, of a deletion."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        links = await peer.request_links("q/$management")
        body: dict[str, object] = {"last-updated-time": Timestamp(value), "skip": Int(0), "top": Int(10)}
        assert await asked(peer, links, "get-message-sessions", body) == 204
        annotations = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(value)}
        sent = payload(b"x", properties=Properties(group_id="s"), message_annotations=annotations)
        (outcome,) = await peer.sent(await peer.sender("q"), sent)
        assert isinstance(outcome, Rejected if value == (1 << 63) - 1 else Accepted)
        assert is_well(room)

    in_room(scenario, QueueDescription("q", requires_session=True), sqlite_folder=tmp_path)


def test_texts_that_are_no_unicode_are_refused(tmp_path: Path) -> None:
    """ERR-7: half a surrogate pair in UTF-8 clothes, as id, session, key and property; later messages pass."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("q")
        half = b"\xed\xa0\x80"
        for broken in (
            b"\x00Ss\xc0\x06\x01\xa1\x03" + half,
            b"\x00Ss\xc0\x10\x0b" + b"\x40" * 10 + b"\xa1\x03" + half,
            b"\x00Sr\xc1\x1a\x02\xa3\x13x-opt-partition-key" + b"\xa1\x03" + half,
        ):
            (outcome,) = await peer.sent(sender, broken + b"\x00Su\xa0\x01x")
            assert isinstance(outcome, Rejected), broken
        (outcome,) = await peer.sent(sender, payload(b"fine", properties=Properties(group_id="s")))
        assert isinstance(outcome, Accepted)
        found = await room.namespace.queue("q").outlet(False).peek(0, 10)
        assert [message.session_id for message in found] == ["s"]
        assert is_well(room)

    wanted = QueueDescription("q", requires_session=True, requires_duplicate_detection=True)
    in_room(scenario, wanted, sqlite_folder=tmp_path)


@pytest.mark.parametrize("name", [Char("x"), "x", Symbol("x"), ULong(7)])
@pytest.mark.parametrize(
    "value", [ULong((1 << 64) - 1), Char("\U0010ffff"), Timestamp(-(1 << 63)), None, b"\xff"]
)
def test_changed_properties_of_any_type_come_back_or_are_refused(
    tmp_path: Path, name: object, value: object
) -> None:
    """R-11, R-21, M-34: the lock is either settled or stays, and the store goes on."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.sent(await peer.sender("q"), payload(b"x"))
        link = await peer.receiver("q")
        link.grant_credit(2)
        (delivery,) = await peer.received(link, 1)
        (answer,) = await peer.settle(link, [delivery], Modified(True, False, {name: value}))
        if isinstance(answer, Rejected):
            assert not isinstance(name, str)
        else:
            (_, again) = await peer.received(link, 2)
            assert (decode_message(again.payload).application_properties or {})["x"] == value
            assert body_of(again) == b"x"
        assert is_well(room)

    in_room(scenario, QueueDescription("q"), sqlite_folder=tmp_path)


def test_lock_tokens_of_any_bytes_are_lost_locks(tmp_path: Path) -> None:
    """R-17, R-30, ERR-7: also what is no uuid."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        links = await peer.request_links("q/$management")
        for tokens in (Array([number(5)], 0x81), Array(["x"], 0xB1), [b"\x00" * 16], Array([], 0x98)):
            body: dict[str, object] = {"lock-tokens": tokens, "disposition-status": "completed"}
            assert await asked(peer, links, "renew-lock", body) == 400
            assert await asked(peer, links, "update-disposition", body) == 400
        assert is_well(room)

    in_room(scenario, QueueDescription("q"), sqlite_folder=tmp_path)
