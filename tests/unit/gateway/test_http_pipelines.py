"""`/$pipelines`: streams report themselves, and whoever may see it learns how far behind they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.gateway.http.pipelines_route import PARTITIONS_MAX, REPORT_BYTES_MAX, SOURCES_MAX
from busway.message.event_record import Event
from busway.message.message import Message
from busway.model.descriptions import LISTEN, AuthorizationRule, NewEntity, QueueDescription
from busway.streams.hub_descriptions import EventHubDescription
from tests.unit.gateway.http_exchange import HOST, Answer, Exchange, sas_token

KEY = "a2V5IG9mIG9uZSBlbnRpdHkgYWxvbmUsIDMyIGJ5dGVz"


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    with Exchange() as made:
        for path in ("clicks", "views"):
            rule = AuthorizationRule(f"reader-of-{path}", frozenset({LISTEN}), KEY, KEY)
            wanted = EventHubDescription(path, partition_count=2, authorization_rules=(rule,))
            made.run(made.hubs.create(wanted, []))
        yield made


def publish(exchange: Exchange, partition: int, count: int, hub: str = "clicks") -> None:
    log = exchange.hubs.hub(hub).partition(str(partition))

    async def stored() -> None:
        event = encode_message(AmqpMessage([bytes(100)], DATA))
        log.append([Event(event) for _ in range(count)], lambda _: None)
        await log.durable()

    exchange.run(stored())


def report(*sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"query": "q-1", "run": "r-1", "sources": list(sources), **more}


def hub_source(hub: str = "clicks", *numbers: int) -> dict[str, Any]:
    return {
        "entity": hub,
        "consumerGroup": "$Default",
        "positions": {str(index): number for index, number in enumerate(numbers)},
    }


def post(exchange: Exchange, name: str, body: object, query: str = "", token: str | None = None) -> Answer:
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    given = {} if token is None else {"token": token}
    return exchange.request("POST", f"/$pipelines/{name}{query}", text, **given)


def told(exchange: Exchange, name: str) -> dict[str, Any]:
    answer = exchange.request("GET", f"/$pipelines/{name}")
    assert answer.status == 200, answer.text
    found: dict[str, Any] = json.loads(answer.text)
    return found


def reader_of(path: str) -> str:
    """A token of a rule that may listen to this hub alone."""
    return sas_token(f"https://{HOST}/", f"reader-of-{path}", KEY)


# -- lag


def test_lag_is_told_in_events_bytes_and_seconds(exchange: Exchange) -> None:
    """Pipelines: the bus knows its partitions; it is asked at the moment of asking, whoever reports or not."""
    publish(exchange, 0, 10)
    exchange.clock.advance(7)
    publish(exchange, 0, 10)
    answer = post(exchange, "copy", report(hub_source("clicks", 10, 0)))
    assert answer.status == 200, answer.text
    exchange.clock.advance(5)
    found = told(exchange, "copy")
    held = exchange.hubs.hub("clicks").partition("0").info()
    first, second = found["sources"][0]["partitions"]
    assert first == {
        "partition": "0",
        "next": 10,
        "lagEvents": 10,
        "lagBytes": held.bytes // 2,
        "lagSeconds": 5.0,
        "lost": 0,
    }
    assert (second["lagEvents"], second["lagBytes"], second["lagSeconds"]) == (0, 0, 0.0)
    assert (found["lagEvents"], found["lagBytes"], found["lagSeconds"]) == (10, held.bytes // 2, 5.0)
    publish(exchange, 1, 3)
    exchange.clock.advance(100)
    found = told(exchange, "copy")
    assert found["lagEvents"] == 13
    assert found["lagSeconds"] == 105.0
    assert found["stale"] is True
    assert found["state"] == "running"


def test_a_reader_that_has_everything_waits_for_nothing(exchange: Exchange) -> None:
    """Pipelines: no events, no seconds, however old the last event is."""
    publish(exchange, 0, 10)
    exchange.clock.advance(1000)
    post(exchange, "copy", report(hub_source("clicks", 10, 0)))
    found = told(exchange, "copy")
    assert (found["lagEvents"], found["lagSeconds"]) == (0, 0.0)


def test_what_cannot_be_told_is_said(exchange: Exchange) -> None:
    """Pipelines: a hub that is gone, one that was made again, a store that is away."""
    post(exchange, "gone", report(hub_source("nothing", 5)))
    post(exchange, "again", report({**hub_source("clicks", 5), "createdAtMs": 77}))
    post(exchange, "away", report(hub_source("clicks", 0, 0)))
    assert told(exchange, "gone")["sources"][0]["problem"] == "there is no such entity"
    assert "made again" in told(exchange, "again")["sources"][0]["problem"]
    assert told(exchange, "again")["lagSeconds"] is None
    exchange.request("POST", "/$stores/store-1/disable")
    away = told(exchange, "away")["sources"][0]
    assert away["problem"] == "its store is away"
    assert len(away["partitions"]) == 1


def test_of_a_queue_it_is_what_waits(exchange: Exchange) -> None:
    """Pipelines: claims leave no positions; messages wait, and the oldest has an age. Looking is no use (E-111)."""
    exchange.run(exchange.namespace.create([NewEntity(QueueDescription("orders"))]))
    queue = exchange.namespace.queue("orders")
    exchange.run(queue.schedule([Message(b"", b"x" * 100) for _ in range(3)]))
    exchange.clock.advance(4)
    used_at_ms = exchange.run(exchange.namespace.counts("orders")).accessed_at_ms
    post(exchange, "drain", report({"entity": "orders", "held": 2}))
    found = told(exchange, "drain")
    assert (found["lagEvents"], found["lagBytes"], found["lagSeconds"]) == (3, 300, 4.0)
    assert found["sources"][0]["held"] == 2
    assert exchange.run(exchange.namespace.counts("orders")).accessed_at_ms == used_at_ms


def test_the_list_has_all_by_name_without_partitions(exchange: Exchange) -> None:
    """Pipelines: who reads what, how far behind."""
    publish(exchange, 0, 10)
    post(exchange, "b", report(hub_source("clicks", 4, 0), hub_source("views", 0, 0), query="q-b"))
    post(exchange, "a", report(hub_source("clicks", 9, 0), state="failed", failures=2, sentence="It broke."))
    answer = exchange.request("GET", "/$pipelines")
    found = json.loads(answer.text)
    assert [(each["name"], each["state"], each["lagEvents"]) for each in found] == [
        ("a", "failed", 1),
        ("b", "running", 6),
    ]
    assert (found[0]["failures"], found[0]["sentence"]) == (2, "It broke.")
    assert [source["entity"] for source in found[1]["sources"]] == ["clicks", "views"]
    assert "partitions" not in found[1]["sources"][0]


def test_a_pipeline_is_forgotten_on_demand_and_after_an_hour(exchange: Exchange) -> None:
    """Pipelines: DELETE, and silence."""
    for name in ("a", "b"):
        post(exchange, name, report(hub_source("clicks", 0)))
    assert exchange.request("DELETE", "/$pipelines/a").status == 200
    assert exchange.request("GET", "/$pipelines/a").status == 404
    assert exchange.request("DELETE", "/$pipelines/a").status == 404
    exchange.clock.advance(3_601)
    assert exchange.request("GET", "/$pipelines").text == "[]"


# -- rights


def test_strangers_and_senders_learn_nothing(exchange: Exchange) -> None:
    """A-6: without a token, with a wrong one, with Send alone; whether there is such a pipeline or not."""
    post(exchange, "copy", report(hub_source("clicks", 0)))
    put = json.dumps({"rights": ["Send"], "primaryKey": KEY, "secondaryKey": KEY})
    assert exchange.request("PUT", "/$rules/sender", put).status == 201
    for token in (
        None,
        sas_token(f"https://{HOST}", key="d3Jvbmc="),
        sas_token(f"https://{HOST}", "sender", KEY),
    ):
        for method in ("GET", "POST", "DELETE"):
            for target in ("copy", "other", "copy?entity=clicks"):
                answer = exchange.request(method, f"/$pipelines/{target}", b"{}", token=token)
                assert answer.status == 401, (token, method, target)
        assert exchange.request("GET", "/$pipelines", token=token).status == 401
    assert told(exchange, "copy")["name"] == "copy"


def test_who_may_listen_to_one_hub_sees_and_reports_that_one_alone(exchange: Exchange) -> None:
    """A-2: rules of an entity. What is of others is not there for it: not seen, claimed, overwritten or deleted."""
    mine, other = "?entity=clicks", reader_of("views")
    token = reader_of("clicks")
    assert post(exchange, "mine", report(hub_source("clicks", 0)), mine, token).status == 200
    assert post(exchange, "theirs", report(hub_source("views", 0)), "?entity=views", other).status == 200
    both = report(hub_source("clicks", 0), hub_source("views", 0), query="q-both")
    assert post(exchange, "both", both).status == 200
    # It sees its own.
    listed = json.loads(exchange.request("GET", f"/$pipelines{mine}", token=token).text)
    assert [each["name"] for each in listed] == ["mine"]
    assert exchange.request("GET", f"/$pipelines/mine{mine}", token=token).status == 200
    # Nothing else is there.
    assert exchange.request("GET", "/$pipelines", token=token).status == 401
    assert exchange.request("GET", "/$pipelines?entity=views", token=token).status == 401
    for name in ("theirs", "both", "nobody"):
        for method in ("GET", "DELETE"):
            answer = exchange.request(method, f"/$pipelines/{name}{mine}", token=token)
            assert answer.status == 404
            assert "views" not in answer.text
    # It cannot speak for others.
    assert post(exchange, "new", report(hub_source("views", 9)), mine, token).status == 401
    assert post(exchange, "new", both, mine, token).status == 401
    assert post(exchange, "new", report(), mine, token).status == 401
    assert post(exchange, "new", report()).status == 200
    taken = post(exchange, "theirs", report(hub_source("clicks", 0)), mine, token)
    assert (taken.status, "views" in taken.text) == (409, False)
    assert told(exchange, "theirs")["sources"][0]["entity"] == "views"


def test_a_name_that_another_query_has_is_refused(exchange: Exchange) -> None:
    """Pipelines: 409, until the other one has stopped or become silent."""
    assert post(exchange, "copy", report(hub_source("clicks", 1))).status == 200
    second = {**report(hub_source("clicks", 2)), "query": "q-2"}
    assert post(exchange, "copy", second).status == 409
    exchange.clock.advance(31)
    assert post(exchange, "copy", second).status == 200


# -- what strangers write


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not UTF-8"),
        (b"[" * 60_000, "nested too deeply"),
        (b"[]", "must be an object"),
        (b'{"query": "a", "query": "b"}', "member twice"),
        ({"query": "a", "run": "b"}, "sources"),
        (report(run=5), "run"),
        (report(query="../x"), "query"),
        (report(state="happy"), "state"),
        (report(rows=-1), "rows"),
        (report(rows=True), "rows"),
        (report(rows=1 << 63), "rows"),
        (report(rowsPerSecond="many"), "rowsPerSecond"),
        (b'{"query": "a", "run": "b", "sources": [], "rowsPerSecond": NaN}', "not a number"),
        (report(sentence=7), "sentence"),
        (report(colour="red"), "'colour'"),
        (report("clicks"), "A source must be an object"),  # type: ignore[arg-type]
        (report({"entity": "../etc"}), "entity"),
        (report({"entity": "a" * 401}), "entity"),
        (report({"entity": ""}), "entity"),
        (report({"entity": "clicks", "positions": {"01": 1}}), "'01' is not a partition"),
        (report({"entity": "clicks", "positions": {"0": -1}}), "whole number"),
        (report({"entity": "clicks", "positions": [1]}), "positions"),
        (report({"entity": "clicks", "consumerGroup": "a b"}), "consumerGroup"),
        (report(*[{"entity": "clicks"}] * (SOURCES_MAX + 1)), f"at most {SOURCES_MAX}"),
        (
            report(*[hub_source("clicks", *range(PARTITIONS_MAX // 2 + 1))] * 2),
            f"at most {PARTITIONS_MAX} partitions",
        ),
    ],
)
def test_a_report_that_cannot_be_read_is_refused_with_a_sentence(
    exchange: Exchange, body: object, reason: str
) -> None:
    """Attack: 400, and nothing is kept."""
    answer = post(exchange, "copy", body)
    assert answer.status == 400, answer.text
    assert reason in answer.detail
    assert exchange.request("GET", "/$pipelines").text == "[]"


def test_a_huge_report_is_refused_before_it_is_read(exchange: Exchange) -> None:
    """Attack: 413 above 64 KiB."""
    answer = post(exchange, "copy", b" " * (REPORT_BYTES_MAX + 1))
    assert answer.status == 413
    assert str(REPORT_BYTES_MAX) in answer.detail


@pytest.mark.parametrize("name", ["a%20b", "a%2Fb", "%0A", "x" * 129, "caf%C3%A9", ""])
def test_names_are_plain(exchange: Exchange, name: str) -> None:
    """Attack: they are labels, paths and words on a terminal."""
    answer = post(exchange, name, report())
    assert answer.status == 400
    assert "letters, digits" in answer.detail


def test_secrets_in_a_sentence_are_not_kept(exchange: Exchange) -> None:
    """Attack: whoever wrote it; and it stays one line of bounded length."""
    sentence = f"It\nbroke \x1b[31m with SharedAccessKey={KEY};EntityPath=x " + "long " * 200
    post(exchange, "copy", report(hub_source("clicks", 0), state="failed", sentence=sentence))
    found = told(exchange, "copy")["sentence"]
    assert KEY not in found
    assert found.startswith("It broke [31m with SharedAccessKey=***;")
    assert len(found) == 500


# -- figures


def test_the_figures_tell_lag_rows_failures_and_age(exchange: Exchange) -> None:
    """O-8: by pipeline, entity, consumer group and partition."""
    publish(exchange, 0, 10)
    body = report(hub_source("clicks", 4, 0), rows=12, batchMs=500, rowsPerSecond=24.0, failures=3)
    post(exchange, "copy", body)
    exchange.clock.advance(2)
    text = exchange.request("GET", "/metrics", token=None).text
    samples = {
        (sample.name, sample.labels.get("partition", "")): (sample.value, sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("busway_pipeline_")
    }
    values = {key: value for key, (value, _) in samples.items()}
    assert values == {
        ("busway_pipeline_up", ""): 1,
        ("busway_pipeline_last_report_age_seconds", ""): 2,
        ("busway_pipeline_rows_total", ""): 12,
        ("busway_pipeline_rows_per_second", ""): 24,
        ("busway_pipeline_batch_seconds", ""): 0.5,
        ("busway_pipeline_failures_total", ""): 3,
        ("busway_pipeline_lag_events", "0"): 6,
        ("busway_pipeline_lag_events", "1"): 0,
        ("busway_pipeline_lag_bytes", "0"): values["busway_pipeline_lag_bytes", "0"],
        ("busway_pipeline_lag_bytes", "1"): 0,
        ("busway_pipeline_lag_seconds", "0"): 2,
        ("busway_pipeline_lag_seconds", "1"): 0,
    }
    assert values["busway_pipeline_lag_bytes", "0"] > 600
    assert samples["busway_pipeline_lag_events", "0"][1] == {
        "pipeline": "copy",
        "entity": "clicks",
        "consumer_group": "$Default",
        "partition": "0",
    }
    exchange.clock.advance(29)
    assert 'busway_pipeline_up{pipeline="copy"} 0.0' in exchange.request("GET", "/metrics", token=None).text
