"""Event hubs over HTTP: management, publishing, reading in bulk, figures."""

import io
import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from busway.message.event_chunk import Chunk
from busway.model.descriptions import ALL_RIGHTS, AuthorizationRule
from busway.streams.hub_descriptions import EventHubDescription
from tests.unit.gateway.http_exchange import ATOM, HOST, VERSION, Answer, Exchange, queue_body, sas_token


def create(exchange: Exchange, name: str = "clicks", **properties: object) -> dict[str, Any]:
    answer = exchange.request("PUT", f"/$eventhubs/{name}", json.dumps({"PartitionCount": 4, **properties}))
    assert answer.status == 201, answer.text
    made: dict[str, Any] = json.loads(answer.text)
    return made


def get(exchange: Exchange, target: str) -> Any:
    answer = exchange.request("GET", f"/$eventhubs{target}")
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def chunks(answer: Answer) -> list[Chunk]:
    assert answer.status == 200, answer.text
    found, data = [], answer.content
    while data:
        (size,) = struct.unpack_from("<I", data)
        found.append(Chunk(data[4 : 4 + size]))
        data = data[4 + size :]
    return found


def events(exchange: Exchange, partition: int = 0, query: str = "") -> list[tuple[int, bytes]]:
    answer = exchange.request("GET", f"/clicks/partitions/{partition}/events{query}")
    return [
        (chunk.number(index), chunk.data[chunk.body_at(index) : chunk.end(index)])
        for chunk in chunks(answer)
        for index in range(chunk.count)
    ]


# -- management


def test_a_hub_is_created_shown_changed_and_deleted(exchange: Exchange) -> None:
    """H-2, H-4, H-5: by one route in JSON."""
    made = create(exchange, ConsumerGroups=["billing"], UserMetadata="mine", MessageRetentionInDays=3)
    assert made["PartitionIds"] == ["0", "1", "2", "3"]
    assert made["ConsumerGroups"] == ["$Default", "billing"]
    assert made["RetentionDescription"]["RetentionTimeInHours"] == 72
    assert get(exchange, "/CLICKS") == made
    assert get(exchange, "") == [made]
    body = json.dumps({"Status": "SendDisabled"})
    changed = json.loads(exchange.request("PUT", "/$eventhubs/clicks", body, {"If-Match": "*"}).text)
    assert (changed["Status"], changed["UserMetadata"]) == ("SendDisabled", "mine")
    assert exchange.request("DELETE", "/$eventhubs/clicks").status == 200
    assert get(exchange, "") == []
    assert exchange.request("GET", "/$eventhubs/clicks").status == 404


def test_consumer_groups_come_and_go_but_the_first_one_stays(exchange: Exchange) -> None:
    """H-5: consumer groups come and go but the first one stays."""
    create(exchange)
    where = "/$eventhubs/clicks/consumergroups"
    assert exchange.request("PUT", f"{where}/audit", '{"UserMetadata": "x"}').status == 201
    assert exchange.request("PUT", f"{where}/audit", "{}").status == 409
    assert [group["Name"] for group in get(exchange, "/clicks/consumergroups")] == ["$Default", "audit"]
    assert get(exchange, "/clicks/consumergroups/AUDIT")["UserMetadata"] == "x"
    assert exchange.request("DELETE", f"{where}/audit").status == 200
    assert exchange.request("GET", f"{where}/audit").status == 404
    refused = exchange.request("DELETE", f"{where}/$Default")
    assert (refused.status, "cannot be deleted" in refused.text) == (400, True)


GROUP = "ConsumerGroupDescription"


def test_a_consumer_group_is_made_listed_changed_and_deleted_as_in_the_service(exchange: Exchange) -> None:
    """H-5 ERR-43: ATOM entries below the hub's address."""
    create(exchange)
    where = "/CLICKS/ConsumerGroups"
    made = exchange.request(
        "PUT", f"{where}/audit?{VERSION}", queue_body("<UserMetadata>a &lt; b</UserMetadata>", GROUP)
    )
    assert (made.status, made.property("UserMetadata")) == (201, "a < b")
    assert made.xml.findtext(f"{ATOM}id") == f"https://{HOST}/clicks/consumergroups/audit?{VERSION}"
    again = exchange.request("PUT", f"{where}/AUDIT?{VERSION}", queue_body("", GROUP))
    assert (again.status, again.detail[:14]) == (409, "SubCode=40900.")
    listed = exchange.request("GET", f"{where}?{VERSION}")
    assert [entry.findtext(f"{ATOM}title") for entry in listed.xml.findall(f"{ATOM}entry")] == [
        "$Default",
        "audit",
    ]
    page = exchange.request("GET", f"{where}/?$skip=1&$top=1&{VERSION}")
    assert [entry.findtext(f"{ATOM}title") for entry in page.xml.findall(f"{ATOM}entry")] == ["audit"]
    read = exchange.request("GET", f"{where}/audit?{VERSION}")
    assert (read.status, read.property("CreatedAt")) == (200, "2023-11-14T22:13:20Z")
    changed = exchange.request("PUT", f"{where}/audit?{VERSION}", queue_body("", GROUP), {"If-Match": "*"})
    assert (changed.status, changed.property("UserMetadata")) == (200, "")
    stale = exchange.request("DELETE", f"{where}/audit", headers={"If-Match": "1"})
    assert stale.status == 412
    assert exchange.request("DELETE", f"{where}/audit?{VERSION}").status == 200
    for method in ("GET", "DELETE"):
        assert exchange.request(method, f"{where}/audit?{VERSION}").status == 404
    missing = exchange.request("PUT", f"{where}/audit?{VERSION}", queue_body("", GROUP), {"If-Match": "*"})
    assert missing.status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "clicks/consumergroups/g", queue_body(), 400),
        ("PUT", "clicks/consumergroups/g", queue_body("<LockDuration>PT1M</LockDuration>", GROUP), 400),
        ("PUT", "clicks/consumergroups/g", "", 400),
        ("PUT", "clicks/consumergroups/g%20h", queue_body("", GROUP), 401),
        ("PUT", f"clicks/consumergroups/{'g' * 51}", queue_body("", GROUP), 400),
        ("DELETE", "clicks/consumergroups/$Default", "", 400),
        ("POST", "clicks/consumergroups/g", "", 405),
        ("PUT", "clicks/consumergroups", queue_body("", GROUP), 405),
        ("PUT", "nowhere/consumergroups/g", queue_body("", GROUP), 501),
    ],
)
def test_a_consumer_group_that_cannot_be_is_refused(
    exchange: Exchange, method: str, path: str, body: str, status: int
) -> None:
    """H-5, ERR-7: nothing is made."""
    create(exchange)
    assert exchange.request(method, f"/{path}?{VERSION}", body).status == status
    assert [group["Name"] for group in get(exchange, "/clicks/consumergroups")] == ["$Default"]


def test_consumer_groups_are_for_those_who_manage_their_hub(exchange: Exchange) -> None:
    """A-9: a rule of the hub is enough; one that may only send is not."""
    rules = [
        {
            "Name": "keeper",
            "Rights": ["Manage", "Send", "Listen"],
            "PrimaryKey": "k" * 44,
            "SecondaryKey": "l" * 44,
        },
        {"Name": "sender", "Rights": ["Send"], "PrimaryKey": "m" * 44, "SecondaryKey": "n" * 44},
    ]
    create(exchange, AuthorizationRules=rules)
    target = f"/clicks/consumergroups/g?{VERSION}"
    for name, key, status in (("sender", "m" * 44, 401), ("keeper", "k" * 44, 201)):
        token = sas_token(f"https://{HOST}/clicks", name, key)
        assert exchange.request("PUT", target, queue_body("", GROUP), token=token).status == status
    assert exchange.request("GET", target, token=None).status == 401


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"PartitionCount": 0}, "PartitionCount"),
        ({"PartitionCount": 33}, "1 to 32"),
        ({"PartitionCount": "many"}, "whole number"),
        ({"Status": "Sleeping"}, "Status"),
        ({"RetentionDescription": {"RetentionTimeInHours": 0}}, "RetentionTimeInHours"),
        ({"RetentionDescription": {"CleanupPolicy": "Burn"}}, "CleanupPolicy"),
        ({"CaptureDescription": {"IntervalInSeconds": 5}}, "IntervalInSeconds"),
        ({"CaptureDescription": {"Destination": {"Name": "../up"}}}, "Destination"),
        ({"CaptureDescription": {"Destination": {"ArchiveNameFormat": "{Namespace}"}}}, "ArchiveNameFormat"),
        ({"Partitions": 3}, "not known here"),
        ({"ConsumerGroups": ["bad name!"]}, "consumer group"),
        ({"ConsumerGroups": [f"g{number}" for number in range(20)]}, "20 consumer groups"),
    ],
)
def test_what_a_hub_cannot_be_is_refused_and_nothing_is_made(
    exchange: Exchange, body: dict[str, object], complaint: str
) -> None:
    """H-2, H-3, H-5, H-40: what a hub cannot be is refused and nothing is made."""
    answer = exchange.request("PUT", "/$eventhubs/clicks", json.dumps(body))
    assert answer.status in (400, 403), answer.text
    assert complaint in answer.text
    assert get(exchange, "") == []


@pytest.mark.parametrize(
    ("hub", "group", "status"),
    [("h" * 256, "g" * 50, 201), ("h" * 257, "g", 400), ("clicks", "g" * 51, 400)],
)
def test_names_have_a_longest_length(exchange: Exchange, hub: str, group: str, status: int) -> None:
    """E-4: 256 characters for a hub, 50 for a consumer group."""
    body = json.dumps({"ConsumerGroups": [group]})
    assert exchange.request("PUT", f"/$eventhubs/{hub}", body).status == status


def test_partitions_cannot_become_fewer_or_more(exchange: Exchange) -> None:
    """H-3: partitions cannot become fewer or more."""
    create(exchange)
    for count in (3, 5):
        body = json.dumps({"PartitionCount": count})
        answer = exchange.request("PUT", "/$eventhubs/clicks", body, {"If-Match": "*"})
        assert (answer.status, "cannot be changed" in answer.text) == (400, True)


def test_names_are_shared_with_queues_and_topics(exchange: Exchange) -> None:
    """E-7, H-2: one namespace, one space of names."""
    create(exchange)
    taken = exchange.request("PUT", "/CLICKS?api-version=2021-05", _queue())
    assert taken.status == 409
    assert exchange.request("PUT", "/orders?api-version=2021-05", _queue()).status == 201
    assert exchange.request("PUT", "/$eventhubs/orders", "{}").status == 409


def _queue() -> str:
    from tests.unit.gateway.http_exchange import queue_body

    return queue_body()


def test_only_who_manages_the_namespace_manages_hubs(exchange: Exchange) -> None:
    """A-6, A-9: only who manages the namespace manages hubs."""
    rule = AuthorizationRule("all", ALL_RIGHTS, "k" * 44, "s" * 44)
    exchange.run(exchange.hubs.create(EventHubDescription("clicks", authorization_rules=(rule,))))
    own = sas_token(f"https://{HOST}/clicks", "all", "k" * 44)
    for method, target in (("GET", ""), ("PUT", "/other"), ("DELETE", "/clicks")):
        assert exchange.request(method, f"/$eventhubs{target}", "{}", token=own).status == 401
        assert exchange.request(method, f"/$eventhubs{target}", "{}", token=None).status == 401
    assert exchange.hubs.exists("clicks")


# -- publishing


def test_events_are_published_to_the_hub_a_partition_and_as_a_publisher(exchange: Exchange) -> None:
    """H-11, H-12, H-13, H-15: events are published to the hub, to a partition and as a publisher."""
    create(exchange)
    for _ in range(4):
        assert exchange.request("POST", "/clicks/messages", b"anywhere").status == 201
    assert [len(events(exchange, index)) for index in range(4)] == [1, 1, 1, 1]
    assert exchange.request("POST", "/clicks/partitions/2/messages", b"there").status == 201
    assert events(exchange, 2)[-1] == (1, b"there")
    assert exchange.request("POST", "/clicks/publishers/device-7/messages", b"mine").status == 201
    assert sum(len(events(exchange, index)) for index in range(4)) == 6
    unknown = exchange.request("POST", "/clicks/partitions/4/messages", b"nowhere")
    assert (unknown.status, "between 0 and 3" in unknown.text) == (400, True)


def test_a_batch_goes_to_one_partition(exchange: Exchange) -> None:
    """H-15, H-17: a batch goes to one partition."""
    create(exchange)
    batch = json.dumps([{"Body": "one"}, {"Body": "two"}, {"Body": "three"}])
    headers = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
    assert exchange.request("POST", "/clicks/messages", batch, headers).status == 201
    assert sorted(len(events(exchange, index)) for index in range(4)) == [0, 0, 0, 3]


def test_a_revoked_publisher_a_large_event_and_a_disabled_hub_are_refused(exchange: Exchange) -> None:
    """H-13, H-14, H-2: a revoked publisher, a large event and a disabled hub are refused."""
    create(exchange, RevokedPublishers=["device-7"])
    assert exchange.request("POST", "/clicks/publishers/Device-7/messages", b"x").status == 401
    assert exchange.request("POST", "/clicks/messages", b"x" * (1 << 20)).status == 403
    body = json.dumps({"Status": "SendDisabled"})
    exchange.request("PUT", "/$eventhubs/clicks", body, {"If-Match": "*"})
    assert exchange.request("POST", "/clicks/messages", b"x").status == 403
    assert [len(events(exchange, index)) for index in range(4)] == [0, 0, 0, 0]


def test_publishing_needs_send_and_reading_needs_listen(exchange: Exchange) -> None:
    """A-6: on the hub, or for no more than the partition or publisher that is asked for."""
    rules = (
        AuthorizationRule("send", frozenset({"Send"}), "s" * 44, "t" * 44),
        AuthorizationRule("listen", frozenset({"Listen"}), "l" * 44, "m" * 44),
    )
    exchange.run(exchange.hubs.create(EventHubDescription("clicks", authorization_rules=rules)))
    send = sas_token(f"https://{HOST}/clicks", "send", "s" * 44)
    listen = sas_token(f"https://{HOST}/clicks", "listen", "l" * 44)
    narrow = sas_token(f"https://{HOST}/clicks/publishers/p1", "send", "s" * 44)
    assert exchange.request("POST", "/clicks/messages", b"x", token=send).status == 201
    assert exchange.request("POST", "/clicks/messages", b"x", token=listen).status == 401
    assert exchange.request("GET", "/clicks/partitions/0/events", token=listen).status == 200
    assert exchange.request("GET", "/clicks/partitions/0/events", token=send).status == 401
    assert exchange.request("POST", "/clicks/publishers/p1/messages", b"x", token=narrow).status == 201
    assert exchange.request("POST", "/clicks/publishers/p2/messages", b"x", token=narrow).status == 401
    assert exchange.request("POST", "/clicks/messages", b"x", token=narrow).status == 401


# -- reading in bulk


def test_a_range_of_a_partition_is_read_as_it_is_stored(exchange: Exchange) -> None:
    """H-20: whole chunks; what lies outside the range is left to the reader."""
    create(exchange, PartitionCount=1)
    for number in range(6):
        exchange.request("POST", "/clicks/messages", b"event %d" % number)
    everything = [(number, b"event %d" % number) for number in range(6)]
    assert events(exchange) == everything
    assert events(exchange, query="?from=2&to=5") == everything[2:5]
    assert events(exchange, query="?from=6") == []
    assert len(events(exchange, query="?bytes=1")) == 1
    assert exchange.request("GET", "/clicks/partitions/0/events?from=x").status == 400
    assert exchange.request("GET", "/clicks/partitions/0/events?format=csv").status == 400


def test_a_range_comes_without_bodies_or_with_numbers_alone(exchange: Exchange) -> None:
    """H-20: for whoever counts, or looks for events before it reads them."""
    create(exchange, PartitionCount=1)
    for _ in range(3):
        exchange.request("POST", "/clicks/messages", b"x" * 5_000)
    sizes = {
        parts: len(exchange.request("GET", f"/clicks/partitions/0/events?parts={parts}").content)
        for parts in ("all", "heads", "numbers")
    }
    assert sizes["all"] > 15_000
    assert sizes["numbers"] < sizes["heads"] < 1_000
    assert [number for number, _ in events(exchange, query="?parts=heads")] == [0, 1, 2]
    assert [number for number, _ in events(exchange, query="?parts=numbers")] == [0, 1, 2]
    assert exchange.request("GET", "/clicks/partitions/0/events?parts=some").status == 400


def test_the_same_range_comes_as_an_arrow_stream(exchange: Exchange) -> None:
    """H-20: the same range comes as an Arrow stream."""
    create(exchange, PartitionCount=1)
    for number in range(3):
        exchange.request("POST", "/clicks/messages", b"event %d" % number)
    answer = exchange.request("GET", "/clicks/partitions/0/events?format=arrow")
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert table.column("sequence_number").to_pylist() == [0, 1, 2]
    assert [message[-7:] for message in table.column("message").to_pylist()] == [
        b"event 0",
        b"event 1",
        b"event 2",
    ]


# -- stores and figures


def test_a_store_that_is_away_takes_only_its_partitions_down(exchange: Exchange) -> None:
    """H-11, H-12: keyless events go elsewhere, and everything is back with the store."""
    create(exchange)
    exchange.request("POST", "/$stores/store-1/disable")
    shown = get(exchange, "/clicks/partitions")
    assert [each["health"] for each in shown] == ["available", "unavailable"] * 2
    for _ in range(4):
        assert exchange.request("POST", "/clicks/messages", b"x").status == 201
    assert exchange.request("POST", "/clicks/partitions/1/messages", b"x").status == 503
    exchange.request("POST", "/$stores/store-1/enable")
    assert [each["events"] for each in get(exchange, "/clicks/partitions")] == [2, 0, 2, 0]
    assert exchange.request("POST", "/clicks/partitions/1/messages", b"x").status == 201


def test_the_figures_of_a_hub_are_told(exchange: Exchange) -> None:
    """O-6: a batch is one request and as many messages as it has."""
    create(exchange, PartitionCount=2)
    batch = json.dumps([{"Body": "one"}, {"Body": "two"}, {"Body": "three"}])
    headers = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
    exchange.request("POST", "/clicks/messages", batch, headers)
    for _ in range(2):  # a scrape forgets nothing
        text = exchange.request("GET", "/metrics").text
        assert 'busway_incoming_messages_total{entity="clicks"} 3.0' in text
        assert 'busway_successful_requests_total{entity="clicks"} 1.0' in text
        assert 'busway_partition_up{entity="clicks",partition="1",store="store-1"} 1.0' in text
        assert 'busway_partition_events{entity="clicks",partition="0",store="store-0"} 3.0' in text
        assert 'busway_size_bytes{entity="clicks"}' in text
