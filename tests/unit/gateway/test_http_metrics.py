"""`/metrics`: what is in it, and who may see it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from busway.gateway.http.app import HttpSettings
from busway.message.message import Message
from busway.model.descriptions import (
    QueueDescription,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.errors import EntityNotFound
from busway.model.flow import NAMESPACE_ONLY, FlowTable
from busway.signals.exposition import Exposition
from busway.signals.measured_process import MeasuredProcess
from busway.signals.metrics import ABSENT, COUNTER, GAUGE, METRICS
from tests.unit.gateway.http_exchange import HOST, VERSION, Answer, Exchange, queue_body, sas_token

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "monitoring.md"
#: O-1, as the service documents them.
SERVICE_NAMES = [
    "SuccessfulRequests", "ServerErrors", "UserErrors", "ThrottledRequests",
    "IncomingRequests", "IncomingMessages", "OutgoingMessages", "IncomingBytes",
    "OutgoingBytes", "ActiveConnections", "ConnectionsOpened", "ConnectionsClosed",
    "Size", "Messages", "ActiveMessages", "DeadletteredMessages",
    "ScheduledMessages", "CompleteMessage", "AbandonMessage", "PendingCheckpointOperationCount",
    "ServerSendLatency", "NamespaceCpuUsage", "NamespaceMemoryUsage", "ReplicationLagDuration",
    "ReplicationLagCount", "CPUXNS", "WSXNS",
]  # fmt: skip
#: O-6: what event hubs have besides.
HUB_NAMES = ["QuotaExceededErrors", "CapturedMessages", "CapturedBytes", "CaptureBacklog"]
NETWORK = HttpSettings(None)

Samples = dict[tuple[str, str], float]


def samples(text: str) -> Samples:
    """(name, entity) → value; the steps of histograms are left out."""
    return {
        (sample.name, sample.labels.get("entity", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


def scrape(exchange: Exchange) -> Samples:
    answer = exchange.request("GET", "/metrics", token=None)
    assert answer.status == 200
    return samples(answer.text)


@pytest.fixture
def network() -> Iterator[Exchange]:
    with Exchange(NETWORK) as made:
        yield made


# -- names


def test_every_name_of_the_service_has_ours_or_a_reason() -> None:
    """O-1, O-6: none is forgotten."""
    ours = {metric.service_name for metric in METRICS if metric.service_name}
    assert ours | set(ABSENT) == {*SERVICE_NAMES, *HUB_NAMES}
    assert not ours & set(ABSENT)


def test_names_follow_the_rules_of_prometheus() -> None:
    """O-5: flows are sums and end in _total; depths and sizes are gauges and do not."""
    for metric in METRICS:
        assert re.fullmatch("busway_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == COUNTER)
    gauges = {metric.service_name for metric in METRICS if metric.kind == GAUGE}
    assert gauges >= {"ActiveMessages", "DeadletteredMessages", "ScheduledMessages", "Messages", "Size"}


def test_the_documentation_has_the_same_table() -> None:
    """O-1: what the page says is what is served."""
    text = PAGE.read_text()
    for metric in METRICS:
        name = f"`{metric.name}`"
        shown = metric.service_name or "–"
        assert f"| {shown} | {name} | {metric.kind} | {metric.meaning} |" in text
    for name, reason in ABSENT.items():
        assert f"| {name} | – | – | {reason} |" in text


# -- figures


def test_an_idle_queue_has_gauges_only(exchange: Exchange) -> None:
    """O-5, E-100: nothing has flowed, so there is nothing to add up."""
    exchange.request("PUT", f"/Orders?{VERSION}", queue_body())
    found = {name: value for (name, entity), value in scrape(exchange).items() if entity == "Orders"}
    assert found == {
        "busway_active_messages": 0,
        "busway_deadlettered_messages": 0,
        "busway_scheduled_messages": 0,
        "busway_messages": 0,
        "busway_size_bytes": 0,
    }


def test_a_queue_in_use_has_flows_too(exchange: Exchange) -> None:
    """O-1, O-5, E-100, E-101: counters grow, gauges follow the depth."""
    exchange.request("PUT", f"/orders?{VERSION}", queue_body())
    later = Message(b"", b"later", scheduled_at_ms=exchange.clock.wall_ms() + 60_000)

    async def send() -> None:
        queue = exchange.namespace.queue("orders")
        await queue.schedule([Message(b"", b"12345"), Message(b"", b"1"), later])

    exchange.run(send())
    found = scrape(exchange)
    assert found["busway_incoming_messages_total", "orders"] == 3
    assert found["busway_incoming_bytes_total", "orders"] == 11
    assert found["busway_outgoing_messages_total", "orders"] == 0
    assert found["busway_server_send_latency_seconds_count", "orders"] == 3
    assert found["busway_active_messages", "orders"] == 2
    assert found["busway_scheduled_messages", "orders"] == 1
    assert found["busway_messages", "orders"] == 3
    assert found["busway_size_bytes", "orders"] == 11


def test_requests_to_the_namespace_have_a_name_of_their_own(exchange: Exchange) -> None:
    """O-2, O-3: EntityName -NamespaceOnlyMetric-; a refused request is a user error."""
    before = scrape(exchange)
    exchange.request("PUT", f"/orders?{VERSION}", queue_body())
    exchange.request("PUT", f"/orders?{VERSION}", queue_body())
    exchange.request("GET", f"/orders?{VERSION}", token="nonsense")
    exchange.request("GET", f"/orders?{VERSION}", host="rebound.example")
    after = scrape(exchange)

    def grown(name: str) -> float:
        return after[name, NAMESPACE_ONLY] - before[name, NAMESPACE_ONLY]

    assert grown("busway_user_errors_total") == 3
    assert grown("busway_successful_requests_total") == 2  # and the scrape before
    assert grown("busway_incoming_requests_total") == 5
    assert grown("busway_server_errors_total") == 0


def test_requests_about_messages_count_for_their_entity(exchange: Exchange) -> None:
    """O-2: and names that strangers ask for make no entry."""
    exchange.request("PUT", f"/orders?{VERSION}", queue_body())
    exchange.namespace.queue("orders")
    exchange.request("POST", "/orders/messages", "x", token="nonsense")
    exchange.request("POST", "/nosuch/messages", "x", token="nonsense")
    found = scrape(exchange)
    assert found["busway_user_errors_total", "orders"] == 1
    assert "nosuch" not in {entity for _, entity in found}


def test_a_deleted_queue_leaves_the_figures(exchange: Exchange) -> None:
    """O-1, E-86: its successor starts from zero."""
    for _ in range(2):
        exchange.request("PUT", f"/orders?{VERSION}", queue_body())
        queue = exchange.namespace.queue("orders")
        assert queue.main.flow.messages_in == 0
        exchange.run(queue.schedule([Message(b"", b"x")]))
        assert scrape(exchange)["busway_incoming_messages_total", "orders"] == 1
        exchange.request("DELETE", f"/orders?{VERSION}")
        assert "orders" not in {entity for _, entity in scrape(exchange)}


def test_an_entity_without_its_store_has_no_gauges(exchange: Exchange) -> None:
    """E-104: unknown is not zero; what flowed before stays, also when the store comes back."""
    exchange.request("PUT", f"/orders?{VERSION}", queue_body())
    exchange.run(exchange.namespace.queue("orders").schedule([Message(b"", b"x")]))
    for store in ("store-0", "store-1"):
        exchange.request("POST", f"/$stores/{store}/disable")
    found = scrape(exchange)
    assert ("busway_active_messages", "orders") not in found
    assert found["busway_incoming_messages_total", "orders"] == 1
    assert 'busway_stores{state="disabled"}' in exchange.request("GET", "/metrics", token=None).text
    for store in ("store-0", "store-1"):
        exchange.request("POST", f"/$stores/{store}/enable")
    exchange.run(exchange.namespace.queue("orders").schedule([Message(b"", b"x")]))
    found = scrape(exchange)
    assert found["busway_incoming_messages_total", "orders"] == 2


def test_the_process_is_measured(exchange: Exchange) -> None:
    """O-1: NamespaceCpuUsage, NamespaceMemoryUsage."""
    found = scrape(exchange)
    assert 0 < found["busway_cpu_seconds_total", ""] < time.process_time() + 60
    assert found["busway_memory_bytes", ""] > 1_000_000


# -- who may see them


def test_on_loopback_no_token_is_asked_for(exchange: Exchange) -> None:
    """A-11: whoever may see the status page may see these."""
    answer = exchange.request("GET", "/metrics", token=None)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert exchange.request("HEAD", "/metrics", token=None).status == 200


def test_on_loopback_a_page_of_another_site_sees_nothing(exchange: Exchange) -> None:
    """A-11: neither by its name nor by its origin."""
    assert exchange.request("GET", "/metrics", token=None, host="rebound.example").status == 403
    answer = exchange.request("GET", "/metrics", headers={"origin": "https://evil.example"}, token=None)
    assert answer.status == 403


@pytest.mark.parametrize(
    ("rights", "status"), [(["Listen"], 200), (["Send"], 401), (["Manage", "Send", "Listen"], 200)]
)
def test_in_a_network_a_right_on_the_namespace_is_needed(
    network: Exchange, rights: list[str], status: int
) -> None:
    """A-9: Listen or Manage; Send is not enough."""
    assert (
        network.request("PUT", "/$rules/scraper", json.dumps({"rights": rights, "primaryKey": "k"})).status
        == 201
    )
    token = sas_token(f"https://{HOST}/", "scraper", "k")
    answer = network.request("GET", "/metrics", token=token)
    assert answer.status == status
    assert ("busway_messages" in answer.text) == (status == 200)


@pytest.mark.parametrize(
    "token",
    [
        None,
        "",
        "Bearer x",
        sas_token(f"https://{HOST}/", key="wrong"),
        sas_token(f"https://{HOST}/", expiry=1_600_000_000),
        sas_token(f"https://{HOST}/orders"),
        sas_token(f"https://{HOST}/metrics"),
        sas_token("https://other.example/"),
    ],
)
def test_in_a_network_nothing_less_than_a_good_token_will_do(network: Exchange, token: str | None) -> None:
    """A-6, A-9: 401 and not one name."""
    network.request("PUT", f"/hidden-queue?{VERSION}", queue_body())
    answer = network.request("GET", "/metrics", token=token)
    assert answer.status == 401
    assert "hidden" not in answer.text


def test_a_rule_of_an_entity_called_metrics_opens_nothing(network: Exchange) -> None:
    """A-9: the namespace's figures are not that queue's to give."""
    rule = (
        '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        "<Rights><AccessRights>Listen</AccessRights></Rights><KeyName>own</KeyName>"
        "<PrimaryKey>k</PrimaryKey><SecondaryKey>l</SecondaryKey></AuthorizationRule></AuthorizationRules>"
    )
    assert network.request("PUT", f"/metrics?{VERSION}", queue_body(rule)).status == 201
    for scope in ("", "metrics"):
        token = sas_token(f"https://{HOST}/{scope}", "own", "k")
        assert network.request("GET", "/metrics", token=token).status == 401


def test_a_queue_may_be_called_metrics(exchange: Exchange) -> None:
    """E-2: administration clients, who name their API's version, mean the queue."""
    made = exchange.request("PUT", f"/metrics?{VERSION}", queue_body())
    assert made.status == 201
    read = exchange.request("GET", f"/metrics?{VERSION}")
    assert "QueueDescription" in read.text
    assert exchange.request("GET", f"/metrics?{VERSION}", token=None).status == 401
    assert ("busway_messages", "metrics") in scrape(exchange)


def test_health_says_only_that_we_live(network: Exchange) -> None:
    """A-11: open to everybody, in a network too."""
    answer = network.request("GET", "/health", token=None)
    assert (answer.status, json.loads(answer.text)) == (200, {"status": "healthy"})


# -- cost


class ManyQueues:
    """A namespace of ten thousand queues, some of which go away while they are looked at."""

    def __init__(self, count: int, gone: frozenset[str] = frozenset()) -> None:
        self.flows = FlowTable()
        self.looks = 0
        self._paths = [f"queue-{number}" for number in range(count)]
        self._gone = gone

    def queues(self) -> list[QueueDescription]:
        self.looks += 1
        return [QueueDescription(path) for path in self._paths]

    def topics(self) -> list[TopicDescription]:
        return []

    def subscriptions(self, topic_path: str) -> list[SubscriptionDescription]:
        raise AssertionError(f"there is no topic {topic_path}")

    async def counts_of(self, paths: list[str]) -> list[RuntimeCounts]:
        if self._gone.intersection(paths):
            raise EntityNotFound
        return [RuntimeCounts(active=1) for _ in paths]

    @property
    def stores(self) -> ManyQueues:
        return self

    def shown(self) -> list[dict[str, object]]:
        return [{"name": "store-0", "state": "open", "epoch": None, "lost_commits": 0}]


def test_ten_thousand_queues_delay_nobody() -> None:
    """O-1, L-3: a scrape gives way again and again, and is written in less than a second of processor time."""
    namespace = ManyQueues(10_000)

    async def run() -> tuple[bytes, int]:
        scraping = asyncio.get_running_loop().create_task(Exposition(namespace).text())
        turns = 0
        while not scraping.done():
            turns += 1
            await asyncio.sleep(0)
        return scraping.result(), turns

    began = time.thread_time()
    text, turns = asyncio.run(run())
    assert text.count(b'entity="queue-') == 50_000
    assert turns >= 50
    assert time.thread_time() - began < 5  # without an idle machine's luck


def test_those_who_ask_at_once_share_one_scrape() -> None:
    """O-1: many scrapers cost no more than one."""
    namespace = ManyQueues(500)
    exposition = Exposition(namespace)

    async def run() -> list[bytes]:
        return list(await asyncio.gather(*(exposition.text() for _ in range(20))))

    texts = asyncio.run(run())
    assert namespace.looks == 1
    assert set(texts) == {texts[0]}


def test_a_scraper_that_leaves_takes_nothing_from_the_others() -> None:
    """O-1: the shared scrape goes on; a later one is a new one."""
    namespace = ManyQueues(500)
    exposition = Exposition(namespace)

    async def run() -> None:
        leaving = asyncio.get_running_loop().create_task(exposition.text())
        staying = asyncio.get_running_loop().create_task(exposition.text())
        await asyncio.sleep(0)
        leaving.cancel()
        assert b"busway_messages" in await staying
        await exposition.text()

    asyncio.run(run())
    assert namespace.looks == 2


def test_a_queue_that_goes_away_during_a_scrape_is_left_out() -> None:
    """O-1: the others are told all the same."""
    text = asyncio.run(Exposition(ManyQueues(300, frozenset({"queue-7"}))).text()).decode()
    entities = {entity for name, entity in samples(text) if name == "busway_messages"}
    assert entities == {f"queue-{number}" for number in range(300)} - {"queue-7"}


# -- secrets


def test_what_strangers_send_is_not_in_the_log(exchange: Exchange, caplog: pytest.LogCaptureFixture) -> None:
    """A-4, O-7: neither tokens nor keys, at the most talkative level, refused or not."""
    token = sas_token(f"https://{HOST}/", key="wrong")
    secrets = [part for part in re.split("[=& ]", token) if len(part) > 40]
    with caplog.at_level(logging.DEBUG):
        answers: list[Answer] = [
            exchange.request("GET", f"/orders?{VERSION}", token=token),
            exchange.request("GET", f"/orders?{VERSION}", token=token + "&"),
            exchange.request(
                "PUT", "/$rules/x", json.dumps({"rights": ["Listen"], "primaryKey": "my-own-key"})
            ),
            exchange.request("PUT", f"/orders?{VERSION}", queue_body()),
        ]
    assert [answer.status for answer in answers] == [401, 401, 201, 201]
    for secret in [*secrets, "my-own-key"]:
        assert secret not in caplog.text


class CountedStagings:
    def figures(self) -> list[float]:
        return [1, 2, 3, 4, 5, 6, 7]


def test_writes_in_two_phases_have_their_figures() -> None:
    """Staging: what is staged, what waits, what was published, dropped and abandoned."""
    process = MeasuredProcess(staging=CountedStagings())
    found = samples(asyncio.run(Exposition(ManyQueues(0), process=process).text()).decode())
    assert found["busway_staging_stages", ""] == 1
    assert found["busway_staging_undecided_bytes", ""] == 2
    assert found["busway_staging_published_rows_total", ""] == 5
    assert found["busway_staging_abandoned_rows_total", ""] == 7


class CountedJournal:
    rows = 12
    rows_left_out = 3


def test_a_journal_has_its_figures_and_none_has_none() -> None:
    """Journal: rows written and rows left out."""

    async def scraped(journal: CountedJournal | None) -> Samples:
        return samples((await Exposition(ManyQueues(0), process=MeasuredProcess(journal)).text()).decode())

    found = asyncio.run(scraped(CountedJournal()))
    assert found["busway_journal_rows_total", ""] == 12
    assert found["busway_journal_rows_left_out_total", ""] == 3
    assert not [name for name, _ in asyncio.run(scraped(None)) if "journal" in name]
