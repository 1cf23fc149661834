"""Sending over a link, from bytes to the durable message and back to the outcome."""

import re
from dataclasses import replace

import pytest

from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import OutcomesArrived
from busway.amqp.performatives import Accepted, Properties, Rejected
from busway.amqp.sasl import plain_response
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Timestamp
from busway.model.descriptions import ROOT_RULE_NAME, QueueDescription
from tests.unit.gateway.amqp_peer import KEY, Peer, Room, body_of, in_room, payload

BATCH_FORMAT = 0x80013700
TRACKING = re.compile(
    r" TrackingId:[0-9a-f-]{36}_G0, SystemTracker:ns\.local:q, Timestamp:2023-11-14T22:13:20$"
)


def batch(*payloads: bytes) -> bytes:
    return encode_message(AmqpMessage(list(payloads), DATA, properties=Properties(message_id="envelope")))


def rejection(outcome: object) -> tuple[str, str]:
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.description is not None
    return outcome.error.condition, outcome.error.description


async def stored_bodies(room: Room, path: str = "q") -> list[bytes]:
    found = await room.namespace.queue(path).outlet(False).peek(0, 250)
    return [b"".join(decode_message(message.bare).body) for message in found]


def test_the_attach_tells_the_size_limit_gives_credit_and_echoes_the_addresses() -> None:
    """S-8, L-5: 262144 on Standard; source and target letter for letter."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("amqps://host:5671/Q")
        answer = link.peer
        assert answer is not None
        assert answer.max_message_size == 262_144
        assert answer.source is not None
        assert answer.source.address == "here"
        assert getattr(answer.target, "address", None) == "amqps://host:5671/Q"
        assert link.credit() == 1_000

    in_room(scenario, QueueDescription("q"))


def test_an_outcome_comes_only_after_the_commit() -> None:
    """S-1: accepted means stored durably."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        room.store.hold_commits()
        number = peer.send(link, payload())
        await room.turns()
        assert number not in peer.outcomes(link)
        room.store.release_commits()
        await room.until(lambda: number in peer.outcomes(link))
        assert peer.outcomes(link)[number] == Accepted()

    in_room(scenario, QueueDescription("q"))


def test_a_run_is_stored_in_order_and_accepted_as_one_range() -> None:
    """S-4: and one disposition tells it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        await peer.sent(link, *(payload(b"%d" % index) for index in range(100)))
        assert await stored_bodies(room) == [b"%d" % index for index in range(100)]
        assert [len(event.deliveries) for event in peer.seen(OutcomesArrived, link)] == [100]

    in_room(scenario, QueueDescription("q"))


def test_a_settled_transfer_is_stored_and_gets_no_outcome() -> None:
    """S-3: a settled transfer is stored and gets no outcome."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        peer.send(link, payload(b"quiet"), settled=True)
        peer.send(link, b"no message at all", settled=True)
        assert await peer.sent(link, payload(b"loud")) == [Accepted()]
        assert await stored_bodies(room) == [b"quiet", b"loud"]
        assert len(peer.outcomes(link)) == 1

    in_room(scenario, QueueDescription("q"))


def test_a_refused_message_is_rejected_with_its_reason_and_the_others_are_accepted() -> None:
    """S-2, S-7, X-1: condition, sentence, TrackingId, SystemTracker, Timestamp."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        with_session = payload(b"fine", properties=Properties(group_id="s"))
        outcomes = await peer.sent(link, with_session, payload(b"without"), with_session)
        assert outcomes[0] == outcomes[2] == Accepted()
        condition, description = rejection(outcomes[1])
        assert condition == "amqp:not-allowed"
        assert description.startswith("The SessionId was not set on a message")
        assert TRACKING.search(description)

    in_room(scenario, QueueDescription("q", requires_session=True))


def test_bytes_that_are_no_message_are_rejected_and_the_connection_lives() -> None:
    """S-2: bytes that are no message are rejected and the connection lives."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        outcomes = await peer.sent(link, b"\x00\x53\x70garbage", payload(b"fine"))
        assert rejection(outcomes[0])[0] == "amqp:decode-error"
        assert outcomes[1] == Accepted()

    in_room(scenario, QueueDescription("q"))


def test_a_broken_limit_is_an_argument_error() -> None:
    """L-8, ERR-7: a broken limit is an argument error."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        [outcome] = await peer.sent(link, payload(properties=Properties(group_id="g" * 129)))
        assert rejection(outcome)[0] == "com.microsoft:argument-error"

    in_room(scenario, QueueDescription("q"))


def test_a_body_of_250_kib_passes_and_one_of_256_does_not() -> None:
    """L-5, S-2, S-8: the whole transfer is measured; the link ends only for one that is far too large."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        assert await peer.sent(link, payload(b"x" * 250 * 1024)) == [Accepted()]
        (refused,) = await peer.sent(link, payload(b"x" * 256 * 1024))
        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert refused.error.condition == "amqp:link:message-size-exceeded"
        size = len(payload(b"x" * 256 * 1024))
        assert (refused.error.description or "").startswith(
            f"The received message (delivery-id:2, size:{size} bytes) exceeds the limit (262144 bytes) currently"
            " allowed on the link."
        )
        assert await peer.sent(link, payload(b"small")) == [Accepted()]
        peer.send(link, payload(b"x" * 2 * 1024 * 1024))
        condition, told = await room.until(lambda: peer.refusal(link))
        assert condition == "amqp:link:message-size-exceeded"
        assert re.search(
            r"The received message \(delivery-id:4, size:\d+ bytes\) exceeds the limit \(\d+ bytes\) currently",
            told,
        )

    in_room(scenario, QueueDescription("q"))


def test_a_batch_is_split_and_its_envelope_is_not_stored() -> None:
    """S-20, S-26: each data section is one message."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        inner = [payload(b"a", properties=Properties(message_id="1")), payload(b"b")]
        assert await peer.sent(link, batch(*inner), message_format=BATCH_FORMAT) == [Accepted()]
        assert await stored_bodies(room) == [b"a", b"b"]

    in_room(scenario, QueueDescription("q"))


def test_a_batch_is_all_or_nothing() -> None:
    """S-20: one refused message refuses all of them, with one outcome."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        good = payload(b"good", properties=Properties(group_id="s"))
        [outcome] = await peer.sent(link, batch(good, payload(b"bad"), good), message_format=BATCH_FORMAT)
        assert rejection(outcome)[0] == "amqp:not-allowed"
        assert await stored_bodies(room) == []

    in_room(scenario, QueueDescription("q", requires_session=True))


@pytest.mark.parametrize("bad", [payload()[:-3], b"", encode_message(AmqpMessage("value"))])
def test_a_batch_with_damage_inside_is_rejected_whole(bad: bytes) -> None:
    """S-20: also an envelope without data sections."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        whole = bad if bad.startswith(b"\x00Sw") else batch(payload(b"good"), bad + b"\x00")
        [outcome] = await peer.sent(link, whole, message_format=BATCH_FORMAT)
        assert rejection(outcome)[0] == "amqp:decode-error"
        assert await stored_bodies(room) == []

    in_room(scenario, QueueDescription("q"))


def test_batches_and_single_messages_keep_their_order() -> None:
    """S-4: across kinds of transfers on one link."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        peer.send(link, payload(b"1"))
        peer.send(link, batch(payload(b"2"), payload(b"3")), message_format=BATCH_FORMAT)
        peer.send(link, payload(b"4"))
        await room.until(lambda: len(peer.outcomes(link)) == 3)
        assert await stored_bodies(room) == [b"1", b"2", b"3", b"4"]

    in_room(scenario, QueueDescription("q"))


def test_a_duplicate_is_accepted_and_dropped() -> None:
    """S-40: the message id is read where the entity detects duplicates."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        first = payload(b"first", properties=Properties(message_id="same"))
        second = payload(b"second", properties=Properties(message_id="same"))
        assert await peer.sent(link, first) == [Accepted()]
        assert await peer.sent(link, second) == [Accepted()]
        assert await stored_bodies(room) == [b"first"]

    in_room(scenario, QueueDescription("q", requires_duplicate_detection=True))


def test_a_scheduled_message_is_not_delivered_before_its_time() -> None:
    """S-30, S-31, S-35: the annotation schedules a plain send."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        due_ms = room.clock.wall_ms() + 60_000
        await peer.sent(
            link, payload(message_annotations={"x-opt-scheduled-enqueue-time": Timestamp(due_ms)})
        )
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        await room.turns()
        assert peer.deliveries(receiver) == []
        await room.pass_time(61)
        [delivery] = await peer.received(receiver, 1)
        annotations = decode_message(delivery.payload).message_annotations or {}
        assert annotations["x-opt-scheduled-enqueue-time"] == due_ms
        assert annotations["x-opt-enqueued-time"] >= due_ms

    in_room(scenario, QueueDescription("q"))


def test_credit_is_topped_up_while_the_client_sends() -> None:
    """S-1: 3,000 messages pass a link whose credit is 1,000."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        sent = 0
        while sent < 3_000:
            await room.until(lambda: link.room() > 0)
            for _ in range(min(link.room(), 3_000 - sent)):
                peer.send(link, payload())
                sent += 1
        await room.until(lambda: len(peer.outcomes(link)) == 3_000)

    in_room(scenario, QueueDescription("q"))


def test_no_credit_is_given_while_the_store_is_behind() -> None:
    """S-1: the brake lets go when the commit is through."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        room.store.hold_commits()
        sent = 0
        while link.room() > 0:
            peer.send(link, payload())
            sent += 1
            await room.turns(1)
        assert 2_000 <= sent <= 3_000
        room.store.release_commits()
        await room.until(lambda: link.room() > 0 and len(peer.outcomes(link)) == sent)

    in_room(scenario, QueueDescription("q"))


def test_reading_pauses_while_too_many_bytes_wait_for_the_store() -> None:
    """L-5: memory stays bounded whatever credit a client assumes."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        room.store.hold_commits()
        for _ in range(25):
            peer.send(link, payload(b"x" * 200_000))
            await room.turns(1)
        assert not peer.transport.is_reading
        room.store.release_commits()
        await room.until(lambda: len(peer.outcomes(link)) == 25)
        assert peer.transport.is_reading

    in_room(scenario, QueueDescription("q"))


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_commit_of_unknown_outcome_detaches_without_an_outcome(is_applied: bool) -> None:
    """S-1: neither accepted nor rejected; the client sends again."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        room.store.lose_next_commit(is_applied=is_applied)
        number = peer.send(link, payload())
        condition, _ = await room.until(lambda: peer.refusal(link))
        assert condition == "amqp:link:detach-forced"
        assert number not in peer.outcomes(link)

    in_room(scenario, QueueDescription("q"))


def test_a_full_entity_refuses_with_its_name_and_size() -> None:
    """S-9, ERR-9: a full entity refuses with its name and size."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        room.namespace.queue("q").main.counters.bytes = 5 * 1024 * 1024 * 1024
        [outcome] = await peer.sent(link, payload())
        condition, description = rejection(outcome)
        assert condition == "amqp:resource-limit-exceeded"
        assert "'q'" in description

    in_room(scenario, QueueDescription("q"))


@pytest.mark.parametrize("address", ["q/$DeadLetterQueue", "q/$Transfer/$DeadLetterQueue"])
def test_nobody_sends_to_a_sub_queue(address: str) -> None:
    """E-10: nobody sends to a sub queue."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender(address)
        refusal = peer.refusal(link)
        assert refusal is not None
        assert refusal[0] == "amqp:not-allowed"

    in_room(scenario, QueueDescription("q"))


def test_a_missing_entity_is_refused_with_the_sentence_that_sdks_parse() -> None:
    """S-10, ERR-1: an attach without target, then the detach."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("nothing")
        assert link.peer is not None
        assert link.peer.target is None
        refusal = peer.refusal(link)
        assert refusal is not None
        assert refusal[0] == "amqp:not-found"
        assert refusal[1].startswith(
            "The messaging entity 'sb://ns.local/nothing' could not be found. TrackingId:"
        )

    in_room(scenario, QueueDescription("q"))


@pytest.mark.parametrize(
    ("hostname", "shown"),
    [
        ("bus.example.com", "bus.example.com"),
        ("localhost:5672", "localhost:5672"),
        (None, "ns.local"),
        ("", "ns.local"),
        ("a b", "ns.local"),
        ("x" * 300, "ns.local"),
        ("evil'/<script>", "ns.local"),
    ],
)
def test_a_missing_queue_is_named_with_the_host_that_the_client_knows(
    hostname: str | None, shown: str
) -> None:
    """ERR-1: what it wrote into its open, if that is the name of a host; programs compare it."""

    async def scenario(room: Room) -> None:
        response = plain_response(ROOT_RULE_NAME, KEY)
        settings = EngineSettings(sasl_mechanism="PLAIN", sasl_response=response, hostname=hostname)
        peer = Peer(room, "10.0.0.1", settings)
        await peer.open()
        refusal = peer.refusal(await peer.sender("nothing"))
        assert refusal is not None
        assert refusal[1].startswith(f"The messaging entity 'sb://{shown}/nothing' could not be found. Tr")

    in_room(scenario, QueueDescription("q"))


def test_a_disabled_queue_refuses_senders() -> None:
    """S-10, E-82, ERR-3: a disabled queue refuses senders."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        refusal = peer.refusal(link)
        assert refusal is not None
        assert refusal[0] == "com.microsoft:entity-disabled"

    in_room(scenario, QueueDescription("q", status="SendDisabled"))


async def set_status(room: Room, status: str) -> None:
    await room.namespace.update(replace(room.namespace.description("q"), status=status))


def test_a_change_of_status_detaches_the_links_it_forbids() -> None:
    """E-84: a change of status detaches the links it forbids."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender, receiver = await peer.sender("q"), await peer.receiver("q")
        await set_status(room, "SendDisabled")
        condition, _ = await room.until(lambda: peer.refusal(sender))
        assert condition == "com.microsoft:entity-disabled"
        assert peer.refusal(receiver) is None

    in_room(scenario, QueueDescription("q"))


def test_a_deleted_queue_detaches_its_links() -> None:
    """E-86: a deleted queue detaches its links."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        links = [await peer.sender("q"), await peer.receiver("q"), await peer.receiver("q/$DeadLetterQueue")]
        await room.namespace.delete("q")
        await room.until(lambda: all(peer.refusal(link) for link in links))
        for link in links:
            condition, description = peer.refusal(link) or ("", "")
            assert condition == "amqp:not-found"
            assert "The messaging entity 'sb://ns.local/q' could not be found." in description

    in_room(scenario, QueueDescription("q"))


def test_outcomes_of_a_link_that_is_gone_go_nowhere() -> None:
    """S-1: the message is stored, and nothing breaks."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        room.store.hold_commits()
        peer.send(link, payload(b"kept"))
        await room.turns()
        link.detach()
        await room.turns()
        room.store.release_commits()
        await room.turns()
        assert await stored_bodies(room) == [b"kept"]
        assert peer.closed_with() is None

    in_room(scenario, QueueDescription("q"))


def test_two_clients_share_one_queue() -> None:
    """R-3: what one sends the other receives."""

    async def scenario(room: Room) -> None:
        here, there = await room.client(), await room.client()
        receiver = await there.receiver("q")
        receiver.grant_credit(1)
        await room.turns()
        await here.sent(await here.sender("q"), payload(b"across"))
        [delivery] = await there.received(receiver, 1)
        assert body_of(delivery) == b"across"

    in_room(scenario, QueueDescription("q"))
