"""What `busway resubmit` chooses, and where it sends."""

import pytest

from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.amqp.types import Timestamp, UInt
from busway.cli.resubmission import ReceivedSubject
from busway.cli.resubmitting import chooser_of, destination_of, without_dead_letter
from busway.cli.verbs import WrongCall
from busway.client.messages import ServiceBusReceivedMessage
from busway.rules.subject import MISSING, Instant, Span


def _message(**properties: object) -> ServiceBusReceivedMessage:
    payload = encode_message(
        AmqpMessage(
            [b"x"],
            DATA,
            header=Header(ttl=UInt(1_500), delivery_count=UInt(2)),
            message_annotations={"x-opt-sequence-number": 7, "x-opt-enqueued-time": Timestamp(0)},
            properties=Properties(message_id=b"\x01\xff", subject="s"),
            application_properties=dict(properties),
        )
    )
    return ServiceBusReceivedMessage(payload)


def test_a_filter_sees_what_rules_see() -> None:
    """T-2, T-22, T-24: user properties whatever their case, system properties with their types."""
    subject = ReceivedSubject(_message(Color="red"))
    assert subject.user("color") == "red"
    assert subject.user("size") is MISSING
    assert subject.system("MessageId") == "01ff"
    assert (subject.system("Label"), subject.system("SequenceNumber"), subject.system("DeliveryCount")) == (
        "s",
        7,
        2,
    )
    assert subject.system("TimeToLive") == Span(15_000_000)
    assert subject.system("EnqueuedTimeUtc") == Instant(621_355_968_000_000_000)
    assert subject.system("To") is None


@pytest.mark.parametrize(
    ("text", "is_chosen"),
    [
        (None, True),
        ("color = 'red'", True),
        ("size > 1", False),
        ("n / 0 = 1", False),
        ("sys.DeliveryCount = 2", True),
    ],
)
def test_only_what_the_filter_says_is_true_is_chosen(text: str | None, is_chosen: bool) -> None:
    """T-33, T-60: neither what is unknown nor what fails."""
    assert chooser_of(text)(_message(color="red", n=5)) is is_chosen


def test_a_wrong_filter_points_at_its_place() -> None:
    """T-36: a wrong filter points at its place."""
    with pytest.raises(WrongCall, match=r"--filter: At character 9.*\n.*\n {8}\^"):
        chooser_of("color = ")


def test_a_subscriptions_messages_go_to_its_topic() -> None:
    """E-8: by its address, whatever its case."""
    assert destination_of("orders") == "orders"
    assert destination_of("a/b/subscriptions/s") == "a/b"
    assert without_dead_letter("orders/$deadletterqueue") == "orders"
    assert without_dead_letter("orders") == "orders"
