"""Managing over HTTP, and what nobody needs a key for."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from busway.model.descriptions import LISTEN, MANAGE, QueueDescription
from busway.rules.rule import CorrelationFilter, Rule, SqlFilter, TypedValue
from busway.safekeeping.draft import Draft
from tests.cost.amqp_client import AmqpClient, web_frame
from tests.cost.http_client import VERSION
from tests.cost.row import FLAT, HTTP, NOBODY, WEBSOCKET, row
from tests.cost.scene import Scene

_CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_TYPES = "http://www.w3.org/2001/XMLSchema-instance"
ANY = {"If-Match": "*"}
_HOUR_MS = 3_600_000


def entry(content: str) -> bytes:
    return (
        f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">{content}</content></entry>'
    ).encode()


def described(kind: str, inside: str = "") -> bytes:
    return entry(f'<{kind} xmlns="{_CONNECT}" xmlns:i="{_TYPES}">{inside}</{kind}>')


def crowd(scene: Scene, n: int, **properties: object) -> None:
    """So many queues that are nobody's business."""
    scene.create(*(QueueDescription(f"crowd-{i}", **properties) for i in range(n)))


# -- nobody


@row(
    NOBODY, HTTP, "MetricsRoute.answer", "ask for the figures of {n} queues", 2_000, few=100, is_crowded=True
)
def metrics(scene: Scene, n: int) -> None:
    crowd(scene, n)

    async def used() -> None:
        for i in range(n):
            scene.namespace.queue(f"crowd-{i}")

    scene.world.run(used())
    scene.ask_http("GET", "metrics")


@row(NOBODY, HTTP, "StatusPage.ready", "ask {n} times in one go whether it is ready", 1_500, few=50)
def asked_for_readiness(scene: Scene, n: int) -> None:
    _pipeline(scene, "ready", n)


@row(NOBODY, HTTP, "StatusPage.health", "ask {n} times in one go whether it is healthy", 1_500, few=50)
def pipelined(scene: Scene, n: int) -> None:
    _pipeline(scene, "health", n)


def _pipeline(scene: Scene, path: str, n: int) -> None:
    client = scene.http()
    data = client.request("GET", path) * n
    with scene.measured():
        client.write(data)
        if scene.reads:
            for _ in range(n):
                assert client.hear() == 200


@row(NOBODY, HTTP, "HttpGateway._answer", "write a head of {n} headers", 1_000, few=100)
def headers(scene: Scene, n: int) -> None:
    scene.ask_http("GET", "health", headers={f"x-{i}": "y" for i in range(n)})


@row(NOBODY, HTTP, "Router.answer", "ask for anything with a body of {n} bytes", 60_000)
def nobodys_put(scene: Scene, n: int) -> None:
    scene.ask_http("PUT", f"some-queue?{VERSION}", bytes(n), status=401)


# -- queues and topics


@row(MANAGE, HTTP, "EntityRoutes.namespace_info", "ask what the namespace is like")
def namespace_info(scene: Scene, _n: int) -> None:
    scene.ask_http("GET", f"$namespaceinfo?{VERSION}")


@row(MANAGE, HTTP, "EntityRoutes.root", "ask for nothing")
def root(scene: Scene, _n: int) -> None:
    scene.ask_http("GET", f"?{VERSION}")


@row(MANAGE, HTTP, "EntityRoutes.queues", "list 100 of {n} queues", 2_000, few=250, is_crowded=True)
def list_queues(scene: Scene, n: int) -> None:
    crowd(scene, n)
    scene.ask_http("GET", f"$Resources/queues?$skip=0&$top=100&{VERSION}")


@row(
    MANAGE, HTTP, "EntityRoutes.topics", "list topics with {n} subscriptions", 1_500, few=100, is_crowded=True
)
def list_topics(scene: Scene, n: int) -> None:
    scene.topic(n)
    scene.ask_http("GET", f"$Resources/topics?{VERSION}")


@row(MANAGE, HTTP, "EntityRoutes.entity", "look at a topic with {n} subscriptions", 2_000, few=100)
def get_topic(scene: Scene, n: int) -> None:
    path = scene.topic(n)
    scene.ask_http("GET", f"{path}?{VERSION}")


@row(
    MANAGE,
    HTTP,
    "EntityRoutes._create",
    "create a queue beside {n} that delete themselves",
    1_500,
    few=250,
    growth=FLAT,
    is_crowded=True,
)
def create_queue(scene: Scene, n: int) -> None:
    crowd(scene, n, auto_delete_on_idle_ms=_HOUR_MS)
    scene.ask_http("PUT", f"{scene.name()}?{VERSION}", described("QueueDescription"), status=201)


@row(MANAGE, HTTP, "EntityRoutes._create", "create a queue with {n} elements that nobody knows", 60, few=15)
def create_strange(scene: Scene, n: int) -> None:
    inside = "".join(f"<E{i}>x</E{i}>" for i in range(n))
    scene.ask_http("PUT", f"{scene.name()}?{VERSION}", described("QueueDescription", inside), status=201)


@row(MANAGE, HTTP, "EntityRoutes._update", "disable a queue with {n} receivers", 500, few=50)
def disable_queue(scene: Scene, n: int) -> None:
    path = scene.queue()
    client = scene.client()
    client.write(b"".join(client.attach_frame(path, sends=False)[1] for _ in range(n)))
    client.hear(Attach=n)
    body = described("QueueDescription", "<Status>Disabled</Status>")
    scene.ask_http("PUT", f"{path}?{VERSION}", body, ANY)


@row(
    MANAGE,
    HTTP,
    "EntityRoutes._update",
    "update a queue beside {n} that delete themselves",
    1_500,
    few=250,
    growth=FLAT,
    is_crowded=True,
)
def update_queue(scene: Scene, n: int) -> None:
    crowd(scene, n, auto_delete_on_idle_ms=_HOUR_MS)
    path = scene.queue(auto_delete_on_idle_ms=_HOUR_MS)
    body = described("QueueDescription", "<MaxDeliveryCount>7</MaxDeliveryCount>")
    scene.ask_http("PUT", f"{path}?{VERSION}", body, ANY)


@row(MANAGE, HTTP, "EntityRoutes.delete", "delete a topic with {n} subscriptions", 1_000, few=50)
def delete_topic(scene: Scene, n: int) -> None:
    scene.ask_http("DELETE", f"{scene.topic(n)}?{VERSION}")


@row(MANAGE, HTTP, "EntityRoutes.delete", "delete a queue with {n} messages", 20_000, few=1_000)
def delete_queue(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n)
    scene.ask_http("DELETE", f"{path}?{VERSION}")


# -- subscriptions and rules


@row(MANAGE, HTTP, "SubscriptionRoutes.subscriptions", "list 100 of {n} subscriptions", 2_000, few=100)
def list_subscriptions(scene: Scene, n: int) -> None:
    path = scene.topic(n)
    scene.ask_http("GET", f"{path}/Subscriptions?$skip=0&$top=100&{VERSION}")


@row(
    MANAGE,
    HTTP,
    "SubscriptionRoutes.subscription",
    "look at one of {n} subscriptions",
    1_000,
    few=100,
    growth=FLAT,
)
def get_subscription(scene: Scene, n: int) -> None:
    path = scene.topic(n)
    scene.ask_http("GET", f"{path}/Subscriptions/s7?{VERSION}")


@row(MANAGE, HTTP, "SubscriptionRoutes._create", "create a subscription beside {n}", 1_900, few=100)
def create_subscription(scene: Scene, n: int) -> None:
    path = scene.topic(n)
    scene.ask_http(
        "PUT", f"{path}/Subscriptions/new?{VERSION}", described("SubscriptionDescription"), status=201
    )


@row(MANAGE, HTTP, "SubscriptionRoutes._update", "update one of {n} subscriptions", 1_000, few=100)
def update_subscription(scene: Scene, n: int) -> None:
    path = scene.topic(n)
    body = described("SubscriptionDescription", "<MaxDeliveryCount>7</MaxDeliveryCount>")
    scene.ask_http("PUT", f"{path}/Subscriptions/s7?{VERSION}", body, ANY)


@row(MANAGE, HTTP, "SubscriptionRoutes.delete", "delete one of {n} subscriptions", 1_000, few=100)
def delete_subscription(scene: Scene, n: int) -> None:
    path = scene.topic(n)
    scene.ask_http("DELETE", f"{path}/Subscriptions/s7?{VERSION}")


def _rules(n: int) -> tuple[Rule, ...]:
    return tuple(Rule(f"r{i}", SqlFilter(f"a = {i} OR b LIKE '%{i}'")) for i in range(n))


LARGE = tuple((f"p{i}", TypedValue("string", "x" * 1_000)) for i in range(40))


@row(LISTEN, HTTP, "RuleRoutes.rules", "list {n} rules that compare 40 KB of properties", 100, unread=1)
def list_large_rules(scene: Scene, n: int) -> None:
    path = scene.topic(1, tuple(Rule(f"r{i}", CorrelationFilter(properties=LARGE)) for i in range(n)))
    scene.ask_http("GET", f"{path}/Subscriptions/s0/Rules?{VERSION}")


@row(MANAGE, HTTP, "RuleRoutes.rules", "list 100 of {n} rules", 2_000, few=150)
def list_rules(scene: Scene, n: int) -> None:
    path = scene.topic(1, _rules(n))
    scene.ask_http("GET", f"{path}/Subscriptions/s0/Rules?$skip=0&$top=100&{VERSION}")


@row(MANAGE, HTTP, "RuleRoutes.rule", "look at one of {n} rules", 1_000, few=100, growth=FLAT)
def get_rule(scene: Scene, n: int) -> None:
    path = scene.topic(1, _rules(n))
    scene.ask_http("GET", f"{path}/Subscriptions/s0/Rules/r7?{VERSION}")


def _rule_body(filter_xml: str) -> bytes:
    return described("RuleDescription", f"{filter_xml}<Name>new</Name>")


@row(MANAGE, HTTP, "RuleRoutes.put", "add a rule that compares {n} properties", 250, few=25)
def put_rule(scene: Scene, n: int) -> None:
    path = scene.topic(1)
    pairs = "".join(
        f"<KeyValueOfstringanyType><Key>p{i}</Key>"
        f'<Value xmlns:d="http://www.w3.org/2001/XMLSchema" i:type="d:string">x</Value></KeyValueOfstringanyType>'
        for i in range(n)
    )
    body = _rule_body(f'<Filter i:type="CorrelationFilter"><Properties>{pairs}</Properties></Filter>')
    scene.ask_http("PUT", f"{path}/Subscriptions/s0/Rules/new?{VERSION}", body, status=201)


@row(MANAGE, HTTP, "RuleRoutes.delete", "delete one of {n} rules", 1_000, few=100, growth=FLAT)
def delete_rule(scene: Scene, n: int) -> None:
    path = scene.topic(1, _rules(n))
    scene.ask_http("DELETE", f"{path}/Subscriptions/s0/Rules/r7?{VERSION}")


# -- operators


@row(MANAGE, HTTP, "OperatorRoutes.stores", "ask where {n} queues lie", 2_000, few=100, is_crowded=True)
def stores(scene: Scene, n: int) -> None:
    crowd(scene, n)
    scene.ask_http("GET", "$stores")


@row(MANAGE, HTTP, "NodesRoute.nodes", "ask who shares the stores")
def nodes(scene: Scene, _n: int) -> None:
    scene.ask_http("GET", "$nodes")


@row(
    MANAGE,
    HTTP,
    "OperatorRoutes.switch_store",
    "disable a store with {n} queues",
    1_000,
    few=100,
    is_crowded=True,
)
def switch_store(scene: Scene, n: int) -> None:
    crowd(scene, n)
    scene.leave(lambda: scene.world.run(scene.namespace.stores.enable("store-1")))
    scene.ask_http("POST", "$stores/store-1/disable")


@row(MANAGE, HTTP, "ResetRoute.reset", "ask for an empty bus that is not allowed")
def reset(scene: Scene, _n: int) -> None:
    scene.ask_http("POST", "$reset", status=403)


@row(MANAGE, HTTP, "BackupRoute.begin", "begin a backup of {n} messages", 20_000, few=1_000, growth=FLAT)
def begin_backup(scene: Scene, n: int) -> None:
    scene.fill(scene.queue(), n, 500)
    folder = Path(tempfile.mkdtemp(prefix="busway-cost-"))
    scene.leave(lambda: shutil.rmtree(folder))
    scene.leave(lambda: scene.world.wait_until(lambda: not scene.world.is_copying))
    target = folder / "copy"
    body = json.dumps({"to": str(target), "note": Draft(target).make()}).encode()
    scene.ask_http("POST", "$backup", body, status=202)


@row(MANAGE, HTTP, "BackupRoute.begin", "ask for a backup that nobody made a folder for")
def begin_backup_anywhere(scene: Scene, _n: int) -> None:
    body = json.dumps({"to": "/nowhere/copy", "note": "0" * 60_000}).encode()
    scene.ask_http("POST", "$backup", body, status=403)


@row(MANAGE, HTTP, "BackupRoute.tell", "ask how far a backup is")
def tell_backup(scene: Scene, _n: int) -> None:
    scene.ask_http("GET", "$backup")


@row(MANAGE, HTTP, "BackupRoute.stop", "stop a backup that is not under way")
def stop_backup(scene: Scene, _n: int) -> None:
    scene.ask_http("DELETE", "$backup")


@row(MANAGE, HTTP, "OperatorRoutes.fragments", "look at {n} fragments of a queue", 16)
def fragments(scene: Scene, _n: int) -> None:
    path = scene.queue(enable_partitioning=True)
    scene.ask_http("GET", f"$fragments/{path}")


@row(MANAGE, HTTP, "OperatorRoutes.rules", "list the keys of the namespace")
def key_rules(scene: Scene, _n: int) -> None:
    scene.ask_http("GET", "$rules")


@row(MANAGE, HTTP, "OperatorRoutes.put_rule", "change a key that {n} links stand on", 800, few=100)
def change_key(scene: Scene, n: int) -> None:
    path = scene.queue()
    client = scene.client(LISTEN)
    client.write(b"".join(client.attach_frame(path, sends=False)[1] for _ in range(n)))
    client.hear(Attach=n)
    body = json.dumps({"rights": ["Listen"]}).encode()
    scene.ask_http("PUT", "$rules/other", body, status=201)
    scene.ask_http("DELETE", "$rules/other")


@row(MANAGE, HTTP, "OperatorRoutes.rule", "look at a key")
def key_rule(scene: Scene, _n: int) -> None:
    scene.ask_http("GET", "$rules/RootManageSharedAccessKey")


@row(MANAGE, HTTP, "OperatorRoutes.delete_rule", "ask for a key's end that is not there")
def delete_key(scene: Scene, _n: int) -> None:
    scene.ask_http("DELETE", "$rules/nobody", status=404)


# -- WebSocket


@row(
    NOBODY,
    WEBSOCKET,
    "serve_websocket",
    "write {n} WebSocket messages of one byte",
    37_000,
    memory_bytes_max=8 << 20,
    unread=1,
)
def web_crumbs(scene: Scene, n: int) -> None:
    client = scene.client()
    _raw_flood(scene, client, web_frame(b"\x00") * n)


@row(NOBODY, WEBSOCKET, "serve_websocket", "ping {n} times", 43_000, memory_bytes_max=8 << 20)
def web_pings(scene: Scene, n: int) -> None:
    client = scene.client()
    _raw_flood(scene, client, web_frame(b"", 9) * n)


@row(
    NOBODY,
    WEBSOCKET,
    "serve_websocket",
    "write a WebSocket message in {n} pieces",
    37_000,
    memory_bytes_max=8 << 20,
    unread=1,
)
def web_pieces(scene: Scene, n: int) -> None:
    client = scene.client()
    piece = web_frame(b"\x00", 0, is_last=False)
    _raw_flood(scene, client, web_frame(b"\x00", 2, is_last=False) + piece * n)


def _raw_flood(scene: Scene, client: AmqpClient, data: bytes) -> None:
    with scene.measured():
        client.write_raw(data)
