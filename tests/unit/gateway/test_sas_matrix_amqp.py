"""Every operation over AMQP, for every rule and every token: allowed or refused as the rules say, cell by cell."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID, uuid4

import pytest

from busway.amqp.link import Link
from busway.amqp.performatives import Properties
from busway.amqp.sections import AmqpMessage
from busway.amqp.types import Array, Int, Long, Symbol, Timestamp, UInt
from busway.client.messages import ServiceBusMessage
from busway.gateway.amqp.nodes.management_node import OPERATIONS
from busway.model.descriptions import LISTEN, MANAGE, SEND
from tests.unit.gateway.amqp_peer import Peer, Room, in_room
from tests.unit.gateway.sas_table import (
    ANY,
    DEEP_QUEUE,
    HOST,
    NOW_S,
    PLACES,
    QUEUE,
    RIGHT_SETS,
    SESSIONS,
    SUBSCRIPTION,
    TOPIC,
    Cell,
    Wish,
    allows,
    build,
    cells,
    key_of,
    knows_rule,
    token_of,
)

UNAUTHORISED = "amqp:unauthorized-access"
DEAD_LETTERS = "$DeadLetterQueue"
TRANSFER_DEAD_LETTERS = "$Transfer/$DeadLetterQueue"
TOKENS = Array([UUID(int=1)], 0x98)
NUMBERS = Array([Long(9_999)], 0x81)
LATER = ServiceBusMessage(b"later").encode((NOW_S + 3600) * 1000)
RULE: dict[str, object] = {"rule-name": "$Default", "rule-description": {"sql-filter": {"expression": "1=1"}}}

#: Operation → (body, status of the answer when it is allowed): nothing here changes what the next cell finds.
REQUESTS: dict[str, tuple[dict[str, object], int]] = {
    "renew-lock": ({"lock-tokens": TOKENS}, 410),
    "update-disposition": ({"disposition-status": "completed", "lock-tokens": TOKENS}, 410),
    "peek-message": ({"from-sequence-number": Long(0), "message-count": Int(1)}, 204),
    "receive-by-sequence-number": (
        {"sequence-numbers": NUMBERS, "receiver-settle-mode": UInt(1), "session-id": "s"},
        404,
    ),
    "batch-delete-messages": ({"message-count": Int(1), "enqueued-time-utc": Timestamp(NOW_S * 1000)}, 204),
    "schedule-message": ({"messages": [{"message-id": "m", "message": LATER}]}, 200),
    "cancel-scheduled-message": ({"sequence-numbers": NUMBERS}, 404),
    "renew-session-lock": ({"session-id": "s"}, 410),
    "get-session-state": ({"session-id": "s"}, 410),
    "set-session-state": ({"session-id": "s", "session-state": b"x"}, 410),
    "get-message-sessions": (
        {"last-updated-time": Timestamp(253_402_300_800_000), "skip": Int(0), "top": Int(10)},
        204,
    ),
    "add-rule": (RULE, 409),
    "remove-rule": ({"rule-name": "no-such-rule"}, 404),
    "enumerate-rules": ({"top": Int(10), "skip": Int(0)}, 200),
}


class Try(NamedTuple):
    """An operation and where it is tried."""

    kind: str
    wish: Wish

    def __str__(self) -> str:
        return f"{self.kind} {self.wish.path}"


def _requests(entity: str, path: str, right: str, *names: str) -> list[Try]:
    return [Try(name, Wish(entity, f"{path}/$management", right)) for name in names]


OPERATIONS_TRIED = [
    Try("send", Wish(QUEUE, QUEUE, SEND)),
    Try("send", Wish(TOPIC, TOPIC, SEND)),
    Try("send", Wish(DEEP_QUEUE, DEEP_QUEUE, SEND)),
    Try("receive", Wish(QUEUE, QUEUE, LISTEN)),
    Try("receive", Wish(DEEP_QUEUE, DEEP_QUEUE, LISTEN)),
    Try("receive", Wish(QUEUE, f"{QUEUE}/{DEAD_LETTERS}", LISTEN)),
    Try("receive", Wish(QUEUE, f"{QUEUE}/{TRANSFER_DEAD_LETTERS}", LISTEN)),
    Try("receive", Wish(TOPIC, SUBSCRIPTION, LISTEN)),
    Try("receive", Wish(TOPIC, f"{SUBSCRIPTION}/{DEAD_LETTERS}", LISTEN)),
    Try("accept session", Wish(TOPIC, SESSIONS, LISTEN)),
    *_requests(QUEUE, QUEUE, ANY, "attach"),
    *_requests(TOPIC, TOPIC, ANY, "attach"),
    *_requests(TOPIC, SUBSCRIPTION, ANY, "attach"),
    *_requests(QUEUE, QUEUE, LISTEN, "renew-lock", "update-disposition", "peek-message"),
    *_requests(QUEUE, QUEUE, LISTEN, "receive-by-sequence-number", "batch-delete-messages"),
    *_requests(QUEUE, QUEUE, SEND, "schedule-message", "cancel-scheduled-message"),
    *_requests(TOPIC, TOPIC, SEND, "schedule-message", "cancel-scheduled-message"),
    *_requests(QUEUE, f"{QUEUE}/{DEAD_LETTERS}", LISTEN, "peek-message", "renew-lock"),
    *_requests(TOPIC, SUBSCRIPTION, LISTEN, "renew-lock", "update-disposition", "peek-message"),
    *_requests(TOPIC, f"{SUBSCRIPTION}/{DEAD_LETTERS}", LISTEN, "peek-message"),
    *_requests(TOPIC, SESSIONS, LISTEN, "renew-session-lock", "get-session-state", "set-session-state"),
    *_requests(TOPIC, SESSIONS, LISTEN, "get-message-sessions"),
    *_requests(TOPIC, SUBSCRIPTION, MANAGE, "add-rule", "remove-rule"),
    *_requests(TOPIC, SUBSCRIPTION, LISTEN, "enumerate-rules"),
]
EVERY_CELL = [(tried, cell) for tried in OPERATIONS_TRIED for cell in cells(tried.wish)]


def test_every_management_operation_is_in_the_table() -> None:
    """A-9: an operation that is added needs a row here."""
    tried = {entry.kind for entry in OPERATIONS_TRIED} - {"send", "receive", "accept session", "attach"}
    assert tried == set(OPERATIONS) == set(REQUESTS)
    assert len(EVERY_CELL) > 8_000
    verdicts = [allows(cell) for _, cell in EVERY_CELL]
    assert 500 < sum(verdicts) < len(verdicts) / 4


@pytest.mark.parametrize("tried", OPERATIONS_TRIED, ids=str)
def test_a_token_opens_exactly_what_the_rules_say(tried: Try) -> None:
    """A-1, A-2, A-4, A-5, A-6, A-7, A-9, T-12, E-61: {place} × {right} × {token} through `$cbs`."""
    wrong: list[str] = []

    async def test(room: Room) -> None:
        await build(room.namespace)
        for cell in cells(tried.wish):
            peer = await room.stranger()
            found = await put_token(peer, cell), await outcome(peer, tried)
            if found != expected(tried, cell):
                wrong.append(f"{cell}: {found}, not {expected(tried, cell)}")
            await leave(room, peer)

    in_room(test)
    assert wrong == []


def expected(tried: Try, cell: Cell) -> tuple[object, object]:
    put = 202 if knows_rule(cell) else 401
    special = {"missing": None, "empty": 400}  # a request without a token is a mistake in form
    return special.get(cell.token_kind, put), _wanted(tried, allows(cell))


def _wanted(tried: Try, is_allowed: bool) -> object:
    """What the operation itself gives: None is an attach that stands, as it does for everybody at `$management`."""
    if tried.kind in REQUESTS:
        return REQUESTS[tried.kind][1] if is_allowed else 401
    return None if is_allowed or tried.kind == "attach" else UNAUTHORISED


@pytest.mark.parametrize("tried", OPERATIONS_TRIED, ids=str)
def test_a_key_shown_in_sasl_opens_what_its_rule_gives(tried: Try) -> None:
    """A-7, A-9: names and keys of the namespace's rules log in; those of entities do not."""
    wrong: list[str] = []

    async def test(room: Room) -> None:
        await build(room.namespace)
        for place in PLACES:
            for name, rights in RIGHT_SETS.items():
                for which in ("primary", "secondary", "wrong"):
                    peer = await room.client(name, key_of(place, name, which))
                    is_in = place == "" and which != "wrong"
                    assert hasattr(peer, "session") == is_in, (place, name, which)
                    if is_in:
                        found = await outcome(peer, tried)
                        is_allowed = tried.wish.right == ANY or tried.wish.right in rights
                        if found != _wanted(tried, is_allowed):
                            wrong.append(f"{name} with its {which} key: {found}")
                    await leave(room, peer)

    in_room(test)
    assert wrong == []


# -- how it is tried


async def put_token(peer: Peer, cell: Cell) -> int | None:
    token = token_of(cell)
    if token is None:
        return None
    path = {"entity named": cell.wish.entity, "root named": ""}.get(cell.token_kind, cell.wish.path)
    reply_to = f"cbs-{uuid4()}"
    properties: dict[str, object] = {"operation": "put-token", "name": f"sb://{HOST}/{path}"}
    answer = await peer.request(
        await peer.request_links("$cbs", reply_to), _request(token, reply_to, properties)
    )
    return _status(answer)


async def outcome(peer: Peer, tried: Try) -> object:
    """None: the link stands. Else the condition it was refused with, or the status of the answer."""
    path = tried.wish.path
    if tried.kind == "send":
        return _condition(peer, [await peer.sender(path)])
    if tried.kind == "receive":
        return _condition(peer, [await peer.receiver(path)])
    if tried.kind == "accept session":
        filters = {Symbol("com.microsoft:session-filter"): "s"}
        return _condition(peer, [await peer.receiver(path, filters=filters)])
    links = await peer.request_links(path, "answers")
    refused = _condition(peer, list(links))
    if refused is not None or tried.kind == "attach":
        return refused
    body, _ = REQUESTS[tried.kind]
    operation: dict[str, object] = {"operation": f"com.microsoft:{tried.kind}"}
    return _status(await peer.request(links, _request(body, "answers", operation)))


def _condition(peer: Peer, links: list[Link]) -> str | None:
    found = {refusal[0] if (refusal := peer.refusal(link)) else None for link in links}
    (condition,) = found
    return condition


def _request(body: object, reply_to: str, properties: dict[str, object]) -> AmqpMessage:
    return AmqpMessage(
        body,
        properties=Properties(message_id=str(uuid4()), reply_to=reply_to),
        application_properties=properties,
    )


def _status(answer: AmqpMessage) -> int:
    return int((answer.application_properties or {})["status-code"])


async def leave(room: Room, peer: Peer) -> None:
    peer.transport.lose()
    room.peers.remove(peer)
    await room.turns(2)
