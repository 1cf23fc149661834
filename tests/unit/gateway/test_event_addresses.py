"""Addresses inside event hubs."""

import pytest

from busway.gateway.amqp.links.addresses import EventAddress, event_address, hub_path_of, node_at


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("telemetry", EventAddress("telemetry")),
        ("telemetry/Partitions/3", EventAddress("telemetry", partition_id="3")),
        ("telemetry/publishers/device-1", EventAddress("telemetry", publisher="device-1")),
        (
            "telemetry/ConsumerGroups/$Default/Partitions/0",
            EventAddress("telemetry", group="$Default", partition_id="0"),
        ),
        (
            "TELEMETRY/CONSUMERGROUPS/Mine/PARTITIONS/0",
            EventAddress("TELEMETRY", group="Mine", partition_id="0"),
        ),
    ],
)
def test_each_form_of_an_address_is_understood(path: str, expected: EventAddress) -> None:
    """H-10, H-12, H-13, H-20: keywords in any case, names as they were written."""
    assert event_address(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/telemetry",
        "telemetry/",
        "telemetry//0",
        "telemetry/Partitions",
        "telemetry/Partitions/",
        "telemetry/Partitions/0/1",
        "telemetry/ConsumerGroups/g",
        "telemetry/ConsumerGroups/g/Partitions",
        "telemetry/ConsumerGroups/g/Publishers/p",
        "telemetry/Publishers/p/Partitions/0",
        "telemetry/$DeadLetterQueue",
        "telemetry/Subscriptions/s",
    ],
)
def test_anything_else_means_nothing_inside_a_hub(path: str) -> None:
    """H-20: anything else means nothing inside a hub."""
    assert event_address(path) is None


@pytest.mark.parametrize(
    "text",
    [
        "telemetry/ConsumerGroups/$default/Partitions/0",
        "/telemetry/ConsumerGroups/%24default/Partitions/0",
        "amqps://localhost:5671/telemetry/ConsumerGroups/$default/Partitions/0",
    ],
)
def test_the_spellings_of_all_clients_lead_to_the_same_place(text: str) -> None:
    """E-8, H-20: Python writes a whole URL, .NET escapes, the others write the path."""
    assert event_address(node_at(text).path) == EventAddress("telemetry", group="$default", partition_id="0")


def test_the_hub_of_an_address_is_its_first_segment() -> None:
    assert hub_path_of("telemetry/ConsumerGroups/g/Partitions/0") == "telemetry"
    assert hub_path_of("telemetry") == "telemetry"
