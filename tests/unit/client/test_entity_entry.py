"""Descriptions of entities between ATOM and the client."""

import xml.etree.ElementTree as ET

import pytest

from busway.client.atom_entries import (
    ATOM,
    CONNECT,
    KINDS,
    QUEUE,
    SUBSCRIPTION,
    BadAnswer,
    EntityEntry,
    EntityKind,
    KeyRule,
    entries,
    kind_of,
    parse_document,
    read_entry,
    target_name,
    write_entry,
)
from busway.model.descriptions import PROPERTY_OF, QueueDescription, SubscriptionDescription, TopicDescription

ENTRY = b"""<?xml version="1.0"?>
<entry xmlns="http://www.w3.org/2005/Atom"><id>https://h/orders</id><title type="text">orders</title>
<content type="application/xml"><QueueDescription
 xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
 xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT1M</LockDuration>
<RequiresSession>false</RequiresSession><MaxDeliveryCount>10</MaxDeliveryCount><SizeInBytes>7</SizeInBytes>
<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>
<Rights><AccessRights>Listen</AccessRights></Rights><KeyName>worker</KeyName><PrimaryKey>p</PrimaryKey>
<SecondaryKey>s</SecondaryKey></AuthorizationRule></AuthorizationRules>
<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">
<d2p1:ActiveMessageCount>3</d2p1:ActiveMessageCount></CountDetails><Unheard>of</Unheard>
</QueueDescription></content></entry>"""


def test_an_entry_is_read_with_its_types() -> None:
    """E-40, E-100: properties typed, counts beside them, rules with their rights."""
    queue = read_entry(QUEUE, parse_document(ENTRY))
    assert queue.name == "orders"
    assert queue.properties == {"LockDuration": "PT1M", "RequiresSession": False, "MaxDeliveryCount": 10}
    assert queue.numbers["ActiveMessageCount"] == 3
    assert queue.numbers["SizeInBytes"] == 7
    assert queue.rules == (KeyRule("worker", ("Listen",), "p", "s"),)


def test_an_update_sends_back_what_it_does_not_know_and_nothing_read_only() -> None:
    """E-44: unknown elements survive an update; read-only ones are not sent."""
    queue = read_entry(QUEUE, parse_document(ENTRY)).changed({"MaxDeliveryCount": 5})
    written = parse_document(write_entry(queue))
    description = written.find(f"{ATOM}content/{CONNECT}QueueDescription")
    assert description is not None
    names = [child.tag.removeprefix(CONNECT) for child in description]
    assert names == ["LockDuration", "RequiresSession", "MaxDeliveryCount", "AuthorizationRules", "Unheard"]
    assert description.findtext(f"{CONNECT}MaxDeliveryCount") == "5"
    assert (
        description.findtext(f"{CONNECT}AuthorizationRules/{CONNECT}AuthorizationRule/{CONNECT}KeyName")
        == "worker"
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_elements_leave_in_the_order_of_the_wire(kind: EntityKind) -> None:
    """E-20, E-50, E-60: the description is a sequence, its order fixed; every property is in it."""
    entity = EntityEntry(kind, "q", {known.element: "x" for known in reversed(kind.properties)}, {})
    description = parse_document(write_entry(entity)).find(f"{ATOM}content/{CONNECT}{kind.element}")
    assert description is not None
    places = [kind.elements.index(child.tag.removeprefix(CONNECT)) for child in description]
    assert places == sorted(places)
    assert len(places) == len(kind.properties) + (kind is not SUBSCRIPTION)  # and the keys


def test_every_property_that_a_file_can_set_has_an_option() -> None:
    """E-20…E-64: the command line, ATOM bodies and the configuration file know the same properties."""
    kinds = {"queue": QueueDescription, "topic": TopicDescription, "subscription": SubscriptionDescription}
    for kind in KINDS:
        assert {known.element for known in kind.properties} == set(PROPERTY_OF[kinds[kind.word]])


def test_forwards_come_as_addresses_and_are_shown_as_names() -> None:
    """F-2: the service answers with sb://host/name."""
    assert target_name("sb://bus.example.org:5671/a/b") == "a/b"
    assert target_name("a/b") == "a/b"
    assert target_name("") == ""


def test_an_entry_tells_its_kind() -> None:
    """E-7: a queue's name may turn out to be a topic's."""
    assert kind_of(parse_document(ENTRY)) is QUEUE
    assert kind_of(parse_document(b"<a/>")) is None
    with pytest.raises(BadAnswer, match="no subscription"):
        read_entry(SUBSCRIPTION, parse_document(ENTRY))


def test_a_feed_without_entries_is_an_empty_list() -> None:
    """ERR-43: a missing queue is answered with such a feed."""
    assert entries(parse_document(b'<feed xmlns="http://www.w3.org/2005/Atom"><title/></feed>')) == []


def test_hostile_xml_is_refused() -> None:
    """ERR-41: answers pass through the same defused parser as everything else."""
    bomb = b'<!DOCTYPE a [<!ENTITY b "xx">]><a>&b;</a>'
    with pytest.raises(BadAnswer):
        parse_document(bomb)
    with pytest.raises(BadAnswer):
        parse_document(b"<html")


def test_keys_are_not_in_the_repr() -> None:
    """Secrets never reach a repr."""
    assert "'p'" not in repr(KeyRule("worker", ("Listen",), "p", "s"))
    assert isinstance(ET.fromstring(write_entry(EntityEntry(QUEUE, "q", {}, {}))), ET.Element)
