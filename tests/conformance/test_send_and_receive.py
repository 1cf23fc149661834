"""SB-1xx: sending and receiving with the unmodified Python SDK."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    TransportType,
)
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)
from azure.servicebus.exceptions import MessageSizeExceededError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.traffic import peek_count, receive_all, send_to
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk


def test_sb_101_a_message_comes_back_as_it_was_sent(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-1, R-2, R-10, M-5, M-6, M-7, M-8, M-9, M-10, M-28: what was set comes back; completing removes it."""
    queue = new_queue()
    sent = ServiceBusMessage(
        b"the body",
        message_id="id-1",
        subject="label",
        correlation_id="correlation",
        content_type="text/plain",
        reply_to="somewhere",
        to="someone",
        reply_to_session_id="reply-session",
        application_properties={"color": "red", "count": 7, "ratio": 0.5, "yes": True, "raw": b"\x00\x01"},
    )
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(sent)
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages()
        assert b"".join(message.body) == b"the body"
        assert message.message_id == "id-1"
        assert message.subject == "label"
        assert message.correlation_id == "correlation"
        assert message.content_type == "text/plain"
        assert message.reply_to == "somewhere"
        assert message.to == "someone"
        assert message.reply_to_session_id == "reply-session"
        assert message.application_properties == {
            b"color": b"red",
            b"count": 7,
            b"ratio": 0.5,
            b"yes": True,
            b"raw": b"\x00\x01",
        }
        assert message.sequence_number == 1
        assert message.delivery_count == 0
        assert message.enqueued_time_utc is not None
        receiver.complete_message(message)
        assert receiver.receive_messages(max_wait_time=1) == []


def test_sb_102_receive_and_delete_consumes_at_once(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-1: in receive-and-delete the message is gone when it has been received."""
    queue = new_queue()
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode, max_wait_time=2) as receiver:
        assert [str(message) for message in receiver.receive_messages(max_message_count=3)] == ["0", "1", "2"]
        assert receiver.peek_messages() == []


def test_sb_103_a_batch_is_stored_whole_and_in_order(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-4, S-20, R-3: the messages of a batch arrive in the order they were added, numbered without gaps."""
    queue = new_queue()
    with client.get_queue_sender(queue) as sender:
        batch = sender.create_message_batch()
        for number in range(100):
            batch.add_message(ServiceBusMessage(f"{number}"))
        sender.send_messages(batch)
    received = receive_all(client, queue, 100)
    assert [str(message) for message in received] == [str(number) for number in range(100)]
    assert [message.sequence_number for message in received] == list(range(1, 101))


def test_sb_104_a_message_of_the_maximal_size_passes_and_a_larger_one_does_not(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """L-5, S-8, S-22, ERR-10: 250 KiB pass, 256 KiB of body are refused, and the sender can go on."""
    queue = new_queue()
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(b"x" * 250 * 1024))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 256 * 1024))
        sender.send_messages(ServiceBusMessage(b"small"))
    assert [len(b"".join(message.body)) for message in receive_all(client, queue, 2)] == [250 * 1024, 5]


def test_sb_105_value_and_sequence_bodies_and_annotations_come_back(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """M-28, M-29: body kinds, annotations and footer of an annotated message are kept as sent."""
    queue = new_queue()
    value = AmqpAnnotatedMessage(value_body={"key": 5, "list": [1, "two"]})
    value.annotations = {"x-mine": "kept"}
    value.delivery_annotations = {"x-delivery": 7}
    value.footer = {"x-foot": b"note"}
    sequence = AmqpAnnotatedMessage(sequence_body=[[1, 2], ["three"]])
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(value)
        sender.send_messages(sequence)
    first, second = receive_all(client, queue, 2)
    assert first.body_type is AmqpMessageBodyType.VALUE
    assert first.body == {b"key": 5, b"list": [1, b"two"]}
    assert first.raw_amqp_message.annotations[b"x-mine"] == b"kept"
    assert first.raw_amqp_message.delivery_annotations[b"x-delivery"] == 7
    assert first.raw_amqp_message.footer == {b"x-foot": b"note"}
    assert second.body_type is AmqpMessageBodyType.SEQUENCE
    assert [list(part) for part in second.body] == [[1, 2], [b"three"]]


def test_sb_106_header_and_properties_of_an_annotated_message_are_kept(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """M-17, M-26, M-27, M-27a: user-id, content-encoding and priority come back; only the count is the broker's."""
    queue = new_queue()
    message = AmqpAnnotatedMessage(data_body=b"x")
    message.header = AmqpMessageHeader(priority=7, durable=True, delivery_count=3)
    message.properties = AmqpMessageProperties(
        user_id=b"me", content_encoding="gzip", group_sequence=5, message_id="m"
    )
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(message)
    (received,) = receive_all(client, queue, 1)
    raw = received.raw_amqp_message
    assert (raw.header.priority, raw.header.durable, raw.header.delivery_count) == (7, True, 0)
    assert raw.header.time_to_live is None
    assert (raw.properties.user_id, raw.properties.content_encoding) == (b"me", b"gzip")
    assert raw.properties.group_sequence == 5


def test_sb_107_an_ordinary_delivery_carries_exactly_the_documented_annotations(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """M-27a, M-27b, M-14, M-16, M-18, M-19: three annotations under peek-lock, two in receive-and-delete."""
    queue = new_queue()
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (locked,) = receiver.receive_messages(max_message_count=1)
        raw = locked.raw_amqp_message
        assert set(raw.annotations) == {
            b"x-opt-enqueued-time",
            b"x-opt-sequence-number",
            b"x-opt-locked-until",
        }
        assert set(raw.delivery_annotations or {}) == {b"x-opt-lock-token"}
        assert raw.delivery_annotations[b"x-opt-lock-token"] == locked.lock_token
        assert locked.locked_until_utc is not None
        receiver.complete_message(locked)
    with client.get_queue_receiver(
        queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=5
    ) as receiver:
        (taken,) = receiver.receive_messages(max_message_count=1)
        assert set(taken.raw_amqp_message.annotations) == {b"x-opt-enqueued-time", b"x-opt-sequence-number"}
        assert not taken.raw_amqp_message.delivery_annotations


def test_sb_108_prefetch_delivers_ahead_of_the_call(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-70, R-71: credit is honoured whatever its size, and a receive gives one to n messages."""
    queue = new_queue()
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(50)])
    with client.get_queue_receiver(queue, prefetch_count=50, max_wait_time=5) as receiver:
        seen = 0
        while seen < 50:
            for message in receiver.receive_messages(max_message_count=10):
                receiver.complete_message(message)
                seen += 1
    assert peek_count(client, queue) == 0


def test_sb_109_application_properties_keep_their_types(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """M-30, M-31: names keep their case, values their type."""
    queue = new_queue()
    identifier = uuid.uuid4()
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    sent: dict[str | bytes, object] = {
        "Name": "x",
        "name": "y",
        "id": identifier,
        "when": moment,
        "none": None,
    }
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(b"", application_properties=sent))
    (received,) = receive_all(client, queue, 1)
    properties = received.application_properties
    assert properties[b"Name"] == b"x"
    assert properties[b"name"] == b"y"
    assert properties[b"id"] == identifier
    assert properties[b"none"] is None
    assert properties[b"when"] == 1767323045000


def test_sb_110_over_websocket_the_same_program_works(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """A-11: AMQP over WebSocket on the same port, as the SDK speaks it."""
    queue = new_queue()
    plain = server.connection_string.replace(";UseDevelopmentEmulator=true", "")
    with ServiceBusClient.from_connection_string(
        plain,
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"sb://127.0.0.1:{server.port}",
        connection_verify=server.ca_file,
    ) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage(b"w" * 100_000) for _ in range(2)])
        assert len(receive_all(client, queue, 2)) == 2


def test_sb_111_over_tls_with_our_authority_the_same_program_works(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """A-11: AMQP over TLS on the same port."""
    queue = new_queue()
    plain = server.connection_string.replace(";UseDevelopmentEmulator=true", "")
    with ServiceBusClient.from_connection_string(
        plain,
        transport_type=TransportType.Amqp,
        custom_endpoint_address=f"sb://127.0.0.1:{server.port}",
        connection_verify=server.ca_file,
    ) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("secret"))
        assert [str(message) for message in receive_all(client, queue, 1)] == ["secret"]


def test_sb_112_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """S-1, M-35: accepted means stored; numbers go on where they were."""
    server = RunningServer(tmp_path).start()
    with ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file
    ) as admin:
        admin.create_queue("kept")
    send_to(server.connection_string, "kept", "before")
    server.kill()
    server.start()
    send_to(server.connection_string, "kept", "after")
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        found = [(str(message), message.sequence_number) for message in receive_all(client, "kept", 2)]
    assert found == [("before", 1), ("after", 2)]
    assert server.stop() == 0


def test_sb_113_a_message_without_an_id_has_one_when_it_comes(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """M-1: given by the server, and the same in peek and at every delivery."""
    queue = new_queue()
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(AmqpAnnotatedMessage(data_body=b"first"))
        sender.send_messages(
            [AmqpAnnotatedMessage(data_body=b"second"), ServiceBusMessage("third", message_id="own")]
        )
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        ids = [message.message_id for message in receiver.peek_messages(max_message_count=3)]
        assert [len(str(message_id)) for message_id in ids] == [32, 32, 3]
        (message,) = receiver.receive_messages()
        assert message.message_id == ids[0]
        receiver.abandon_message(message)
    found = receive_all(client, queue, 3)
    assert [message.message_id for message in found] == ids
