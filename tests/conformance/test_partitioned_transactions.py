"""SB-103x: transactions step by step with python-qpid-proton, on plain and on partitioned entities; what came of them
is looked at with the SDK."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusSubQueue

from busway.broker.entity.fragment_choice import fragment_of_key
from tests.conformance.node_program import needs_node, run_node
from tests.conformance.proton_peer import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    TRANSACTIONAL,
    ProtonPeer,
    needs_proton,
)
from tests.conformance.topic_traffic import Topic
from tests.conformance.traffic import bodies, peek_count, receive_all, send
from tests.harness.running_server import RunningServer

with suppress(ImportError):
    from proton import Message, symbol

pytestmark = [pytest.mark.sdk, needs_proton]

NewQueue = Callable[..., str]
UNKNOWN = "amqp:transaction:unknown-id"
ROLLED_BACK = "amqp:transaction:rollback"
NOT_ALLOWED = "amqp:not-allowed"
KEYS = {fragment_of_key(f"key-{n}", 16): f"key-{n}" for n in range(400)}
KEY, STRANGER = KEYS[3], KEYS[4]


def text(body: str, *, key: str | None = None, via_key: str | None = None) -> Any:
    """A message with an AMQP data section, as the SDK writes them."""
    annotations = {}
    if key is not None:
        annotations[symbol("x-opt-partition-key")] = key
    if via_key is not None:
        annotations[symbol("x-opt-via-partition-key")] = via_key
    return Message(body=body.encode(), inferred=True, annotations=annotations or None)


def peeked(client: ServiceBusClient, queue: str) -> list[str]:
    with client.get_queue_receiver(queue) as receiver:
        return bodies(receiver.peek_messages(100, sequence_number=1))


def test_sb_1030_an_unknown_transaction_is_refused_everywhere(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-5: on transfers, dispositions, requests and discharges; also one that is over. Nothing happens."""
    queue = new_queue()
    send(client, queue, "job")
    with ProtonPeer(server) as peer:
        sender, receiver = peer.sender(queue), peer.receiver(queue)
        [(_, delivery)] = peer.received(receiver, 1)
        over = peer.declare()
        assert peer.discharge(over).state == ACCEPTED
        for txn_id in (over, b"sixteen bytes...", b"", b"x" * 200):
            sent = peer.send(sender, text("never"), txn_id)
            assert (sent.state, sent.condition) == (REJECTED, UNKNOWN)
            assert "declared yet, or has already been discharged" in sent.description
            assert peer.discharge(txn_id).condition == UNKNOWN
            assert peer.ask(queue, "schedule-message", {"messages": []}, txn_id).condition == UNKNOWN
        assert peer.settle(delivery, ACCEPTED, over).condition == UNKNOWN
    assert peeked(client, queue) == ["job"]


def test_sb_1031_a_transaction_goes_with_its_control_link(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-5, TX-9: what it sent never was; what it settled is still locked by the same receiver."""
    queue = new_queue()
    send(client, queue, "job")
    with ProtonPeer(server) as peer:
        sender, receiver = peer.sender(queue), peer.receiver(queue)
        [(_, delivery)] = peer.received(receiver, 1)
        control = peer.control()
        txn_id = peer.declare(control)
        assert peer.send(sender, text("never"), txn_id).is_part
        assert peer.settle(delivery, ACCEPTED, txn_id).is_part
        control.close()
        assert peer.discharge(txn_id).condition == UNKNOWN
        assert peer.send(sender, text("late"), txn_id).condition == UNKNOWN
    assert peeked(client, queue) == ["job"]


def test_sb_1032_two_transactions_side_by_side(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-5, TX-8: on one control link; one is committed, the other rolled back, in either order."""
    queue = new_queue()
    with ProtonPeer(server) as peer:
        sender = peer.sender(queue)
        kept, dropped = peer.declare(), peer.declare()
        assert kept != dropped
        for number in range(3):
            assert peer.send(sender, text(f"kept {number}"), kept).is_part
            assert peer.send(sender, text(f"dropped {number}"), dropped).is_part
        assert peeked(client, queue) == []
        assert peer.discharge(dropped, fail=True).state == ACCEPTED
        assert peer.discharge(kept).state == ACCEPTED
    assert bodies(receive_all(client, queue, 3)) == [f"kept {number}" for number in range(3)]


def test_sb_1033_every_outcome_takes_effect_with_the_commit(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-1, TX-8, R-10…R-15: told in the transaction's terms, done when it is discharged."""
    left_and_dead = {ACCEPTED: (0, 0), REJECTED: (0, 1), RELEASED: (1, 0), MODIFIED: (1, 0)}
    for outcome, expected in left_and_dead.items():
        queue = new_queue()
        send(client, queue, "job")
        with ProtonPeer(server) as peer:
            [(_, delivery)] = peer.received(peer.receiver(queue), 1)
            txn_id = peer.declare()
            assert peer.settle(delivery, outcome, txn_id).state == TRANSACTIONAL
            assert peek_count(client, queue) == 1
            assert peer.discharge(txn_id).state == ACCEPTED
            left = peek_count(client, queue)
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            assert (left, len(dead.peek_messages(10))) == expected


def test_sb_1034_sending_via_the_queue_of_the_job(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-3, TX-8: link property `com.microsoft:transfer-destination-address`; rolled back once, then committed."""
    via, final = new_queue(), new_queue()
    send(client, via, "job")
    with ProtonPeer(server) as peer:
        receiver = peer.receiver(via)
        [(_, delivery)] = peer.received(receiver, 1)
        sender = peer.sender_via(via, final)
        given_up = peer.declare()
        assert peer.send(sender, text("never"), given_up).is_part
        assert peer.discharge(given_up, fail=True).state == ACCEPTED
        txn_id = peer.declare()
        assert peer.send(sender, text("result"), txn_id).is_part
        assert peer.settle(delivery, ACCEPTED, txn_id).is_part
        assert peeked(client, final) == []
        assert peer.discharge(txn_id).state == ACCEPTED
    assert bodies(receive_all(client, final, 1)) == ["result"]
    assert (peeked(client, via), peeked(client, final)) == ([], [])


def test_sb_1035_sending_via_a_topic_to_a_partitioned_queue(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue, new_topic: Callable[..., Topic]
) -> None:
    """TX-3, TX-18, F-9: the job comes from a subscription; the PartitionKey counts at the destination."""
    topic, final = new_topic(), new_queue(enable_partitioning=True)
    topic.subscribe("s")
    topic.send("job")
    with ProtonPeer(server) as peer:
        receiver = peer.receiver(topic.path_of("s"))
        [(_, delivery)] = peer.received(receiver, 1)
        sender = peer.sender_via(topic.name, final)
        txn_id = peer.declare()
        assert peer.settle(delivery, ACCEPTED, txn_id).is_part
        assert peer.send(sender, text("result", key=KEY), txn_id).is_part
        assert peer.discharge(txn_id).state == ACCEPTED
    (result,) = receive_all(client, final, 1)
    assert (str(result), (result.sequence_number or 0) >> 48) == ("result", fragment_of_key(KEY, 16))
    assert topic.peek("s") == []


def test_sb_1036_a_session_of_links_sends_to_other_entities(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-22, TX-2: links beside the control link may; a link on another session may not, and dooms it."""
    first, second = new_queue(), new_queue()
    with ProtonPeer(server) as peer:
        to_first, to_second = peer.sender(first), peer.sender(second)
        elsewhere = peer.sender_on_another_session(second)
        txn_id = peer.declare()
        assert peer.send(to_first, text("here"), txn_id).is_part
        assert peer.send(to_second, text("there"), txn_id).is_part
        refused = peer.send(elsewhere, text("refused"), txn_id)
        assert (refused.state, refused.condition) == (REJECTED, NOT_ALLOWED)
        assert refused.description.startswith(
            "Local transactions cannot span multiple top-level entities such as queue or topic."
        )
        told = peer.discharge(txn_id)
        assert (told.state, told.condition) == (REJECTED, ROLLED_BACK)
        again = peer.declare()
        assert peer.send(to_first, text("here"), again).is_part
        assert peer.send(to_second, text("there"), again).is_part
        assert peer.discharge(again).state == ACCEPTED
    assert bodies(receive_all(client, first, 1)) == ["here"]
    assert bodies(receive_all(client, second, 1)) == ["there"]
    assert (peeked(client, first), peeked(client, second)) == ([], [])


def test_sb_1037_one_key_is_committed_into_one_fragment(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-12, TX-13, TX-17, TX-19, P-3: a job of a fragment and its results there; others are refused with their
    whole transaction."""
    queue = new_queue(enable_partitioning=True)
    send(client, queue, "job", partition_key=KEY)
    with ProtonPeer(server) as peer:
        sender, receiver = peer.sender(queue), peer.receiver(queue)
        [(_, delivery)] = peer.received(receiver, 1)
        for refused in (text("keyless"), text("stranger", key=STRANGER)):
            doomed = peer.declare()
            assert peer.send(sender, text("never", key=KEY), doomed).is_part
            assert peer.send(sender, refused, doomed).condition == NOT_ALLOWED
            assert peer.discharge(doomed).condition == ROLLED_BACK
        txn_id = peer.declare()
        assert peer.settle(delivery, ACCEPTED, txn_id).is_part
        for number in range(3):
            assert peer.send(sender, text(str(number), key=KEY), txn_id).is_part
        assert peer.discharge(txn_id).state == ACCEPTED
    found = receive_all(client, queue, 3)
    assert bodies(found) == ["0", "1", "2"]
    assert {(message.sequence_number or 0) >> 48 for message in found} == {fragment_of_key(KEY, 16)}


def test_sb_1038_via_a_partitioned_queue_the_key_says_the_fragment(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-18: the ViaPartitionKey must fit the job's fragment; without a job one is needed."""
    via, final = new_queue(enable_partitioning=True), new_queue()
    send(client, via, "job", partition_key=KEY)
    with ProtonPeer(server) as peer:
        sender, receiver = peer.sender_via(via, final), peer.receiver(via)
        [(_, delivery)] = peer.received(receiver, 1)
        empty = peer.declare()
        assert peer.send(sender, text("keyless"), empty).condition == NOT_ALLOWED
        assert peer.discharge(empty).condition == ROLLED_BACK
        doomed = peer.declare()
        assert peer.send(sender, text("by key", via_key=KEY), doomed).is_part
        assert peer.send(sender, text("stranger", via_key=STRANGER), doomed).condition == NOT_ALLOWED
        assert peer.discharge(doomed).condition == ROLLED_BACK
        txn_id = peer.declare()
        assert peer.settle(delivery, ACCEPTED, txn_id).is_part
        assert peer.send(sender, text("by key", via_key=KEY), txn_id).is_part
        assert peer.send(sender, text("by the job"), txn_id).is_part
        assert peer.discharge(txn_id).state == ACCEPTED
    assert bodies(receive_all(client, final, 2)) == ["by key", "by the job"]
    assert (peeked(client, via), peeked(client, final)) == ([], [])


def test_sb_1039_a_lock_that_ends_makes_the_commit_fail(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-10, TX-9: rolled back as a whole, and the discharge says so; the job has come again."""
    queue = new_queue(lock_duration=timedelta(seconds=5))
    send(client, queue, "job")
    with ProtonPeer(server) as peer:
        sender, receiver = peer.sender(queue), peer.receiver(queue)
        [(_, delivery)] = peer.received(receiver, 1)
        txn_id = peer.declare()
        assert peer.settle(delivery, ACCEPTED, txn_id).is_part
        assert peer.send(sender, text("never"), txn_id).is_part
        [(again, second)] = peer.received(receiver, 1)  # waits for the end of the lock
        assert (bytes(again.body), again.delivery_count) == (b"job", 1)
        told = peer.discharge(txn_id)
        assert (told.state, told.condition) == (REJECTED, ROLLED_BACK)
        assert peer.settle(second, ACCEPTED).state == ACCEPTED
    assert peeked(client, queue) == []


def test_sb_1041_a_session_that_begins_with_a_control_link_receives_from_one_entity(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-4: a receiver on a second queue is refused though no transaction is open; sending there is not."""
    first, second = new_queue(), new_queue()
    with ProtonPeer(server) as peer:
        peer.declare()
        peer.receiver(first)
        condition, sentence = peer.refusal(lambda: peer.receiver(second))
        assert NOT_ALLOWED in condition
        assert (
            "Local transactions cannot span multiple top-level entities such as queue or topic." in sentence
        )
        assert peer.send(peer.sender(second), text("m")).state == ACCEPTED
    assert bodies(receive_all(client, second, 1)) == ["m"]


@needs_node
def test_sb_1040_rhea_settles_in_transactions(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """TX-1, TX-5, TX-9: with states made by hand; one job is completed, the other one is still there."""
    queue = new_queue(enable_partitioning=True)
    send(client, queue, "first", "second", partition_key=KEY)
    assert run_node(server, "transactions.mjs", "settlements", queue=queue) == {
        "declared": 0x33,
        "idBytes": 16,
        "part": TRANSACTIONAL,
        "committed": ACCEPTED,
        "rolledBack": ACCEPTED,
        "unknown": UNKNOWN,
        "again": UNKNOWN,
    }
    assert peeked(client, queue) == ["second"]
