"""Publishing events over a link: partitions, keys, batches, publishers, idempotent producers, refusals."""

from typing import Any

import pytest

from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Fields, Rejected, TransactionalState
from busway.amqp.sections import BATCH_FORMAT
from busway.amqp.types import Int, Long, Short, Symbol
from busway.gateway.amqp.links.event_send_link import KEYLESS_EVENTS_MAX
from busway.model.descriptions import AuthorizationRule
from busway.model.errors import ServerBusy, StoreOutcomeUnknown
from busway.model.limits import Limits
from busway.streams.hub_descriptions import EventHubDescription
from busway.streams.key_hash import partition_of_key
from tests.unit.gateway.amqp_peer import Peer
from tests.unit.gateway.event_room import (
    PARTITION_KEY,
    EventRoom,
    annotations_of,
    bodies,
    envelope,
    event,
    in_event_room,
    publish,
    reader,
)

FOUR = EventHubDescription("hub", partition_count=4)
IDEMPOTENT = Symbol("com.microsoft:idempotent-producer")
ID = Symbol("com.microsoft:producer-id")
EPOCH = Symbol("com.microsoft:producer-epoch")
PUBLISHER = Symbol("x-opt-publisher")
SEQUENCE = Symbol("com.microsoft:producer-sequence-number")


def condition(outcome: object) -> str:
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    return outcome.error.condition


def are_accepted(outcomes: list[object]) -> bool:
    return all(isinstance(outcome, Accepted) for outcome in outcomes)


async def stored(room: EventRoom, peer: Peer, hub: str = "hub") -> list[list[bytes]]:
    """The bodies in each partition."""
    found = []
    for partition in range(room.hubs.hub(hub).partition_count):
        link = await reader(peer, partition, hub=hub, credit=10_000)
        await room.turns()
        found.append(bodies(peer, link))
        link.detach()
    return found


def test_events_for_a_partition_go_there_in_order() -> None:
    """H-12, S-4: events for a partition go there in order."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        sent = [b"%d" % number for number in range(40)]
        assert are_accepted(await publish(peer, "hub/partitions/2", *(event(body, "k") for body in sent)))
        assert await stored(room, peer) == [[], [], sent, []]

    in_event_room(scenario, FOUR)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("hub/Partitions/4", "com.microsoft:argument-out-of-range"),
        ("hub/Partitions/-1", "com.microsoft:argument-out-of-range"),
        ("hub/Partitions/٣", "com.microsoft:argument-out-of-range"),
        ("hub/ConsumerGroups/$Default/Partitions/0", "amqp:not-allowed"),
        ("hub/Partitions", "amqp:not-found"),
        ("hub/$DeadLetterQueue", "amqp:not-found"),
        ("nowhere/Partitions/0", "amqp:not-found"),
    ],
)
def test_what_cannot_be_sent_to_is_refused_at_the_attach(address: str, told: str) -> None:
    """H-12, ERR-1: what cannot be sent to is refused at the attach."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        refusal = peer.refusal(await peer.sender(address))
        assert refusal is not None
        # Letters outside ASCII open nothing, whoever holds the key.
        expected = "amqp:unauthorized-access" if not address.isascii() else told
        assert refusal[0] == expected

    in_event_room(scenario, FOUR)


def test_events_without_a_key_are_spread_over_the_partitions() -> None:
    """H-11: a few at a time, so that a burst is stored in few writes."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        count = 4 * KEYLESS_EVENTS_MAX
        await publish(peer, "hub", *(event(b"%d" % number) for number in range(count)))
        found = await stored(room, peer)
        assert [len(bodies_) for bodies_ in found] == [KEYLESS_EVENTS_MAX] * 4
        assert sorted(int(body) for part in found for body in part) == list(range(count))

    in_event_room(scenario, FOUR)


def test_events_with_a_key_go_where_the_key_says_in_order() -> None:
    """H-10: whatever comes in between."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await peer.sender("hub")
        expected: list[list[bytes]] = [[], [], [], []]
        ids = []
        for number in range(60):
            key = f"key-{number % 7}"
            body = b"%d" % number
            expected[partition_of_key(key, 4)].append(body)
            if number % 10 == 9:
                ids.append(peer.send(link, envelope(event(body), key=key), message_format=BATCH_FORMAT))
            else:
                ids.append(peer.send(link, event(body, key)))
        await room.until(lambda: len(peer.outcomes(link)) == len(ids))
        assert are_accepted(list(peer.outcomes(link).values()))
        assert await stored(room, peer) == expected

    in_event_room(scenario, FOUR)


def test_readers_see_the_key() -> None:
    """H-16: readers see the key."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, "hub", event(b"a", "ключ"))
        link = await reader(peer, partition_of_key("ключ", 2))
        [one] = await peer.received(link, 1)
        assert annotations_of(one)[PARTITION_KEY] == "ключ"

    in_event_room(scenario)


def test_a_batch_goes_to_one_partition_and_has_one_outcome() -> None:
    """H-17: a batch goes to one partition and has one outcome."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        sent = [b"%d" % number for number in range(50)]
        outcomes = await publish(peer, "hub", envelope(*map(event, sent)), is_batch=True)
        assert are_accepted(outcomes)
        assert sorted(await stored(room, peer)) == [[], [], [], sent]

    in_event_room(scenario, FOUR)


def test_the_key_of_an_envelope_chooses_the_partition() -> None:
    """H-10, H-17: Python writes it there and on the events, others in one place only."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        for batch in (
            envelope(event(b"a"), key="alphabet"),
            envelope(event(b"b", "alphabet")),
            envelope(event(b"c", "alphabet"), key="alphabet"),
        ):
            assert are_accepted(await publish(peer, "hub", batch, is_batch=True))
        found = await stored(room, peer)
        assert found[partition_of_key("alphabet", 4)] == [b"a", b"b", b"c"]

    in_event_room(scenario, FOUR)


@pytest.mark.parametrize(
    ("payload", "is_batch", "told"),
    [
        (envelope(event(b"a", "k"), event(b"b", "l")), True, "amqp:not-allowed"),
        (envelope(event(b"a"), b"rubbish"), True, "amqp:decode-error"),
        (event(b"a"), True, "amqp:decode-error"),
        (b"rubbish", False, "amqp:decode-error"),
        (event(b"a", message_annotations={PARTITION_KEY: 5}), False, "amqp:decode-error"),
        (event(b"a", "k" * 129), False, "com.microsoft:argument-error"),
        (envelope(event(b"a"), key="k" * 129), True, "com.microsoft:argument-error"),
        (event(bytes(2_000)), False, "amqp:link:message-size-exceeded"),
        (envelope(*[event(bytes(500))] * 3), True, "amqp:link:message-size-exceeded"),
    ],
)
def test_what_cannot_be_stored_is_rejected_alone(payload: bytes, is_batch: bool, told: str) -> None:
    """H-14, H-17, S-2: and the link goes on."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await peer.sender("hub")
        message_format = BATCH_FORMAT if is_batch else 0
        [outcome] = await peer.sent(link, payload, message_format=message_format)
        assert condition(outcome) == told
        assert are_accepted(await peer.sent(link, event(b"fine")))
        assert sum(len(part) for part in await stored(room, peer)) == 1

    in_event_room(scenario, limits=Limits(event_bytes_max=1_000))


def test_events_of_one_read_are_answered_each_for_itself() -> None:
    """S-2, S-4, H-10: usual ones and refused ones in any order; what is stored is in the order of its partition."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await peer.sender("hub")
        for _ in range(2):  # the second time all beginnings are known
            bad = (b"rubbish", event(b"x", "k" * 129), event(bytes(2_000)))
            payloads = []
            for number in range(40):
                key = f"key-{number % 3}" if number % 4 else None
                payloads.append(event(b"%d" % number, key) if number % 7 else bad[number // 7 % 3])
            outcomes = await peer.sent(link, *payloads)
            assert [isinstance(each, Accepted) for each in outcomes] == [bool(at % 7) for at in range(40)]
            told = {condition(outcomes[at]) for at in range(0, 40, 7)}
            assert told == {
                "amqp:decode-error",
                "com.microsoft:argument-error",
                "amqp:link:message-size-exceeded",
            }
        found = await stored(room, peer)
        for place in range(3):
            sent = [b"%d" % at for at in range(40) if at % 7 and at % 4 and at % 3 == place]
            partition = partition_of_key(f"key-{place}", 4)
            assert [body for body in found[partition] if body in sent] == sent * 2
        assert sum(map(len, found)) == 2 * 34

    in_event_room(scenario, FOUR, limits=Limits(event_bytes_max=1_000))


def test_the_link_says_how_large_a_publication_may_be() -> None:
    """H-14: clients cut their batches by it."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await peer.sender("hub")
        assert link.peer is not None
        assert link.peer.max_message_size == 1_048_576
        assert are_accepted(await peer.sent(link, event(bytes(1_000_000))))

    in_event_room(scenario)


def test_a_settled_event_is_stored_without_a_word() -> None:
    """S-3: a settled event is stored without a word."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await peer.sender("hub/Partitions/0")
        peer.send(link, event(b"a"), settled=True)
        peer.send(link, b"rubbish", settled=True)
        assert are_accepted(await peer.sent(link, event(b"b")))
        assert len(peer.outcomes(link)) == 1
        assert (await stored(room, peer))[0] == [b"a", b"b"]

    in_event_room(scenario)


def test_events_take_no_part_in_transactions() -> None:
    """H-1: events take no part in transactions."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await peer.sender("hub")
        sent = link.send(b"tag", event(b"a"), settled=False, state=TransactionalState(b"txn"))
        await room.until(lambda: sent.delivery_id in peer.outcomes(link))
        assert condition(peer.outcomes(link)[sent.delivery_id]) == "amqp:not-allowed"

    in_event_room(scenario)


def test_a_publishers_events_share_its_partition() -> None:
    """H-13: a publisher's events share its partition."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        address = "hub/publishers/device-1"
        assert are_accepted(await publish(peer, address, event(b"a"), event(b"b", "device-1")))
        assert are_accepted(await publish(peer, address, envelope(event(b"c")), is_batch=True))
        partition = partition_of_key("device-1", 4)
        assert (await stored(room, peer))[partition] == [b"a", b"b", b"c"]
        link = await reader(peer, partition)
        assert {annotations_of(one)[PARTITION_KEY] for one in await peer.received(link, 3)} == {"device-1"}
        [outcome] = await publish(peer, address, event(b"d", "device-2"))
        assert condition(outcome) == "amqp:not-allowed"

    in_event_room(scenario, FOUR)


def test_readers_see_who_published_and_nobody_can_pretend() -> None:
    """H-13, H-16: the path says it, never the event."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        forged = event(b"a", "device-1", message_annotations={PUBLISHER: "device-2"})
        await publish(peer, "hub/publishers/device-1", forged)
        await publish(peer, "hub/publishers/device-1", envelope(forged), is_batch=True)
        partition = partition_of_key("device-1", 4)
        await publish(peer, f"hub/Partitions/{partition}", forged)
        link = await reader(peer, partition)
        publishers = [annotations_of(one).get(PUBLISHER) for one in await peer.received(link, 3)]
        assert publishers == ["device-1", "device-1", None]

    in_event_room(scenario, FOUR)


def test_a_revoked_publisher_is_refused_and_others_are_not() -> None:
    """H-13, ERR-5: a revoked publisher is refused and others are not."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        refusal = peer.refusal(await peer.sender("hub/publishers/Stolen"))
        assert refusal is not None
        assert refusal[0] == "com.microsoft:publisher-revoked"
        assert peer.refusal(await peer.sender("hub/publishers/mine")) is None

    in_event_room(scenario, EventHubDescription("hub", revoked_publishers=("stolen",)))


def test_nobody_sends_to_a_hub_that_is_disabled_for_sending() -> None:
    """H-2, ERR-3: nobody sends to a hub that is disabled for sending."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        for address in ("hub", "hub/Partitions/0", "hub/publishers/p"):
            refusal = peer.refusal(await peer.sender(address))
            assert refusal is not None
            assert refusal[0] == "com.microsoft:entity-disabled"
        assert peer.refusal(await reader(peer)) is None

    in_event_room(scenario, EventHubDescription("hub", status="SendDisabled"))


def test_a_token_for_a_publisher_opens_that_publisher_alone() -> None:
    """H-13, A-5, A-9: a token for a publisher opens that publisher alone."""
    rules = (AuthorizationRule("device", frozenset({"Send"}), "d" * 44, "e" * 44),)

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        audience = "sb://ns.local/hub/publishers/one"
        assert await peer.put_token(audience, rule="device", key="d" * 44) == 202
        assert peer.refusal(await peer.sender("hub/publishers/one")) is None
        for address in ("hub", "hub/publishers/two", "hub/Partitions/0"):
            assert (peer.refusal(await peer.sender(address)) or ("",))[0] == "amqp:unauthorized-access"

    in_event_room(scenario, EventHubDescription("hub", authorization_rules=rules))


@pytest.mark.parametrize("address", ["hub", "hub/Partitions/0", "nothing"])
def test_who_has_no_right_is_refused_without_either_terminus(address: str) -> None:
    """A-9, ERR-1: go-amqp takes an attach that still names one for a link that stands.

    Of what is not there the refusal looks the same."""
    rules = (AuthorizationRule("reader", frozenset({"Listen"}), "d" * 44, "e" * 44),)

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        await peer.put_token(f"sb://ns.local/{address}", rule="reader", key="d" * 44)
        link = await peer.sender(address)
        assert (peer.refusal(link) or ("",))[0] == "amqp:unauthorized-access"
        assert link.peer is not None
        assert (link.peer.source, link.peer.target) == (None, None)

    in_event_room(scenario, EventHubDescription("hub", authorization_rules=rules))


def test_nothing_is_accepted_before_it_is_durable() -> None:
    """S-1, H-16: nothing is accepted before it is durable."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await peer.sender("hub/Partitions/0")
        follower = await reader(peer)
        room.store.hold_commits()
        peer.send(link, event(b"a"))
        await room.turns()
        assert (peer.outcomes(link), bodies(peer, follower)) == ({}, [])
        room.store.release_commits()
        await room.until(lambda: peer.outcomes(link))
        await peer.received(follower, 1)

    in_event_room(scenario)


def test_requests_and_events_are_counted() -> None:
    """O-6: a batch of three is one request and three messages."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        flow = room.hubs.hub("hub").flow
        await publish(peer, "hub", envelope(event(b"a"), event(b"b"), event(b"c")), is_batch=True)
        assert (flow.successes, flow.messages_in) == (2, 3)  # one attach, one batch
        await publish(peer, "hub", b"rubbish")
        assert (flow.successes, flow.user_errors, flow.messages_in) == (3, 1, 3)

    in_event_room(scenario)


# -- idempotent producers


async def producer(peer: Peer, address: str = "hub/Partitions/0", properties: Fields | None = None) -> Link:
    given = {ID: None, EPOCH: None, SEQUENCE: None} if properties is None else properties
    return await peer.sender(address, desired_capabilities=[IDEMPOTENT], properties=given)


def told(link: Link) -> dict[Any, Any]:
    assert link.peer is not None
    return link.peer.properties or {}


def numbered(body: bytes, claim: dict[Any, Any], number: int) -> bytes:
    return event(
        body,
        message_annotations={
            ID: Long(claim[ID]),
            EPOCH: Short(claim[EPOCH]),
            SEQUENCE: Int(number),
        },
    )


def test_an_idempotent_producer_is_given_an_id() -> None:
    """H-18: in the attach, with the types that clients look for."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await producer(peer)
        assert link.peer is not None
        assert link.peer.offered_capabilities == [IDEMPOTENT]
        assert {name: type(value) for name, value in told(link).items()} == {
            ID: Long,
            EPOCH: Short,
            SEQUENCE: Int,
        }

    in_event_room(scenario)


def test_a_repeated_group_is_accepted_and_stored_once() -> None:
    """H-18: also by a producer that comes back with what it was."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await producer(peer)
        claim = dict(told(link))
        first = claim[SEQUENCE] + 1
        group = envelope(numbered(b"a", claim, first), numbered(b"b", claim, first + 1))
        for _ in range(2):
            assert are_accepted(await peer.sent(link, group, message_format=BATCH_FORMAT))
        assert are_accepted(await peer.sent(link, numbered(b"c", claim, first + 2)))
        back = await producer(peer, properties={**claim, SEQUENCE: Int(first + 2)})
        assert told(back)[SEQUENCE] == first + 2
        assert are_accepted(await peer.sent(back, numbered(b"c", claim, first + 2)))
        assert await stored(room, peer) == [[b"a", b"b", b"c"], []]

    in_event_room(scenario)


def test_a_gap_in_the_numbers_is_refused() -> None:
    """H-18: a gap in the numbers is refused."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await producer(peer)
        claim = told(link)
        [outcome] = await peer.sent(link, numbered(b"a", claim, claim[SEQUENCE] + 2))
        assert condition(outcome) == "com.microsoft:out-of-order-sequence"
        [outcome] = await peer.sent(link, event(b"a"))
        assert condition(outcome) == "com.microsoft:argument-error"

    in_event_room(scenario)


def test_the_producer_with_the_newer_epoch_stays() -> None:
    """H-18: the producer with the newer epoch stays."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        old = await producer(peer)
        claim = dict(told(old))
        new = await producer(peer, properties={ID: claim[ID], EPOCH: None, SEQUENCE: None})
        assert told(new)[EPOCH] == claim[EPOCH] + 1
        [outcome] = await peer.sent(old, numbered(b"a", claim, claim[SEQUENCE] + 1))
        assert condition(outcome) == "com.microsoft:producer-epoch-stolen"
        fresh = told(new)
        assert are_accepted(await peer.sent(new, numbered(b"b", fresh, fresh[SEQUENCE] + 1)))

    in_event_room(scenario)


@pytest.mark.parametrize(
    ("address", "properties", "expected"),
    [
        ("hub", {}, "amqp:not-allowed"),
        ("hub/publishers/p", {}, "amqp:not-allowed"),
        ("hub/Partitions/0", {ID: "one"}, "com.microsoft:argument-error"),
        ("hub/Partitions/0", {EPOCH: Short(-1)}, "com.microsoft:argument-out-of-range"),
        ("hub/Partitions/0", {ID: Long(-1)}, "com.microsoft:argument-out-of-range"),
    ],
)
def test_an_idempotent_producer_that_makes_no_sense_is_refused(
    address: str, properties: dict[Any, Any], expected: str
) -> None:
    """H-18: an idempotent producer that makes no sense is refused."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        refusal = peer.refusal(await producer(peer, address, properties))
        assert refusal is not None
        assert refusal[0] == expected
        room.hubs.hub("hub").close(StoreOutcomeUnknown())  # nobody was left behind to be evicted

    in_event_room(scenario)


# -- stores that go and come back


def test_a_partition_that_is_away_is_left_out_or_refused() -> None:
    """H-11, H-12: events without a key go elsewhere; those for that partition are refused, and clients try again."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        there = await peer.sender("hub/Partitions/0")
        anywhere = await peer.sender("hub")
        room.hubs.hub("hub").lose_partition(0, ServerBusy())
        assert are_accepted(await peer.sent(anywhere, *(event(b"%d" % n) for n in range(40))))
        [outcome] = await peer.sent(there, event(b"x"))
        assert condition(outcome) == "com.microsoft:server-busy"
        key = next(f"k{n}" for n in range(100) if partition_of_key(f"k{n}", 2) == 0)
        [outcome] = await peer.sent(anywhere, event(b"x", key))
        assert condition(outcome) == "com.microsoft:server-busy"
        link = await reader(peer, 1)
        assert len(await peer.received(link, 40)) == 40

    in_event_room(scenario)


def test_readers_of_a_lost_store_are_detached_and_may_come_back() -> None:
    """H-12: with an error that clients take as "try again"."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, "hub/Partitions/0", event(b"a"))
        link = await reader(peer)
        room.hubs.lose_store("a", ServerBusy())
        await room.turns()
        assert (peer.refusal(link) or ("",))[0] == "com.microsoft:server-busy"
        again = await reader(peer)
        assert (peer.refusal(again) or ("",))[0] == "com.microsoft:server-busy"
        room.hubs.regain_store("a")
        link = await reader(peer)
        await peer.received(link, 1)

    in_event_room(scenario)


def test_an_idempotent_producer_attaches_again_when_its_partition_was_away() -> None:
    """H-18, H-19: what it has had stored is read anew, so nothing is stored twice."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await producer(peer)
        claim = dict(told(link))
        first = claim[SEQUENCE] + 1
        assert are_accepted(await peer.sent(link, numbered(b"a", claim, first)))
        room.hubs.lose_store("a", ServerBusy())
        room.hubs.regain_store("a")
        peer.send(link, numbered(b"a", claim, first))
        await room.until(lambda: peer.refusal(link))
        assert (peer.refusal(link) or ("",))[0] == "amqp:link:detach-forced"
        back = await producer(peer, properties={**claim, SEQUENCE: Int(first)})
        assert told(back) == {**claim, SEQUENCE: first}
        assert are_accepted(await peer.sent(back, numbered(b"a", claim, first)))
        assert are_accepted(await peer.sent(back, numbered(b"b", claim, first + 1)))
        assert await stored(room, peer) == [[b"a", b"b"], []]

    in_event_room(scenario)
