"""Every spelling of an address that clients use."""

import pytest

from busway.amqp.performatives import Coordinator, Source, Target
from busway.gateway.amqp.links.addresses import CBS_NODE, NodeKind, node_at, path_of, text_of
from busway.model.entity_path import EntityAddress
from busway.model.errors import BadArgument


@pytest.mark.parametrize(
    "text",
    [
        "orders/eu",
        "/orders/eu",
        "amqps://host:5671/orders/eu",
        "amqp://h/orders/eu",
        "sb://h/orders%2Feu",
        "/orders/eu/",
    ],
)
def test_one_entity_has_many_spellings(text: str) -> None:
    """E-8: with scheme and host, with a leading slash, with percent-escapes."""
    node = node_at(text)
    assert node.kind is NodeKind.ENTITY
    assert node.address == EntityAddress("orders/eu")
    assert node.path == "orders/eu"


def test_sub_queues_and_management_nodes_are_found_in_any_case() -> None:
    """E-8: keywords are case-insensitive."""
    dead = node_at("amqps://h/Orders/$deadletterqueue")
    assert (dead.address.path, dead.address.dead_letter, dead.path) == (
        "Orders",
        True,
        "Orders/$DeadLetterQueue",
    )
    transfer = node_at("orders/$Transfer/$DeadLetterQueue")
    assert transfer.address.transfer_dead_letter
    assert transfer.path == "orders/$Transfer/$DeadLetterQueue"
    managed = node_at("orders/$DeadLetterQueue/$MANAGEMENT")
    assert managed.kind is NodeKind.MANAGEMENT
    assert managed.path == "orders/$DeadLetterQueue/$management"


@pytest.mark.parametrize("text", ["$cbs", "$CBS", "/$cbs", "amqps://host/$cbs"])
def test_the_claims_node_is_known(text: str) -> None:
    """E-8, A-7: the claims node is known."""
    assert node_at(text) is CBS_NODE


def test_the_namespace_itself_is_the_empty_path() -> None:
    """E-8: the namespace itself is the empty path."""
    assert path_of("sb://host:1234/") == ""
    assert path_of("sb://host") == ""
    assert node_at("$management").path == "$management"


def test_escapes_that_are_no_text_are_refused() -> None:
    """E-8: bytes that are not UTF-8 name nothing."""
    with pytest.raises(BadArgument, match="UTF-8"):
        path_of("/orders%ff")


def test_an_endless_address_is_refused() -> None:
    """E-2: an endless address is refused."""
    with pytest.raises(BadArgument, match="too long"):
        node_at("a" * 3_000)


def test_addresses_may_be_bytes() -> None:
    """E-8: Python's clients write some addresses as UTF-8 bytes."""
    assert text_of(Source(address=b"orders")) == "orders"
    assert text_of(Target(address="orders")) == "orders"
    assert text_of(Target()) is None
    assert text_of(Coordinator()) is None
    assert text_of(None) is None
    with pytest.raises(BadArgument):
        text_of(Source(address=b"\xff"))
    with pytest.raises(BadArgument):
        text_of(Source(address=5))
