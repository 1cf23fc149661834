"""Messages, claims and events over HTTP."""

from __future__ import annotations

import json
from struct import pack
from uuid import UUID

from busway.amqp.encode import encode_value
from busway.amqp.type_table import Disposition, Rejected
from busway.model.descriptions import LISTEN, MANAGE, SEND
from busway.streams.hub_descriptions import ConsumerGroupDescription
from tests.cost.http_client import VERSION
from tests.cost.row import HTTP, row
from tests.cost.rows_http import described
from tests.cost.rows_management import locked
from tests.cost.rows_sending import BATCH_FORMAT, NOTHING, envelope
from tests.cost.scene import Scene, payload

BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


def batch_body(n: int) -> bytes:
    return json.dumps([{"Body": "x"} for _ in range(n)]).encode()


@row(SEND, HTTP, "Messages.send", "send {n} messages in one batch", 5_000, few=250)
def send_batch(scene: Scene, n: int) -> None:
    scene.ask_http("POST", f"{scene.queue()}/messages", batch_body(n), BATCH, status=201)


@row(SEND, HTTP, "Messages.send", "send a message of {n} bytes with 25 KB of properties", 200_000)
def send_one(scene: Scene, n: int) -> None:
    properties = {f"x{i}": f'"{"y" * 90}"' for i in range(250)}
    scene.ask_http("POST", f"{scene.queue()}/messages", bytes(n), properties, status=201)


@row(SEND, HTTP, "HubMessages.publish", "publish {n} events in one batch", 32_000, few=500, unread=1)
def publish(scene: Scene, n: int) -> None:
    scene.ask_http("POST", f"{scene.hub()}/messages", json.dumps([{}] * n).encode(), BATCH, status=201)


@row(SEND, HTTP, "HubMessages.publish", "publish {n} events in one batch, which is too many", 300_000)
def publish_too_many(scene: Scene, n: int) -> None:
    status = 201 if n < 32_000 else 403
    body = b"[" + b"{}," * (n - 1) + b"{}]"
    scene.ask_http("POST", f"{scene.hub()}/messages", body, BATCH, status=status)


@row(LISTEN, HTTP, "Messages.receive", "receive a message of {n} bytes", 250_000)
def receive(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, 1, n)
    scene.ask_http("POST", f"{path}/messages/head?timeout=1", status=201)


@row(
    LISTEN,
    HTTP,
    "Messages.settle",
    "complete a message among {n} locked ones",
    2_000,
    few=250,
    growth="flat",
)
def settle(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n)
    ours = locked(scene.client(), path, n)
    token = UUID(bytes_le=ours[0][1])
    scene.ask_http("DELETE", f"{path}/messages/1/{token}")


@row(LISTEN, HTTP, "Messages.renew", "renew the lock of one message")
def renew_lock(scene: Scene, _n: int) -> None:
    path = scene.queue()
    scene.fill(path, 1)
    ours = locked(scene.client(), path, 1)
    scene.ask_http("POST", f"{path}/messages/1/{UUID(bytes_le=ours[0][1])}")


# -- claims


def _taken(scene: Scene, n: int, *verbs: str) -> tuple[str, bytes]:
    """A claim of so many messages; the path before its verbs, and its runs."""
    path = scene.queue()
    scene.fill(path, n)
    base = f"{path}/$claims/mine"
    runs = json.dumps({"held": [[1, n]]}).encode()
    for verb in verbs:
        client = scene.http()
        query = f"?count={n}&wait=0" if verb == "take" else ""
        assert client.ask("POST", f"{base}/{verb}{query}", b"" if verb == "take" else runs) == 200
    return base, runs


@row(LISTEN, HTTP, "ClaimsRoute.take", "take {n} messages", 20_000, few=500)
def take(scene: Scene, n: int) -> None:
    base, _ = _taken(scene, n)
    scene.ask_http("POST", f"{base}/take?count={n}&wait=0")


@row(LISTEN, HTTP, "ClaimsRoute.renew", "renew a claim of {n} messages", 20_000, few=500)
def renew(scene: Scene, n: int) -> None:
    base, _ = _taken(scene, n, "take")
    scene.ask_http("POST", f"{base}/renew")


@row(LISTEN, HTTP, "ClaimsRoute.hold", "hold a claim of {n} messages", 10_000, few=500)
def hold(scene: Scene, n: int) -> None:
    base, runs = _taken(scene, n, "take")
    scene.ask_http("POST", f"{base}/hold", runs)


@row(LISTEN, HTTP, "ClaimsRoute.read", "read a claim of {n} messages", 10_000, few=500)
def read(scene: Scene, n: int) -> None:
    base, runs = _taken(scene, n, "take", "hold")
    scene.ask_http("POST", f"{base}/read", runs)


@row(LISTEN, HTTP, "ClaimsRoute.settle", "settle a claim of {n} messages", 10_000, few=500)
def settle_claim(scene: Scene, n: int) -> None:
    base, runs = _taken(scene, n, "take", "hold")
    scene.ask_http("POST", f"{base}/settle", runs)


@row(LISTEN, HTTP, "ClaimsRoute.release", "release a claim of {n} messages", 10_000, few=500)
def release(scene: Scene, n: int) -> None:
    base, _ = _taken(scene, n, "take", "hold")
    scene.ask_http("POST", f"{base}/release")


@row(LISTEN, HTTP, "ClaimsRoute.claims", "list the claims on {n} messages", 10_000, few=500)
def list_claims(scene: Scene, n: int) -> None:
    base, _ = _taken(scene, n, "take", "hold")
    scene.ask_http("GET", base.rpartition("/")[0])


@row(LISTEN, HTTP, "ClaimsRoute.settle", "settle {n} messages of which none is held", 100_000, few=2_000)
def settle_missing(scene: Scene, n: int) -> None:
    path = scene.queue()
    runs = json.dumps({"held": [[1, n]]}).encode()
    scene.ask_http("POST", f"{path}/$claims/mine/settle", runs)


@row(LISTEN, HTTP, "ClaimsRoute.read", "read {n} runs of which none is held", 100_000, few=2_000)
def read_scattered(scene: Scene, n: int) -> None:
    path = scene.queue()
    runs = json.dumps({"held": [[2 * i + 1, 1] for i in range(n)]}).encode()
    scene.ask_http("POST", f"{path}/$claims/mine/read", runs)


# -- event hubs


@row(LISTEN, HTTP, "PartitionsRoute.tell", "wait for news of {n} partitions", 32, few=8)
def hub_news(scene: Scene, n: int) -> None:
    path = scene.hub(n)
    known = ",".join(["0"] * n)
    scene.ask_http("GET", f"{path}/partitions?known={known}&wait=0.05")


@row(LISTEN, HTTP, "BulkRoute.read", "read {n} events in bulk", 50_000, few=2_000, unread=1)
def bulk(scene: Scene, n: int) -> None:
    path = _events(scene, n)
    scene.ask_http("GET", f"{path}/partitions/0/events")


@row(LISTEN, HTTP, "BulkRoute.read", "read {n} events in bulk as Arrow", 50_000, few=2_000)
def bulk_arrow(scene: Scene, n: int) -> None:
    path = _events(scene, n)
    scene.ask_http("GET", f"{path}/partitions/0/events?format=arrow")


def _events(scene: Scene, n: int) -> str:
    path = scene.hub()
    sender = scene.client(MANAGE)
    link = sender.attach(path, sends=True)
    part = 25_000
    for at in range(0, n, part):
        events = envelope([NOTHING] * min(part, n - at))
        sender.write(sender.transfers(link, [events], message_format=BATCH_FORMAT))
        sender.hear(Settled=1)
    return path


@row(MANAGE, HTTP, "HubRoutes.hubs", "list {n} hubs of 32 partitions", 40, few=5, is_crowded=True)
def list_hubs(scene: Scene, n: int) -> None:
    for _ in range(n):
        scene.hub(32)
    scene.ask_http("GET", "$eventhubs")


@row(MANAGE, HTTP, "HubRoutes.put_hub", "create a hub of {n} partitions", 32)
def create_hub(scene: Scene, n: int) -> None:
    body = json.dumps({"PartitionCount": n, "ConsumerGroups": [f"g{i}" for i in range(19)]}).encode()
    scene.ask_http("PUT", f"$eventhubs/{scene.name('h')}", body, status=201)


@row(MANAGE, HTTP, "HubRoutes.delete_hub", "delete a hub with {n} events", 50_000)
def delete_hub(scene: Scene, n: int) -> None:
    scene.ask_http("DELETE", f"$eventhubs/{_events(scene, n)}")


@row(MANAGE, HTTP, "HubRoutes.put_group", "create a consumer group")
def create_group(scene: Scene, _n: int) -> None:
    scene.ask_http("PUT", f"$eventhubs/{scene.hub()}/consumergroups/g", b"{}", status=201)


@row(MANAGE, HTTP, "ConsumerGroupRoutes.put", "create a consumer group with {n} characters", 1_024)
def create_group_in_atom(scene: Scene, n: int) -> None:
    body = described("ConsumerGroupDescription", f"<UserMetadata>{'&lt;' * n}</UserMetadata>")
    scene.ask_http("PUT", f"{scene.hub()}/consumergroups/g?{VERSION}", body, status=201)


@row(MANAGE, HTTP, "ConsumerGroupRoutes.groups", "list {n} consumer groups", 19)
def list_groups(scene: Scene, n: int) -> None:
    scene.ask_http("GET", f"{_grouped(scene, n)}/consumergroups?{VERSION}")


@row(MANAGE, HTTP, "ConsumerGroupRoutes.delete", "delete one of {n} consumer groups", 19)
def delete_group(scene: Scene, n: int) -> None:
    scene.ask_http("DELETE", f"{_grouped(scene, n)}/consumergroups/g0?{VERSION}")


@row(MANAGE, HTTP, "ConsumerGroupRoutes.group", "look at one of {n} consumer groups", 19)
def show_group_in_atom(scene: Scene, n: int) -> None:
    scene.ask_http("GET", f"{_grouped(scene, n)}/consumergroups/g0?{VERSION}")


@row(MANAGE, HTTP, "HubRoutes.group", "look at one of {n} consumer groups, in JSON", 19)
def show_group(scene: Scene, n: int) -> None:
    scene.ask_http("GET", f"$eventhubs/{_grouped(scene, n)}/consumergroups/g0")


@row(MANAGE, HTTP, "HubRoutes.groups", "list {n} consumer groups, in JSON", 19)
def list_groups_in_json(scene: Scene, n: int) -> None:
    scene.ask_http("GET", f"$eventhubs/{_grouped(scene, n)}/consumergroups")


@row(MANAGE, HTTP, "HubRoutes.delete_group", "delete one of {n} consumer groups, in JSON", 19)
def delete_group_in_json(scene: Scene, n: int) -> None:
    scene.ask_http("DELETE", f"$eventhubs/{_grouped(scene, n)}/consumergroups/g0")


@row(MANAGE, HTTP, "HubRoutes.hub", "look at a hub of {n} partitions", 32)
def show_hub(scene: Scene, n: int) -> None:
    scene.ask_http("GET", f"$eventhubs/{scene.hub(n)}")


@row(MANAGE, HTTP, "HubRoutes.partitions", "look at {n} partitions", 32)
def show_partitions(scene: Scene, n: int) -> None:
    scene.ask_http("GET", f"$eventhubs/{scene.hub(n)}/partitions")


def _grouped(scene: Scene, n: int) -> str:
    hub = scene.hub()
    for each in range(n):
        scene.world.run(scene.world.hubs.create_group(ConsumerGroupDescription(hub, f"g{each}", "<" * 1_024)))
    return hub


# -- history


@row(MANAGE, HTTP, "BackfillRoute.beginnings", "ask when rules began")
def beginnings(scene: Scene, _n: int) -> None:
    scene.ask_http("GET", f"$backfill/{scene.topic(1)}/Subscriptions/s0")


@row(MANAGE, HTTP, "BackfillRoute.store", "store {n} historic copies", 10_000, few=250, unread=1)
def backfill(scene: Scene, n: int) -> None:
    path = f"{scene.topic(1)}/Subscriptions/s0"
    message = payload()
    pieces = []
    for i in range(n):
        name = f"id-{i}".encode()
        pieces += [pack(">I", len(name)), name, pack(">I", 0), pack(">I", len(message)), message]
    scene.ask_http("POST", f"$backfill/{path}?fragment=0", b"".join(pieces))


# -- dead letters


def _buried(scene: Scene, n: int) -> str:
    """A queue with so many dead letters, numbered from 1 on."""
    path = scene.queue()
    scene.fill(path, n)
    client = scene.client(MANAGE)
    ours = locked(client, path, n)
    client.say(Disposition(True, ours[0][0], ours[-1][0], False, Rejected()))
    client.hear(Settled=n)
    return path


@row(MANAGE, HTTP, "LettersRoute.move", "move {n} dead letters", 5_000, few=250)
def move_letters(scene: Scene, n: int) -> None:
    path = _buried(scene, n)
    scene.ask_http("POST", f"$deadletters/{path}", b"".join(pack(">QI", at + 1, 0) for at in range(n)))


@row(MANAGE, HTTP, "LettersRoute.move", "move {n} dead letters and change each", 5_000, few=250)
def change_letters(scene: Scene, n: int) -> None:
    path = _buried(scene, n)
    changes = encode_value({"properties.tenant": "t"})
    letter = b"".join(pack(">QI", at + 1, len(changes)) + changes for at in range(n))
    scene.ask_http("POST", f"$deadletters/{path}", letter)
