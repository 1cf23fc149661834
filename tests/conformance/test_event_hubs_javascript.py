"""EH-3xx: event hubs with the unmodified JavaScript SDK, @azure/event-hubs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from busway.streams.key_hash import partition_of_key
from tests.conformance.event_traffic import Hub, texts
from tests.conformance.node_program import needs_node, run_node
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.sdk, needs_node]

NewHub = Callable[..., Hub]
Run = Callable[..., Any]


@pytest.fixture
def run(server: RunningServer) -> Run:
    def in_node(scenario: str, hub: Hub, **parameters: Any) -> Any:
        return run_node(server, "events.mjs", scenario, hub=hub.name, **parameters)

    return in_node


def test_eh_301_an_event_goes_out_and_comes_back(run: Run, new_hub: NewHub) -> None:
    """H-16, H-20, H-21: all its parts, with number, offset and time."""
    found = run("roundTrip", new_hub(PartitionCount=2))
    assert 0 <= found.pop("ageMs") < 60_000
    assert found == {
        "body": {"text": "body", "list": [1, 2]},
        "contentType": "application/json",
        "correlationId": "correlation",
        "messageId": "id-1",
        "properties": {"color": "red", "count": 7, "ratio": 0.5, "yes": True},
        "sequenceNumber": 0,
        "offset": "0",
    }


def test_eh_302_batches_for_keys_and_partitions(run: Run, new_hub: NewHub) -> None:
    """H-10, H-12, H-17: links are named after their address, one of each."""
    keyed = str(partition_of_key("alphabet", 4))
    assert run("batches", new_hub(PartitionCount=4)) == [
        {"body": "for three", "key": None, "partition": "3"},
        {"body": "in a batch", "key": "alphabet", "partition": keyed},
        {"body": "in a list", "key": "alphabet", "partition": keyed},
    ]


def test_eh_303_sizes(run: Run, new_hub: NewHub) -> None:
    """H-14: the attach says how large a batch may be."""
    assert run("sizes", new_hub(PartitionCount=1)) == {
        "maxSize": 1_048_576,
        "fits": True,
        "overflows": True,
        "tooLarge": "MessageTooLargeError",
    }


def test_eh_304_runtime_information(run: Run, new_hub: NewHub) -> None:
    """H-4, H-16, H-27, H-12: hub and partitions tell what they are, empty ones too; a missing one is told."""
    hub = new_hub(PartitionCount=2)
    found = run("information", hub)
    assert 0 <= found.pop("ageMs") < 60_000
    assert found == {
        "name": hub.name,
        "partitionIds": ["0", "1"],
        "ids": ["0", "1"],
        "empty": {"id": "0", "begin": -1, "last": -1, "offset": "-1", "isEmpty": True},
        "full": {"id": "1", "begin": 0, "last": 1, "offset": "1", "isEmpty": False},
        "unknown": "ArgumentOutOfRangeError",
    }


def test_eh_305_positions(run: Run, new_hub: NewHub) -> None:
    """H-20, H-22: the filter is described by its number here."""
    found = run("positions", new_hub(PartitionCount=1))
    behind = found.pop("behind")
    assert found == {
        "start": [0, 1, 2, 3],
        "offset": [2, 3],
        "inclusive": [1, 2, 3],
        "number": [3],
        "time": [0, 1, 2, 3],
    }
    assert "The supplied sequence number '99' is invalid" in behind["message"]


def test_eh_306_the_end(run: Run, new_hub: NewHub) -> None:
    """H-20: a reader that begins at the end sees only what comes after."""
    assert run("latest", new_hub(PartitionCount=1)) == "new"


def test_eh_307_a_higher_owner_level_takes_over(run: Run, new_hub: NewHub) -> None:
    """H-24: the code is the one by which clients give up."""
    assert run("epochs", new_hub(PartitionCount=1)) == {
        "got": ["a", "a"],
        "first": "ReceiverDisconnectedError",
        "third": "ReceiverDisconnectedError",
    }


def test_eh_308_a_reader_can_follow_the_end_of_its_partition(run: Run, new_hub: NewHub) -> None:
    """H-26: a reader can follow the end of its partition."""
    assert run("tracking", new_hub(PartitionCount=1)) == {"number": 1, "offset": "1", "isLater": True}


def test_eh_309_a_buffering_producer_chooses_the_same_partitions(run: Run, new_hub: NewHub) -> None:
    """H-10: mixed producers keep the order of a key."""
    hub = new_hub(PartitionCount=8)
    hub.send("-1", partition_key="key-0")
    [(partition, _)] = hub.read(1)
    found = run("buffered", new_hub(PartitionCount=8), count=40)
    assert found["failures"] == []
    assert found["bodies"] == list(range(40))
    assert found["first"] == list(range(0, 40, 5))
    assert found["places"] == {f"key-{n}": [str(partition_of_key(f"key-{n}", 8))] for n in range(5)}
    assert found["places"]["key-0"] == [partition]


def test_eh_310_an_idempotent_producer(run: Run, new_hub: NewHub) -> None:
    """H-18, H-19: it goes on where it was, with the same id and epoch; where it is wrong the answer is right."""
    assert run("idempotent", new_hub(PartitionCount=1)) == {
        "isEnabled": True,
        "published": 3,
        "isSame": True,
        "goneOnFrom": 0,
        "corrected": 1,
        "bodies": ["a", "b", "c", "d"],
    }


def test_eh_313_a_buffering_idempotent_producer(run: Run, new_hub: NewHub) -> None:
    """H-18: many groups, each acknowledged once, none twice."""
    found = run("idempotentBuffered", new_hub(PartitionCount=1), count=50)
    assert found == {"failures": [], "bodies": list(range(50))}


def test_eh_311_many_events_pass_in_order(run: Run, new_hub: NewHub) -> None:
    """H-20, H-21: over many windows and refills of credit."""
    assert run("many", new_hub(PartitionCount=1), count=5_000) == list(range(5_000))


def test_eh_312_what_one_sdk_sends_the_other_reads(run: Run, new_hub: NewHub) -> None:
    """H-16: and both see the same numbers."""
    hub = new_hub(PartitionCount=1)
    run("many", hub, count=500)
    found = hub.read(500)
    assert texts(found) == [str(number) for number in range(500)]
    assert [event.sequence_number for _, event in found] == list(range(500))
