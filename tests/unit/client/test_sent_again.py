"""A received message that is sent once more."""

import pytest

from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, decode_message, encode_message, scan
from busway.amqp.types import Symbol, Timestamp, UInt
from busway.client.messages import ServiceBusReceivedMessage


def _received(body: object, kind: int) -> bytes:
    return encode_message(
        AmqpMessage(
            body,
            kind,
            header=Header(True, 4, UInt(5_000), False, UInt(3)),
            delivery_annotations={"x-opt-lock-token": b"token"},
            message_annotations={
                "x-opt-sequence-number": 7,
                "x-opt-enqueued-time": Timestamp(1),
                "x-opt-locked-until": Timestamp(2),
                "x-opt-deadletter-source": "orders",
                "x-opt-partition-key": "p",
                "x-opt-mine": 5,
            },
            properties=Properties(
                message_id="id",
                group_id="s",
                subject="x",
                content_type=Symbol("text/plain"),
                absolute_expiry_time=Timestamp(9),
                creation_time=Timestamp(8),
            ),
            application_properties={"DeadLetterReason": "r", "n": UInt(5)},
            footer={"f": 1},
        )
    )


@pytest.mark.parametrize(
    ("body", "kind"), [([b"a", b"b"], DATA), ([[1, "x"], [2]], SEQUENCE), ({"a": [1, 2.5]}, VALUE), (None, 0)]
)
def test_it_is_what_its_sender_sent(body: object, kind: int) -> None:
    """M-1, M-28, D-6: id, session, life and body as they were; nothing of what the server gave it."""
    payload = _received(body, kind)
    again = ServiceBusReceivedMessage(payload).encode_again(("DeadLetterReason",))
    found = decode_message(again)
    assert found.header == Header(True, 4, UInt(5_000))
    assert found.delivery_annotations is None
    assert found.message_annotations == {"x-opt-partition-key": "p", "x-opt-mine": 5}
    assert found.properties == Properties(
        message_id="id", group_id="s", subject="x", content_type=Symbol("text/plain")
    )
    assert found.application_properties == {"n": UInt(5)}
    assert (found.body_kind, found.footer) == (kind, {"f": 1})
    before, after = scan(payload), scan(again)
    assert again[after.body_start : after.body_end] == payload[before.body_start : before.body_end]


def test_properties_that_are_not_named_stay() -> None:
    """D-6: --keep-properties."""
    again = decode_message(ServiceBusReceivedMessage(_received(None, 0)).encode_again())
    assert again.application_properties == {"DeadLetterReason": "r", "n": UInt(5)}


def test_a_message_with_nothing_but_a_body_stays_one() -> None:
    """M-28: a message with nothing but a body stays one."""
    payload = encode_message(AmqpMessage([b"x"], DATA))
    again = decode_message(ServiceBusReceivedMessage(payload).encode_again())
    assert (again.body, again.header, again.message_annotations) == ([b"x"], None, None)
