"""Reading events over a link: positions, order, credit, windows, epochs, and what a reader is told."""

import pytest

from busway.amqp.events import CreditDrained, LinkDetached
from busway.amqp.performatives import ACCEPTED, Source, Target
from busway.amqp.types import Long, Symbol, Timestamp
from busway.gateway.amqp.attach.event_attaching import SELECTOR_FILTER
from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription
from busway.streams.hub_descriptions import ConsumerGroupDescription, EventHubDescription
from tests.unit.gateway.amqp_peer import body_of
from tests.unit.gateway.event_room import (
    LATEST,
    START,
    EventRoom,
    annotations_of,
    bodies,
    event,
    in_event_room,
    message,
    publish,
    reader,
)

P0 = "hub/Partitions/0"


def test_a_reader_gets_everything_in_order_settled_with_empty_tags() -> None:
    """H-16, H-20, H-21: number, offset and time are in each event; whatever settlement was asked for."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, event(b"a"), event(b"b"))
        link = await reader(peer)
        assert link.peer is not None
        assert (link.peer.snd_settle_mode, link.peer.max_message_size) == (1, 1_048_576)
        found = await peer.received(link, 2)
        assert [(one.settled, one.tag) for one in found] == [(True, b"")] * 2
        assert [body_of(one) for one in found] == [b"a", b"b"]
        assert [annotations_of(one) for one in found] == [
            {
                "x-opt-sequence-number": number,
                "x-opt-offset": str(number),
                "x-opt-enqueued-time": room.clock.wall_ms(),
            }
            for number in (0, 1)
        ]
        assert type(annotations_of(found[0])["x-opt-enqueued-time"]) is Timestamp

    in_event_room(scenario)


def test_reading_removes_nothing_and_each_reader_gets_all() -> None:
    """H-1, H-23: reading removes nothing and each reader gets all."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        first = await reader(peer)
        await publish(peer, P0, event(b"a"), event(b"b"))
        await peer.received(first, 2)
        second = await reader(peer)
        assert bodies(peer, first) == bodies(peer, second) == [b"a", b"b"]

    in_event_room(scenario)


def test_outcomes_of_a_reader_mean_nothing() -> None:
    """H-21: JavaScript accepts what was settled long ago."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await reader(peer)
        await publish(peer, P0, event(b"a"))
        [one] = await peer.received(link, 1)
        link.settle(one.delivery_id, one.delivery_id, ACCEPTED)
        await publish(peer, P0, event(b"b"))
        await peer.received(link, 2)
        assert peer.refusal(link) is None

    in_event_room(scenario)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, [b"0", b"1", b"2", b"3"]),
        (START, [b"0", b"1", b"2", b"3"]),
        (LATEST, []),
        ("amqp.annotation.x-opt-offset > '1'", [b"2", b"3"]),
        ("amqp.annotation.x-opt-offset >= '1'", [b"1", b"2", b"3"]),
        ("amqp.annotation.x-opt-sequence-number > '2'", [b"3"]),
        ("amqp.annotation.x-opt-sequence-number >= '0'", [b"0", b"1", b"2", b"3"]),
        ("amqp.annotation.x-opt-sequence-number > '3'", []),
    ],
)
def test_a_reader_begins_where_its_filter_says(selector: str | None, expected: list[bytes]) -> None:
    """H-20, H-22: and then gets what comes."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, *(event(b"%d" % number) for number in range(4)))
        link = await reader(peer, selector=selector)
        await room.turns()
        assert bodies(peer, link) == expected
        await publish(peer, P0, event(b"later"))
        await peer.received(link, len(expected) + 1)
        assert bodies(peer, link) == [*expected, b"later"]

    in_event_room(scenario)


def test_a_reader_can_begin_at_a_time() -> None:
    """H-20: the time of an event is when it was stored."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, event(b"old"))
        await room.pass_time(10)
        now_ms = room.clock.wall_ms()
        await publish(peer, P0, event(b"new"))
        at = await reader(peer, selector=f"amqp.annotation.x-opt-enqueued-time >= '{now_ms}'")
        behind = await reader(peer, selector=f"amqp.annotation.x-opt-enqueued-time > '{now_ms}'")
        await room.turns()
        assert (bodies(peer, at), bodies(peer, behind)) == ([b"new"], [])

    in_event_room(scenario)


@pytest.mark.parametrize(
    ("selector", "sentence"),
    [
        (
            "amqp.annotation.x-opt-sequence-number >= '0'",
            "The supplied sequence number '0' is invalid. The last sequence number in the system is '-1'",
        ),
        (
            "amqp.annotation.x-opt-offset > '5'",
            "The supplied offset '5' is invalid. The last offset in the system is '-1'",
        ),
    ],
)
def test_a_position_behind_the_end_is_refused(selector: str, sentence: str) -> None:
    """H-22: with an attach that names neither source nor target, then a detach."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await reader(peer, selector=selector, credit=0)
        assert link.peer is not None
        assert (link.peer.source, link.peer.target) == (None, None)
        refusal = peer.refusal(link)
        assert refusal is not None
        assert refusal[0] == "com.microsoft:argument-error"
        assert sentence in refusal[1]

    in_event_room(scenario)


def test_only_as_much_as_the_credit_admits_comes() -> None:
    """H-21, R-70: and the rest when there is more."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, *(event(b"%d" % number) for number in range(10)))
        link = await reader(peer, credit=3)
        assert bodies(peer, link) == [b"0", b"1", b"2"]
        link.grant_credit(4)
        await peer.received(link, 7)
        await room.turns()
        assert bodies(peer, link) == [b"%d" % number for number in range(7)]

    in_event_room(scenario)


def test_a_drain_is_answered_when_there_is_nothing_more() -> None:
    """R-9: a drain is answered when there is nothing more."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, event(b"a"))
        link = await reader(peer, credit=0)
        link.grant_credit(10, drain=True)
        await room.until(lambda: peer.seen(CreditDrained, link))
        assert bodies(peer, link) == [b"a"]

    in_event_room(scenario)


def test_a_reader_that_does_not_take_holds_up_only_itself() -> None:
    """H-21: no more is written than the peer takes, and nothing is lost."""

    async def scenario(room: EventRoom) -> None:
        writer = await room.client()
        slow = await room.client()
        link = await reader(slow, credit=100_000)
        slow.transport.holds = True
        for _ in range(6):
            await publish(writer, P0, *(event(bytes(100_000)) for _ in range(5)))
        assert slow.transport.get_write_buffer_size() < 2_500_000
        quick = await reader(writer, credit=1_000)
        await writer.received(quick, 30)
        slow.transport.holds = False
        slow.connection.resume_writing()
        found = await slow.received(link, 30)
        assert [annotations_of(one)["x-opt-sequence-number"] for one in found] == list(range(30))

    in_event_room(scenario)


def test_events_larger_than_a_frame_and_a_small_window_arrive_whole() -> None:
    """H-21: events larger than a frame and a small window arrive whole."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        sizes = [200_000, 10, 70_000, 1, 300_000, 5]
        for size in sizes:
            await publish(peer, P0, event(bytes(size)))
        link = await reader(peer)
        found = await peer.received(link, len(sizes))
        assert [len(body_of(one)) for one in found] == sizes

    in_event_room(scenario)


def test_a_reader_learns_how_far_the_partition_is_when_it_asks() -> None:
    """H-26: in the delivery annotations of each event, with the types that clients look for."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, event(b"a"), event(b"b"))
        capability = Symbol("com.microsoft:enable-receiver-runtime-metric")
        link = await reader(peer, desired_capabilities=[capability, Symbol("com.microsoft:georeplication")])
        assert link.peer is not None
        assert link.peer.offered_capabilities == [capability]
        found = await peer.received(link, 2)
        for one in found:
            told = message(one).delivery_annotations or {}
            assert told == {
                "last_enqueued_sequence_number": 1,
                "last_enqueued_offset": "1",
                "last_enqueued_time_utc": room.clock.wall_ms(),
                "runtime_info_retrieval_time_utc": room.clock.wall_ms(),
            }
            assert type(told["last_enqueued_sequence_number"]) is Long
            assert type(told["last_enqueued_time_utc"]) is Timestamp
        assert [body_of(one) for one in found] == [b"a", b"b"]

    in_event_room(scenario)


def test_the_sixth_reader_without_an_epoch_is_refused() -> None:
    """H-23: the sixth reader without an epoch is refused."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        for _ in range(5):
            assert peer.refusal(await reader(peer)) is None
        refusal = peer.refusal(await reader(peer))
        assert refusal is not None
        assert refusal[0] == "amqp:resource-limit-exceeded"
        assert (
            "maximum number of allowed receivers per partition in a consumer group which is 5" in refusal[1]
        )
        assert peer.refusal(await reader(peer, 1)) is None

    in_event_room(scenario)


def test_a_reader_that_leaves_makes_room_for_another() -> None:
    """H-23: detached, or cut off with its connection."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        other = await room.client()
        first = await reader(peer)
        for _ in range(4):
            await reader(other)
        first.detach()
        await room.turns()
        assert peer.refusal(await reader(peer)) is None
        other.transport.lose()
        for _ in range(4):
            assert peer.refusal(await reader(peer)) is None
        assert len(room.hubs.hub("hub").partition("0").readers.all()) == 5

    in_event_room(scenario)


def test_a_higher_epoch_takes_the_partition_over() -> None:
    """H-24: the one before is told by whom."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        old = await reader(peer, epoch=1, name="one")
        new = await reader(peer, epoch=2, name="two")
        refusal = peer.refusal(old)
        assert refusal is not None
        assert refusal[0] == "amqp:link:stolen"
        assert (
            "New receiver 'two' with higher epoch of '2' is created hence current receiver 'one' with epoch '1' is"
            " getting disconnected. If you are recreating the receiver, make sure a higher epoch is used."
        ) in refusal[1]
        await publish(peer, P0, event(b"a"))
        await peer.received(new, 1)
        assert bodies(peer, old) == []

    in_event_room(scenario)


def test_a_lower_epoch_and_none_are_refused() -> None:
    """H-24, H-25: a lower epoch and none are refused."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await reader(peer, epoch=2)
        for epoch in (1, None):
            refusal = peer.refusal(await reader(peer, epoch=epoch))
            assert refusal is not None
            assert refusal[0] == "amqp:link:stolen"
        assert peer.refusal(await reader(peer, 1)) is None

    in_event_room(scenario)


@pytest.mark.parametrize(
    ("properties", "condition"),
    [
        ({Symbol("com.microsoft:epoch"): "1"}, "com.microsoft:argument-error"),
        ({Symbol("com.microsoft:epoch"): Long(-1)}, "com.microsoft:argument-out-of-range"),
        ({Symbol("com.microsoft:receiver-name"): b"x"}, "com.microsoft:argument-error"),
        ({Symbol("com.microsoft:receiver-name"): "n" * 65}, "com.microsoft:argument-out-of-range"),
    ],
)
def test_strange_properties_are_refused(properties: dict[Symbol, object], condition: str) -> None:
    """H-24: strange properties are refused."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await peer.receiver("hub/ConsumerGroups/$default/Partitions/0", properties=properties)
        refusal = peer.refusal(link)
        assert refusal is not None
        assert refusal[0] == condition

    in_event_room(scenario)


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("hub", "amqp:not-allowed"),
        ("hub/Partitions/0", "amqp:not-allowed"),
        ("hub/publishers/p", "amqp:not-allowed"),
        ("hub/ConsumerGroups/nobody/Partitions/0", "amqp:not-found"),
        ("hub/ConsumerGroups/$Default/Partitions/2", "com.microsoft:argument-out-of-range"),
        ("hub/ConsumerGroups/$Default/Partitions/00", "com.microsoft:argument-out-of-range"),
        ("hub/ConsumerGroups/$Default/Partitions/x", "com.microsoft:argument-out-of-range"),
        ("hub/ConsumerGroups/$Default", "amqp:not-found"),
        ("hub/$DeadLetterQueue", "amqp:not-found"),
        ("hub/Subscriptions/s", "amqp:not-found"),
        ("other/ConsumerGroups/$Default/Partitions/0", "amqp:not-found"),
    ],
)
def test_what_cannot_be_read_is_refused(address: str, condition: str) -> None:
    """H-12, H-20, ERR-1: what cannot be read is refused."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        refusal = peer.refusal(await peer.receiver(address))
        assert refusal is not None
        assert refusal[0] == condition

    in_event_room(scenario)


def test_a_deleted_hub_takes_its_readers_along() -> None:
    """H-21, E-86: a deleted hub takes its readers along."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await reader(peer)
        await room.hubs.delete("hub")
        await room.until(lambda: peer.seen(LinkDetached, link))
        assert (peer.refusal(link) or ("",))[0] == "amqp:not-found"

    in_event_room(scenario)


def test_a_changed_hub_detaches_its_readers() -> None:
    """H-21: they attach again and go on where they were."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        link = await reader(peer)
        description = room.hubs.description("hub")
        await room.hubs.update(
            EventHubDescription(
                "hub",
                description.partition_count,
                user_metadata="changed",
                created_at_ms=description.created_at_ms,
            )
        )
        await room.until(lambda: peer.seen(LinkDetached, link))
        assert (peer.refusal(link) or ("",))[0] == "com.microsoft:entity-updated"
        assert peer.refusal(await reader(peer)) is None

    in_event_room(scenario)


def test_a_deleted_consumer_group_detaches_its_readers_alone() -> None:
    """H-5: a deleted consumer group detaches its readers alone."""

    async def scenario(room: EventRoom) -> None:
        await room.hubs.create_group(ConsumerGroupDescription("hub", "mine"))
        peer = await room.client()
        link = await reader(peer, group="MINE")
        other = await reader(peer)
        await room.hubs.delete_group("hub", "mine")
        await room.until(lambda: peer.seen(LinkDetached, link))
        assert peer.refusal(other) is None

    in_event_room(scenario)


def test_nobody_reads_a_hub_that_is_disabled_for_receiving() -> None:
    """H-2, ERR-3: nobody reads a hub that is disabled for receiving."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        refusal = peer.refusal(await reader(peer))
        assert refusal is not None
        assert refusal[0] == "com.microsoft:entity-disabled"
        assert peer.refusal(await peer.sender("hub")) is None

    in_event_room(scenario, EventHubDescription("hub", status="ReceiveDisabled"))


def test_only_who_may_listen_reads() -> None:
    """A-2, A-9: a rule of the hub counts for everything below it."""
    rules = (
        AuthorizationRule("reads", frozenset({"Listen"}), "r" * 44, "s" * 44),
        AuthorizationRule("writes", frozenset({"Send"}), "w" * 44, "x" * 44),
    )

    async def scenario(room: EventRoom) -> None:
        audience = "sb://ns.local/hub/ConsumerGroups/$default/Partitions/0"
        may = await room.stranger()
        assert await may.put_token(audience, rule="reads", key="r" * 44) == 202
        assert may.refusal(await reader(may)) is None
        assert (may.refusal(await reader(may, 1)) or ("",))[0] == "amqp:unauthorized-access"
        may_not = await room.stranger()
        assert await may_not.put_token(audience, rule="writes", key="w" * 44) == 202
        assert (may_not.refusal(await reader(may_not)) or ("",))[0] == "amqp:unauthorized-access"

    in_event_room(scenario, EventHubDescription("hub", authorization_rules=rules))


def test_a_stranger_cannot_tell_a_hub_from_nothing() -> None:
    """A-6: the refusals are alike."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        answers = []
        for hub in ("hub", "nothing"):
            link = await reader(peer, hub=hub, credit=0)
            assert link.peer is not None
            answers.append((link.peer.source, link.peer.target, (peer.refusal(link) or ("",))[0]))
        assert answers[0] == answers[1]
        assert answers[0][2] == "amqp:unauthorized-access"

    in_event_room(scenario)


def test_a_drain_waits_for_what_is_being_read() -> None:
    """R-9: and for the window and the socket, never for more events."""

    async def scenario(room: EventRoom) -> None:
        writer = await room.client()
        await publish(writer, P0, *(event(bytes(100_000)) for _ in range(20)))
        peer = await room.client()
        link = await reader(peer, credit=0)
        peer.transport.holds = True
        link.grant_credit(100, drain=True)
        await room.turns()
        peer.transport.holds = False
        peer.connection.resume_writing()
        await room.until(lambda: peer.seen(CreditDrained, link))
        assert len(peer.deliveries(link)) == 20

    in_event_room(scenario)


def test_a_drain_does_not_wait_for_a_slow_read() -> None:
    """R-9: answered within 100 ms; what is read then comes with the next credit."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, event(b"a"), event(b"b"))
        link = await reader(peer, credit=0)
        room.hold_chunks()
        link.grant_credit(10, drain=True)
        await room.turns()
        assert peer.seen(CreditDrained, link) == []
        await room.pass_time(0.1)
        assert len(peer.seen(CreditDrained, link)) == 1
        room.release_chunks()
        await room.turns()
        assert peer.deliveries(link) == []
        link.grant_credit(10, drain=True)
        await peer.received(link, 2)
        await room.turns()
        assert bodies(peer, link) == [b"a", b"b"]
        assert len(peer.seen(CreditDrained, link)) == 2
        await room.pass_time(1)
        assert len(peer.seen(CreditDrained, link)) == 2

    in_event_room(scenario)


def test_a_drain_that_goes_with_its_link_is_forgotten() -> None:
    """R-9, R-22: no alarm is left behind."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, event(b"a"))
        link = await reader(peer, credit=0)
        room.hold_chunks()
        link.grant_credit(10, drain=True)
        await room.turns()
        link.detach()
        await room.turns()
        await room.pass_time(1)
        assert peer.closed_with() is None
        room.release_chunks()

    in_event_room(scenario)


@pytest.mark.parametrize("leaves", ["detaches", "is cut off", "loses its hub"])
def test_a_reader_that_leaves_before_its_position_is_found_leaves_nothing(leaves: str) -> None:
    """H-20, H-23: the answer of the store comes for nobody."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, event(b"a"))
        log = room.hubs.hub("hub").partition("0")
        room.hold_positions()
        link = peer.session.attach(
            "reader",
            is_sender=False,
            source=Source(
                "hub/ConsumerGroups/$Default/Partitions/0",
                filter={SELECTOR_FILTER: "amqp.annotation.x-opt-enqueued-time >= '1'"},
            ),
            target=Target("there"),
        )
        await room.turns()
        assert link.peer is None
        if leaves == "detaches":
            link.detach()
        elif leaves == "is cut off":
            peer.transport.lose()
        else:
            await room.hubs.delete("hub")
        await room.turns()
        room.release_positions()
        await room.turns()
        assert log.readers.all() == []
        if leaves == "loses its hub":
            assert (peer.refusal(link) or ("",))[0] == "amqp:not-found"

    in_event_room(scenario)


def test_what_was_read_is_counted() -> None:
    """O-6: messages and bytes out; attaching is a request."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, P0, event(b"a"), event(b"b"))
        link = await reader(peer)
        await peer.received(link, 2)
        flow = room.hubs.hub("hub").flow
        assert (flow.messages_in, flow.messages_out) == (2, 2)
        assert flow.bytes_out > 0
        assert (flow.successes, flow.user_errors) == (4, 0)
        await reader(peer, 7)
        assert flow.user_errors == 1

    in_event_room(scenario)


def test_a_queue_may_have_an_address_like_a_part_of_a_hub() -> None:
    """E-8: what lies in no hub is looked for among the queues."""

    async def scenario(room: EventRoom) -> None:
        await room.namespace.create([NewEntity(QueueDescription("q/partitions/0"))])
        peer = await room.client()
        await publish(peer, "q/partitions/0", event(b"message"))
        link = await peer.receiver("q/partitions/0")
        link.grant_credit(1)
        [one] = await peer.received(link, 1)
        assert (body_of(one), one.settled) == (b"message", False)

    in_event_room(scenario)
