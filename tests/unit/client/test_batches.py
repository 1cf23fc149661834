"""Cutting many messages into batches."""

from busway.amqp.sections import split_batch
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage, encode_batch
from busway.client.sender import batches


def test_batches_keep_the_order_and_the_limit() -> None:
    """S-20, S-22: every batch with its envelope stays below the link's limit."""
    payloads = [bytes([number]) * 100 for number in range(50)]
    cut = batches(payloads, 1_000)
    assert [payload for batch in cut for payload in batch] == payloads
    assert all(len(encode_batch(batch)) <= 1_000 for batch in cut)
    assert len(cut) < len(payloads)


def test_a_message_above_the_limit_stands_alone() -> None:
    """S-8: it is the server that refuses it, and only it."""
    cut = batches([b"a", b"b" * 5_000, b"c"], 1_000)
    assert cut == [[b"a"], [b"b" * 5_000], [b"c"]]


def test_a_batch_is_split_again_by_the_server() -> None:
    """S-20: one data section per message, each a whole message."""
    payloads = [ServiceBusMessage(body).encode() for body in (b"one", b"two")]
    assert split_batch(encode_batch(payloads)) == payloads


def test_a_message_comes_back_as_it_was_made() -> None:
    """M-28: properties, application properties and body survive encoding."""
    message = ServiceBusMessage(
        b"hello",
        {"colour": "red", "weight": 7},
        message_id="m",
        session_id="",
        subject="s",
        partition_key="k",
        time_to_live_ms=1 << 40,
    )
    back = ServiceBusReceivedMessage(message.encode(1_700_000_000_000))
    assert (back.body, back.message_id, back.session_id, back.subject) == (b"hello", "m", "", "s")
    assert back.application_properties == {"colour": "red", "weight": 7}
    assert back.partition_key == "k"
    assert back.scheduled_enqueue_time_ms == 1_700_000_000_000
    assert back.time_to_live_ms == (1 << 32) - 1


def test_each_sending_has_its_own_message_id() -> None:
    """M-1: the broker invents none, so the client does."""
    message = ServiceBusMessage(b"")
    ids = {ServiceBusReceivedMessage(message.encode()).message_id for _ in range(3)}
    assert len(ids) == 3
