"""What is in a publication: events, envelopes and keys."""

import pytest

from busway.amqp.decode import DecodeError
from busway.amqp.sections import DATA, VALUE, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Symbol
from busway.gateway.amqp.links.event_send_link import check_key, events_of_batch, shared_key
from busway.message.event_record import Event, event_of
from busway.model.errors import BadArgument, InvalidOperation
from busway.streams.event_hub import put_publisher
from tests.harness.event_records import record_of

KEY = Symbol("x-opt-partition-key")


def event(body: bytes, key: str | None = None) -> bytes:
    annotations = None if key is None else {KEY: key}
    return encode_message(AmqpMessage([body], DATA, message_annotations=annotations))


def envelope(*inner: bytes, key: str | None = None) -> bytes:
    annotations = None if key is None else {KEY: key}
    return encode_message(AmqpMessage(list(inner), DATA, message_annotations=annotations))


def annotation(given: Event) -> object:
    """The key as a reader will see it."""
    return (decode_message(record_of(given, 0, 0)).message_annotations or {}).get(KEY)


def test_an_envelope_is_split_into_its_events() -> None:
    """H-17, S-26: the envelope itself is nothing."""
    events = events_of_batch(envelope(event(b"a"), event(b"b")))
    assert [decode_message(one.bare).body for one in events] == [[b"a"], [b"b"]]
    assert [one.partition_key for one in events] == [None, None]


def test_the_key_of_an_envelope_is_the_key_of_those_without_one() -> None:
    """H-10: and readers see it."""
    events = events_of_batch(envelope(event(b"a"), event(b"b", "k"), key="k"))
    assert [one.partition_key for one in events] == ["k", "k"]
    assert [annotation(one) for one in events] == ["k", "k"]


def test_an_event_keeps_its_own_key() -> None:
    """H-10: an event keeps its own key."""
    events = events_of_batch(envelope(event(b"a", "own"), event(b"b"), key="k"))
    assert [annotation(one) for one in events] == ["own", "k"]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00\x53",
        encode_message(AmqpMessage("text", VALUE)),
        envelope(b"no message at all"),
        envelope(event(b"a"), b"\x00\x53\x75\xa0\xff"),
    ],
)
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    """H-17: one bad event spoils the batch, because a batch is all or nothing."""
    with pytest.raises(DecodeError):
        events_of_batch(payload)


def test_the_key_of_a_batch_is_the_one_its_events_share() -> None:
    """H-17: the key of a batch is the one its events share."""
    assert shared_key(events_of_batch(envelope(event(b"a"), event(b"b")))) is None
    assert shared_key(events_of_batch(envelope(event(b"a"), event(b"b", "k")))) == "k"
    assert shared_key(events_of_batch(envelope(event(b"a", ""), event(b"b")))) == ""


def test_a_batch_with_two_keys_has_no_partition() -> None:
    """H-17: one partition for the batch, one partition for each key."""
    with pytest.raises(InvalidOperation):
        shared_key(events_of_batch(envelope(event(b"a", "k"), event(b"b", "l"))))


def test_a_key_has_a_longest_length() -> None:
    """L-8: a key has a longest length."""
    check_key(None, 128)
    check_key("k" * 128, 128)
    with pytest.raises(BadArgument, match="129"):
        check_key("k" * 129, 128)


def test_a_publishers_name_is_the_key_of_its_events() -> None:
    """H-13: a publisher's name is the key of its events."""
    events = [event_of(event(b"a")), event_of(event(b"b", "device"))]
    put_publisher(events, "device")
    assert [annotation(one) for one in events] == ["device", "device"]
    seen = [decode_message(record_of(one, 0, 0)).message_annotations or {} for one in events]
    assert [each[Symbol("x-opt-publisher")] for each in seen] == ["device", "device"]


def test_a_publisher_cannot_use_another_key() -> None:
    """H-13: a publisher cannot use another key."""
    with pytest.raises(InvalidOperation):
        put_publisher([event_of(event(b"a", "other"))], "device")
