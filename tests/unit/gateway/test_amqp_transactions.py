"""Transactions over AMQP: coordinator, transfers, dispositions and requests with a transactional state."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from busway.amqp.errors import AmqpError
from busway.amqp.events import LinkDetached
from busway.amqp.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from busway.amqp.sections import AmqpMessage, encode_composite, encode_message
from busway.amqp.types import Array, Described, Symbol, Timestamp, ULong
from busway.client.messages import encode_batch
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.limits import Limits
from tests.unit.gateway.amqp_peer import Room, body_of, in_room, payload
from tests.unit.gateway.amqp_transactions import (
    Controller,
    asked_in,
    bodies_in,
    condition_of,
    sent_in,
    settled_in,
)

QUEUE = QueueDescription("q")
OTHER = QueueDescription("other")
BATCH_FORMAT = 0x80013700


def test_a_coordinator_is_attached_without_a_token_and_has_credit() -> None:
    """TX-5, A-7: its rights are those of the operations."""

    async def scenario(room: Room) -> None:
        stranger = await room.stranger()
        controller = await Controller.attached(stranger)
        answer = controller.link.peer
        assert answer is not None
        assert answer.target == Coordinator(["amqp:local-transactions"])
        assert controller.link.credit() > 0
        txn_id = await controller.declare()
        refused = await stranger.sender("q")
        assert stranger.refusal(refused) is not None
        assert isinstance(await controller.discharge(txn_id), Accepted)

    in_room(scenario, QUEUE)


def test_sends_in_a_transaction_are_answered_in_its_terms_and_visible_after_the_commit() -> None:
    """TX-5, TX-8, S-20: single messages and batches."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        txn_id = await controller.declare()
        expected = TransactionalState(txn_id, Accepted())
        assert await sent_in(peer, sender, txn_id, payload(b"a")) == expected
        batch = encode_batch([payload(b"b"), payload(b"c")])
        assert await sent_in(peer, sender, txn_id, batch, message_format=BATCH_FORMAT) == expected
        assert await bodies_in(peer, "q", 0) == []
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert await bodies_in(peer, "q", 3) == [b"a", b"b", b"c"]

    in_room(scenario, QUEUE)


def test_sends_in_a_row_are_taken_together_and_answered_each() -> None:
    """TX-1, TX-7, S-2: of two transactions, plain ones between them; one that is refused dooms its own only."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        first, second = await controller.declare(), await controller.declare()
        sent = [
            (first, b"1"),
            (first, b"2"),
            (second, b"3"),
            (None, b"4"),
            (second, b"5"),
            (second, b"x" * 300_000),
            (second, b"6"),
            (b"unknown", b"7"),
            (b"unknown", b"8"),
        ]
        deliveries = [
            sender.send(
                uuid4().bytes,
                payload(body),
                settled=False,
                state=None if txn_id is None else TransactionalState(txn_id),
            )
            for txn_id, body in sent
        ]
        await room.until(lambda: len(peer.outcomes(sender)) == len(sent))
        told = [peer.outcomes(sender)[delivery.delivery_id] for delivery in deliveries]
        assert told[:2] == [TransactionalState(first, Accepted())] * 2
        assert [told[index] for index in (2, 4)] == [TransactionalState(second, Accepted())] * 2
        assert told[3] == Accepted()
        assert condition_of(told[5]) == "amqp:link:message-size-exceeded"
        assert condition_of(told[6]) == "amqp:transaction:rollback"
        assert [condition_of(outcome) for outcome in told[7:]] == ["amqp:transaction:unknown-id"] * 2
        assert await bodies_in(peer, "q", 1) == [b"4"]
        assert condition_of(await controller.discharge(second)) == "amqp:transaction:rollback"
        assert await bodies_in(peer, "q", 0) == []
        assert isinstance(await controller.discharge(first), Accepted)
        assert await bodies_in(peer, "q", 2) == [b"1", b"2"]

    in_room(scenario, QUEUE)


def test_plain_sends_and_sends_of_a_transaction_share_a_link() -> None:
    """TX-8, S-4: plain sends and sends of a transaction share a link."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        txn_id = await controller.declare()
        plain = [sender.send(uuid4().bytes, payload(b"1"), settled=False)]
        sender.send(uuid4().bytes, payload(b"t"), settled=False, state=TransactionalState(txn_id))
        plain.append(sender.send(uuid4().bytes, payload(b"2"), settled=False))
        await room.turns()
        outcomes = peer.outcomes(sender)
        assert [type(outcomes[delivery.delivery_id]) for delivery in plain] == [Accepted, Accepted]
        assert await bodies_in(peer, "q", 2) == [b"1", b"2"]
        assert isinstance(await controller.discharge(txn_id, fail=True), Accepted)
        assert await bodies_in(peer, "q", 0) == []

    in_room(scenario, QUEUE)


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        (Accepted(), (0, 0, 0)),
        (Released(), (1, 0, 0)),
        (Modified(True, False), (1, 0, 0)),
        (Modified(True, True), (0, 1, 0)),
        (Rejected(AmqpError("com.microsoft:dead-letter", None, {})), (0, 0, 1)),
    ],
)
def test_every_outcome_can_be_part_of_a_transaction(outcome: object, left: tuple[int, int, int]) -> None:
    """TX-1, TX-5, R-10…R-15: the answer names the transaction and the same outcome."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        await peer.sent(await peer.sender("q"), payload())
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        [answer] = await settled_in(peer, receiver, txn_id, deliveries, outcome)
        assert isinstance(answer, TransactionalState)
        assert (answer.txn_id, type(answer.outcome)) == (txn_id, type(outcome))
        counts = room.namespace.queue("q").counts()
        assert (counts.active, counts.deferred, counts.dead_letter) == (1, 0, 0)
        assert isinstance(await controller.discharge(txn_id), Accepted)
        counts = room.namespace.queue("q").counts()
        assert (counts.active, counts.deferred, counts.dead_letter) == left

    in_room(scenario, QUEUE)


def test_after_a_rollback_the_message_is_settled_again_by_its_lock_token() -> None:
    """TX-9, R-18: after a rollback the message is settled again by its lock token."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        await peer.sent(await peer.sender("q"), payload())
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        assert isinstance(await controller.discharge(txn_id, fail=True), Accepted)
        links = await peer.request_links("q/$management")
        body = {
            "disposition-status": "completed",
            "lock-tokens": Array([UUID(bytes_le=deliveries[0].tag)], 0x98),
        }
        txn_id = await controller.declare()
        assert await asked_in(peer, links, txn_id, "update-disposition", body) == (200, {}, None)
        assert room.namespace.queue("q").counts().active == 1
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert room.namespace.queue("q").counts().active == 0

    in_room(scenario, QUEUE)


def test_unknown_ids_are_refused_everywhere() -> None:
    """TX-5: on sends, dispositions, requests and discharges; the sentence is the service's."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        await peer.sent(sender, payload())
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        links = await peer.request_links("q/$management")
        unknown = "amqp:transaction:unknown-id"
        over = await controller.declare()
        assert isinstance(await controller.discharge(over), Accepted)
        for txn_id in (b"", b"x" * 16, over):
            refusal = await controller.discharge(txn_id)
            assert condition_of(refusal) == unknown
            assert isinstance(refusal, Rejected)
            assert refusal.error is not None
            assert (refusal.error.description or "").startswith(
                "Transaction hasn't been declared yet, or has already been discharged."
            )
            assert condition_of(await sent_in(peer, sender, txn_id, payload())) == unknown
            body: dict[str, object] = {"sequence-numbers": [1]}
            answer = await asked_in(peer, links, txn_id, "cancel-scheduled-message", body)
            assert (answer[0], answer[2]) == (400, unknown)
        [answer_to_outcome] = await settled_in(peer, receiver, over, deliveries, Accepted())
        assert condition_of(answer_to_outcome) == unknown
        assert room.namespace.queue("q").counts().active == 1

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("how", ["detach", "end", "lose"])
def test_open_transactions_are_rolled_back_when_the_control_link_goes(how: str) -> None:
    """TX-5: by itself, with its session, or with the connection."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        await peer.sent(sender, payload(b"job"))
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await sent_in(peer, sender, txn_id, payload(b"result"))
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        if how == "detach":
            controller.link.detach()
        elif how == "end":
            peer.session.end()
        else:
            peer.transport.lose()
        await room.turns()
        await room.pass_time(61)  # the lock's own end
        assert await bodies_in(await room.client(), "q", 1) == [b"job"]

    in_room(scenario, QUEUE)


def test_a_transaction_belongs_to_the_control_link_that_declared_it() -> None:
    """TX-5: a transaction belongs to the control link that declared it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        first = await Controller.attached(peer)
        second = await Controller.attached(peer)
        txn_id = await first.declare()
        assert condition_of(await second.discharge(txn_id)) == "amqp:transaction:unknown-id"
        stranger = await Controller.attached(await room.client())
        assert condition_of(await stranger.discharge(txn_id)) == "amqp:transaction:unknown-id"
        assert isinstance(await first.discharge(txn_id), Accepted)

    in_room(scenario, QUEUE)


def test_a_transaction_that_took_too_long_says_so_at_its_discharge() -> None:
    """TX-6: a transaction that took too long says so at its discharge."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        txn_id = await controller.declare()
        await sent_in(peer, sender, txn_id, payload())
        await room.pass_time(121)
        timeout = "amqp:transaction:timeout"
        assert condition_of(await sent_in(peer, sender, txn_id, payload())) == timeout
        assert condition_of(await controller.discharge(txn_id)) == timeout
        assert await bodies_in(peer, "q", 0) == []

    in_room(scenario, QUEUE)


def test_a_lost_lock_makes_the_discharge_rejected() -> None:
    """TX-10: a lost lock makes the discharge rejected."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        await peer.sent(sender, payload(b"job"))
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        await sent_in(peer, sender, txn_id, payload(b"result"))
        await room.pass_time(61)
        assert condition_of(await controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert await bodies_in(peer, "q", 1) == [b"job"]

    in_room(scenario, QUEUE)


def test_more_than_a_hundred_messages_are_refused_by_name() -> None:
    """TX-7, L-13, ERR-29: more than a hundred messages are refused by name."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        txn_id = await controller.declare()
        batch = encode_batch([payload(b"m") for _ in range(101)])
        refusal = await sent_in(peer, sender, txn_id, batch, message_format=BATCH_FORMAT)
        assert condition_of(refusal) == "amqp:not-allowed"
        assert isinstance(refusal, Rejected)
        assert refusal.error is not None
        assert (refusal.error.description or "").startswith(
            "Cannot send more than 100 messages in a single transaction"
        )
        assert condition_of(await controller.discharge(txn_id)) == "amqp:transaction:rollback"

    in_room(scenario, QUEUE)


def test_settling_on_a_second_entity_is_refused() -> None:
    """TX-2, TX-22: the sentence is the service's."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        await peer.sent(await peer.sender("other"), payload(b"job"))
        sender = await peer.sender("q")
        receiver = await peer.receiver("other")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await sent_in(peer, sender, txn_id, payload(b"m"))
        [refusal] = await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        assert condition_of(refusal) == "amqp:not-allowed"
        assert isinstance(refusal, Rejected)
        assert refusal.error is not None
        assert (refusal.error.description or "").startswith(
            "Local transactions cannot span multiple top-level entities such as queue or topic."
        )
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert await bodies_in(await room.client(), "q", 1) == [b"m"]

    in_room(scenario, QUEUE, OTHER)


def test_a_topic_and_its_subscriptions_are_one_top_level_entity() -> None:
    """TX-2, TX-8, T-9: settling in a subscription and publishing are one commit."""

    async def scenario(room: Room) -> None:
        subscriptions = [SubscriptionDescription(f"t/Subscriptions/{name}") for name in "ab"]
        await room.namespace.create([NewEntity(TopicDescription("t")), *map(NewEntity, subscriptions)])
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("t")
        await peer.sent(sender, payload(b"first"))
        receiver = await peer.receiver("t/Subscriptions/a")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        await sent_in(peer, sender, txn_id, payload(b"second"))
        assert room.namespace.queue("t/Subscriptions/b").counts().active == 1
        assert isinstance(await controller.discharge(txn_id), Accepted)
        receiver.detach()
        assert await bodies_in(peer, "t/Subscriptions/a", 1) == [b"second"]
        assert await bodies_in(peer, "t/Subscriptions/b", 2) == [b"first", b"second"]

    in_room(scenario)


def test_scheduling_and_cancelling_are_part_of_a_transaction() -> None:
    """S-37, TX-1: by requests whose transfer names it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        links = await peer.request_links("q/$management")
        at = Timestamp(room.clock.wall_ms() + 60_000)
        message = encode_message(
            AmqpMessage(
                [b"later"],
                message_annotations={Symbol("x-opt-scheduled-enqueue-time"): at},
            )
        )
        schedule: dict[str, object] = {"messages": [{"message-id": "1", "message": message}]}
        txn_id = await controller.declare()
        status, told, _ = await asked_in(peer, links, txn_id, "schedule-message", schedule)
        assert status == 200
        numbers = told["sequence-numbers"].items
        assert room.namespace.queue("q").counts().scheduled == 0
        assert isinstance(await controller.discharge(txn_id), Accepted)
        assert room.namespace.queue("q").counts().scheduled == 1
        cancel: dict[str, object] = {"sequence-numbers": Array(numbers, 0x81)}
        for fail, left in ((True, 1), (False, 0)):
            txn_id = await controller.declare()
            assert await asked_in(peer, links, txn_id, "cancel-scheduled-message", cancel) == (200, {}, None)
            assert room.namespace.queue("q").counts().scheduled == 1
            assert isinstance(await controller.discharge(txn_id, fail=fail), Accepted)
            assert room.namespace.queue("q").counts().scheduled == left

    in_room(scenario, QUEUE)


def test_what_could_not_be_undone_is_no_part_of_a_transaction() -> None:
    """TX-1: receiving and deleting by request; reading takes place beside it."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        await peer.sent(await peer.sender("q"), payload())
        links = await peer.request_links("q/$management")
        txn_id = await controller.declare()
        delete: dict[str, object] = {
            "message-count": 1,
            "enqueued-time-utc": Timestamp(room.clock.wall_ms() + 1),
        }
        status, _, condition = await asked_in(peer, links, txn_id, "batch-delete-messages", delete)
        assert (status, condition) == (400, "amqp:not-allowed")
        peek: dict[str, object] = {"from-sequence-number": 0, "message-count": 1}
        assert (await asked_in(peer, links, txn_id, "peek-message", peek))[0] == 200
        assert room.namespace.queue("q").counts().active == 1

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("how", ["too large", "damaged", "batch", "scheduled"])
def test_a_refused_send_dooms_the_transaction(how: str) -> None:
    """TX-8: an SDK that does not look at the outcome commits the rest; half a transaction was stored."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        txn_id = await controller.declare()
        assert isinstance(await sent_in(peer, sender, txn_id, payload(b"before")), TransactionalState)
        if how == "scheduled":
            links = await peer.request_links("q/$management")
            body: dict[str, object] = {"messages": [{"message-id": "m", "message": b"\x00\x53"}]}
            status, _, _ = await asked_in(peer, links, txn_id, "schedule-message", body)
            assert status >= 400
        else:
            refused = {
                "too large": payload(b"x" * 300_000),
                "damaged": b"\x00\x53",
                "batch": encode_batch([]),
            }
            message_format = BATCH_FORMAT if how == "batch" else 0
            outcome = await sent_in(peer, sender, txn_id, refused[how], message_format=message_format)
            assert isinstance(outcome, Rejected)
        assert (
            condition_of(await sent_in(peer, sender, txn_id, payload(b"after")))
            == "amqp:transaction:rollback"
        )
        assert condition_of(await controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert await bodies_in(peer, "q", 0) == []

    in_room(scenario, QUEUE)


def test_a_presettled_settlement_elsewhere_dooms_the_transaction() -> None:
    """TX-2, TX-8: the client could not be told that it takes no part."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender, elsewhere = await peer.sender("q"), await peer.sender("other")
        controller = await Controller.attached(peer)
        await peer.sent(elsewhere, payload(b"job"))
        receiver = await peer.receiver("other")
        receiver.grant_credit(1)
        [delivery] = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await sent_in(peer, sender, txn_id, payload(b"m"))
        receiver.settle(
            delivery.delivery_id, delivery.delivery_id, TransactionalState(txn_id, Accepted()), settled=True
        )
        await room.turns()
        assert condition_of(await controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert room.namespace.queue("q").counts().active == 0

    in_room(scenario, QUEUE, OTHER)


def test_a_presettled_part_that_is_refused_dooms_the_transaction() -> None:
    """TX-8: the client could not be told."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        txn_id = await controller.declare()
        await sent_in(peer, sender, txn_id, payload(b"m"))
        sender.send(uuid4().bytes, payload(b"x" * 300_000), settled=True, state=TransactionalState(txn_id))
        await room.turns()
        assert condition_of(await controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert await bodies_in(peer, "q", 0) == []

    in_room(scenario, QUEUE)


def test_presettled_parts_are_committed_like_others() -> None:
    """TX-8, S-3: presettled parts are committed like others."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        await peer.sent(sender, payload(b"job"))
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        [delivery] = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        sender.send(uuid4().bytes, payload(b"m"), settled=True, state=TransactionalState(txn_id))
        receiver.settle(
            delivery.delivery_id, delivery.delivery_id, TransactionalState(txn_id, Accepted()), settled=True
        )
        await room.turns()
        assert room.namespace.queue("q").counts().active == 1
        assert isinstance(await controller.discharge(txn_id), Accepted)
        receiver.detach()
        assert await bodies_in(peer, "q", 1) == [b"m"]

    in_room(scenario, QUEUE)


@pytest.mark.parametrize(
    ("request_value", "condition"),
    [
        ("hello", "amqp:not-implemented"),
        (None, "amqp:not-implemented"),
        (Declare(b"global"), "amqp:not-implemented"),
        (Described(ULong(0x32), []), "amqp:decode-error"),
        (Described(ULong(0x32), [7, True]), "amqp:decode-error"),
        (Described(ULong(0x31), {}), "amqp:decode-error"),
        ("far too large", "link"),
    ],
)
def test_what_is_neither_declare_nor_discharge_is_refused(request_value: object, condition: str) -> None:
    """TX-5, S-2: and the link stays, unless it is far too large."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        if condition == "link":
            peer.send(controller.link, encode_composite(Discharge(b"x" * 10_000)))
            await room.until(lambda: peer.seen(LinkDetached, controller.link))
            return
        assert condition_of(await controller.ask(request_value)) == condition
        assert await controller.declare()

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("fields", ["45", "c00100", "c0020140", "d00000000400000000", "d0000000050000000140"])
def test_a_declare_is_understood_in_every_form(fields: str) -> None:
    """TX-5, AMQP 4.5.5."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        for code in ("5331", "800000000000000031", "a311" + b"amqp:declare:list".hex()):
            raw = bytes.fromhex("00537700" + code + fields)
            [outcome] = await peer.sent(controller.link, raw)
            assert isinstance(outcome, Declared)

    in_room(scenario, QUEUE)


@pytest.mark.parametrize(
    ("head", "flag", "commits"),
    [
        ("c01402", "42", True),
        ("c01402", "41", False),
        ("c01402", "40", True),
        ("c01502", "5600", True),
        ("c01502", "5601", False),
        ("c01301", "", True),
        ("d00000001700000002", "42", True),
        ("d00000001700000002", "41", False),
    ],
)
def test_a_discharge_is_understood_in_every_form(head: str, flag: str, commits: bool) -> None:
    """TX-5, AMQP 4.5.6: one byte more or less is no discharge."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        txn_id = await controller.declare()
        await sent_in(peer, sender, txn_id, payload(b"m"))
        raw = bytes.fromhex("005377005332" + head + "a010") + txn_id + bytes.fromhex(flag)
        for broken in (raw[:-1], raw + b"\x42"):
            [refusal] = await peer.sent(controller.link, broken)
            assert condition_of(refusal) == "amqp:decode-error"
        [outcome] = await peer.sent(controller.link, raw)
        assert isinstance(outcome, Accepted)
        assert room.namespace.queue("q").counts().active == (1 if commits else 0)

    in_room(scenario, QUEUE)


def test_basic_namespaces_refuse_the_coordinator() -> None:
    """TX-21: Basic namespaces refuse the coordinator."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        refusal = peer.refusal(controller.link)
        assert refusal is not None
        assert refusal[0] == "amqp:not-allowed"

    in_room(scenario, limits=Limits(sku="Basic"))


def test_a_transaction_survives_on_a_real_store(tmp_path: Path) -> None:
    """TX-8: with SQLite below."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        await peer.sent(sender, payload(b"job"))
        receiver = await peer.receiver("q")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        for body in (b"1", b"2"):
            await sent_in(peer, sender, txn_id, payload(body))
        assert isinstance(await controller.discharge(txn_id), Accepted)
        receiver.grant_credit(2)
        assert [body_of(delivery) for delivery in await peer.received(receiver, 3)] == [b"job", b"1", b"2"]

    in_room(scenario, QUEUE, sqlite_folder=tmp_path)


def test_settling_in_a_transaction_makes_room_on_the_link() -> None:
    """TX-5, R-16: a link that was full of unsettled messages gets the next ones."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        controller = await Controller.attached(peer)
        sender = await peer.sender("q")
        batch = encode_batch([payload(b"m") for _ in range(525)])
        for _ in range(4):
            await peer.sent(sender, batch, message_format=BATCH_FORMAT)
        receiver = await peer.receiver("q")
        receiver.grant_credit(2_100)
        deliveries = await peer.received(receiver, 2_048)
        await room.turns()
        assert len(peer.deliveries(receiver)) == 2_048
        txn_id = await controller.declare()
        await settled_in(peer, receiver, txn_id, deliveries[:30], Accepted())
        await peer.received(receiver, 2_078)
        assert isinstance(await controller.discharge(txn_id), Accepted)

    in_room(scenario, QUEUE)
