"""JMS: a message that is to be delivered later, as Qpid JMS says it."""

from __future__ import annotations

import pytest

from busway.amqp.engine_settings import EngineSettings
from busway.amqp.performatives import Accepted, Rejected
from busway.amqp.sasl import plain_response
from busway.amqp.types import Long, Symbol, Timestamp
from busway.gateway.amqp.message_mapping import message_of
from busway.model.descriptions import ROOT_RULE_NAME, QueueDescription
from busway.model.errors import ArgumentOutOfRange, BadArgument
from tests.unit.gateway.amqp_peer import KEY, Peer, Room, body_of, in_room, payload

TIME = Symbol("x-opt-delivery-time")
SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")
#: What Qpid JMS asks for.
DESIRED = ["sole-connection-for-container", "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS"]


def delayed(body: bytes, at_ms: object, **more: object) -> bytes:
    named = {Symbol(name.replace("_", "-")): value for name, value in more.items()}
    return payload(body, message_annotations={TIME: at_ms, **named})


async def offered_to(room: Room, desired: list[str] | None) -> list[str] | None:
    login = EngineSettings(sasl_mechanism="PLAIN", sasl_response=plain_response(ROOT_RULE_NAME, KEY))
    peer = Peer(room, "10.0.0.1", login)
    peer.pump()
    peer.engine.open(capabilities=desired)
    await room.turns()
    assert peer.engine.peer is not None
    return peer.engine.peer.offered_capabilities


def test_delayed_delivery_is_offered_to_who_asks() -> None:
    """S-30: Qpid JMS refuses a delay by itself where the capability is not offered; others see no field more."""

    async def scenario(room: Room) -> None:
        assert await offered_to(room, DESIRED) == ["DELAYED_DELIVERY", "SHARED-SUBS"]
        assert await offered_to(room, None) is None
        assert await offered_to(room, ["AMQP_WEB", "delayed_delivery"]) is None
        assert await offered_to(room, ["DELAYED_DELIVERY"] * 3) == ["DELAYED_DELIVERY"]

    in_room(scenario)


def test_a_delivery_time_schedules_the_message() -> None:
    """S-30: it is delivered then, not before, and keeps the annotation, by which JMS tells the time."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("q")
        receiver = await peer.receiver("q", deletes=True)
        receiver.grant_credit(10)
        due_ms = room.clock.wall_ms() + 20_000
        assert await peer.sent(
            sender, delayed(b"later", Long(due_ms)), delayed(b"now", Long(due_ms - 20_001))
        )
        [first] = await peer.received(receiver, 1)
        assert body_of(first) == b"now"
        await room.pass_time(19.0)
        assert len(peer.deliveries(receiver)) == 1
        await room.pass_time(1.1)
        assert body_of((await peer.received(receiver, 2))[1]) == b"later"

    in_room(scenario, QueueDescription("q"))


@pytest.mark.parametrize("value", [Long(0), Long(-5), Long(100), Timestamp(100), None])
def test_a_past_delivery_time_is_no_delay(value: object) -> None:
    """S-32: in the short form of a small long, as a timestamp, or null, too."""
    assert message_of(delayed(b"x", value), False).scheduled_at_ms == max(0, int(value or 0))  # type: ignore[call-overload]


def test_the_services_own_annotation_goes_before() -> None:
    """S-30: whoever says both means the one that the service documents, in either order."""
    both = {SCHEDULED: Timestamp(5_000), TIME: Long(9_000)}
    for given in (both, dict(reversed(both.items()))):
        assert message_of(payload(b"x", message_annotations=given), False).scheduled_at_ms == 5_000


@pytest.mark.parametrize("value", ["2030-01-01", b"12345678", 1.5, True, [1]])
def test_a_delivery_time_of_another_type_is_refused(value: object) -> None:
    """Attack: what cannot be read as a time is refused in words, never delivered at once."""
    with pytest.raises(BadArgument, match="x-opt-delivery-time must be a long"):
        message_of(delayed(b"x", value), False)


def test_a_delivery_time_beyond_the_calendar_is_refused() -> None:
    """Attack: S-32, M-17: as a scheduled time is, and nothing is stored."""
    with pytest.raises(ArgumentOutOfRange, match="later than the year 9999"):
        message_of(delayed(b"x", Long(253_402_300_800_000)), False)

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender = await peer.sender("q")
        [outcome] = await peer.sent(sender, delayed(b"x", Long(2**63 - 1)))
        assert isinstance(outcome, Rejected)
        assert await peer.sent(sender, payload(b"x")) == [Accepted()]
        assert len(await room.namespace.queue("q").outlet(False).peek(0, 10)) == 1

    in_room(scenario, QueueDescription("q"))
