"""Which requests are about messages, and which about entities with awkward names."""

import pytest

from busway.gateway.http.messages.message_address import MessageAddress, MessageRoute, message_address

_TOKEN = "0f0e0d0c-0b0a-4908-8706-050403020100"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/orders/messages", MessageAddress(MessageRoute.SEND, "orders")),
        (
            "DELETE",
            "/t/subscriptions/s/messages/head",
            MessageAddress(MessageRoute.RECEIVE, "t/subscriptions/s"),
        ),
        ("PUT", f"/q/messages/5/{_TOKEN}", MessageAddress(MessageRoute.LOCK, "q", "5", _TOKEN)),
        (
            "DELETE",
            f"/q/messages/subscriptions/{_TOKEN}",
            MessageAddress(MessageRoute.LOCK, "q", "subscriptions", _TOKEN),
        ),
        ("GET", "/orders/messages", None),
        ("PUT", "/a/messages", None),
    ],
)
def test_the_parts_of_the_message_api(method: str, path: str, expected: MessageAddress | None) -> None:
    """S-5, R-23: what is not about messages is management's."""
    assert message_address(method, path.encode()) == expected


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_topic_whose_name_ends_in_messages_has_subscriptions(method: str) -> None:
    """E-5, E-8: no token of a lock can stand where a subscription's name does."""
    assert message_address(method, b"/a/messages/Subscriptions/mine") is None
