"""Publishing: to queues, topics and event hubs, one by one, in batches and in transactions."""

from __future__ import annotations

from busway.amqp.performatives import (
    Accepted,
    Discharge,
    Disposition,
    Properties,
    TransactionalState,
    encode_performative,
)
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.model.descriptions import LISTEN, SEND
from busway.rules.rule import Rule, SqlAction, SqlFilter
from tests.cost.amqp_client import AmqpClient
from tests.cost.row import AMQP, FLAT, row
from tests.cost.rows_amqp import DECLARE
from tests.cost.rows_management import locked, sql_text
from tests.cost.scene import Scene, payload

BATCH_FORMAT = 0x8001_3700
#: The smallest message there is: an AMQP value, null.
NOTHING = b"\x00\x53\x77\x40"
#: As large as one property may be (L-4).
LONG_TEXT = "ab" * 16_000


def envelope(messages: list[bytes]) -> bytes:
    return encode_message(AmqpMessage(messages, DATA))


def _sent(scene: Scene, path: str, payloads: list[bytes], *, message_format: int = 0) -> None:
    client = scene.client()
    link = client.attach(path, sends=True)
    data = client.transfers(link, payloads * scene.times, message_format=message_format)
    with scene.measured():
        client.write(data)
        if scene.reads:
            client.hear(Settled=len(payloads))


@row(SEND, AMQP, "Transfer", "send {n} messages at once", 4_000, few=250)
def singles(scene: Scene, n: int) -> None:
    _sent(scene, scene.queue(), [payload()] * n)


@row(
    SEND,
    AMQP,
    "Transfer",
    "send {n} messages at once to a partitioned queue that detects duplicates",
    2_500,
    few=100,
)
def partitioned(scene: Scene, n: int) -> None:
    path = scene.queue(enable_partitioning=True, requires_duplicate_detection=True)
    _sent(scene, path, [payload(properties=Properties(message_id=f"m{i}")) for i in range(n)])


@row(SEND, AMQP, "Transfer", "send {n} messages of a session each", 2_500, few=100)
def of_sessions(scene: Scene, n: int) -> None:
    path = scene.queue(requires_session=True)
    _sent(scene, path, [payload(properties=Properties(group_id=f"s{i}")) for i in range(n)])


@row(SEND, AMQP, "Transfer", "send {n} messages of 256 KB", 40, unread=3)
def large(scene: Scene, n: int) -> None:
    _sent(scene, scene.queue(), [payload(255_000)] * n)


@row(SEND, AMQP, "Transfer", "send {n} messages in one batch", 15_000, few=500, unread=2)
def batch(scene: Scene, n: int) -> None:
    _sent(scene, scene.queue(), [envelope([NOTHING] * n)], message_format=BATCH_FORMAT)


@row(
    SEND,
    AMQP,
    "Transfer",
    "send {n} messages in one batch to a queue that detects duplicates",
    5_000,
    few=250,
)
def batch_of_ids(scene: Scene, n: int) -> None:
    path = scene.queue(requires_duplicate_detection=True)
    messages = [
        encode_message(AmqpMessage(None, properties=Properties(message_id=f"m{i}"))) for i in range(n)
    ]
    _sent(scene, path, [envelope(messages)], message_format=BATCH_FORMAT)


@row(
    SEND, AMQP, "Transfer", "send {n} messages in one batch to a topic with 100 subscriptions", 1_000, few=10
)
def published(scene: Scene, n: int) -> None:
    path = scene.topic(100)
    _sent(scene, path, [envelope([NOTHING] * n)], message_format=BATCH_FORMAT)


@row(SEND, AMQP, "Transfer", "send {n} messages one by one to a topic with 100 subscriptions", 300, few=10)
def published_singly(scene: Scene, n: int) -> None:
    _sent(scene, scene.topic(100), [payload()] * n)


@row(
    SEND,
    AMQP,
    "Transfer",
    "send a text of 32 KB to a subscription with {n} LIKEs over twice of it",
    52,
    few=13,
    growth=FLAT,
)
def searched(scene: Scene, n: int) -> None:
    """A rule may walk over so many letters and no more: thirteen are near that already."""
    path = scene.topic(1, (Rule("r", SqlFilter("OR".join(["(p+p)LIKE'%b_%'"] * n))),))
    _sent(scene, path, [payload(application_properties={"p": "a" * 32_000})])


@row(SEND, AMQP, "Transfer", "send a message with a text of 32 KB to {n} subscriptions with 45 LIKEs each", 8)
def filtered(scene: Scene, n: int) -> None:
    likes = " OR ".join(f"p LIKE '%a%b_c{i}%'" for i in range(45))
    path = scene.topic(n, (Rule("r", SqlFilter(likes)),))
    _sent(scene, path, [payload(application_properties={"p": LONG_TEXT})])


@row(
    SEND, AMQP, "Transfer", "send a message to {n} subscriptions whose actions set 30 properties", 100, few=10
)
def changed(scene: Scene, n: int) -> None:
    action = SqlAction("; ".join(f"SET p{i} = 'x'" for i in range(30)))
    path = scene.topic(n, (Rule("r", SqlFilter(sql_text(20) + " OR 1=1"), action),))
    _sent(scene, path, [payload(application_properties={f"q{i}": "y" * 100 for i in range(100)})])


@row(SEND, AMQP, "Transfer", "send {n} messages that are forwarded", 2_000, few=100)
def forwarded(scene: Scene, n: int) -> None:
    target = scene.queue()
    _sent(scene, scene.queue(forward_to=target), [payload()] * n)


@row(SEND, AMQP, "Transfer", "leave {n} deliveries unfinished", 60, unread=1)
def unfinished(scene: Scene, n: int) -> None:
    """Each on a link of its own, as many bytes as may wait."""
    path = scene.queue()
    client = scene.client()
    links = [client.attach(path, sends=True) for _ in range(n)]
    data = b"".join(client.transfers(link, [payload(120_000)], cut=2) for link in links)
    with scene.measured():
        client.write(data)


# -- transactions


def _declared(client: AmqpClient, control: int, n: int) -> list[bytes]:
    client.write(client.transfers(control, [DECLARE] * n))
    client.hear(Settled=n)
    return [
        said.state.txn_id
        for said in client.said
        if isinstance(said, Disposition) and hasattr(said.state, "txn_id")
    ]


def _discharge(txn_id: bytes) -> bytes:
    return b"\x00\x53\x77" + encode_performative(Discharge(txn_id, False))


@row(SEND, AMQP, "Declare", "declare {n} transactions", 1_000, few=100)
def declares(scene: Scene, n: int) -> None:
    client = scene.client()
    control = client.control_link()
    data = client.transfers(control, [DECLARE] * n)
    with scene.measured():
        client.write(data)
        if scene.reads:
            client.hear(Settled=n)


@row(SEND, AMQP, "Discharge", "commit {n} messages of 100 KB", 100)
def transaction(scene: Scene, n: int) -> None:
    path = scene.queue()
    client = scene.client()
    control = client.control_link()
    link = client.attach(path, sends=True)
    [txn_id] = _declared(client, control, 1)
    data = client.transfers(link, [payload(100_000)] * n, state=TransactionalState(txn_id))
    client.write(data)
    client.hear(Settled=n)
    with scene.measured():
        client.write(client.transfers(control, [_discharge(txn_id)]))
        if scene.reads:
            client.hear(Settled=1)


@row(LISTEN, AMQP, "Discharge", "commit the completion of {n} messages", 2_000, few=250)
def settling_transaction(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n)
    client = scene.client()
    control = client.control_link()
    [txn_id] = _declared(client, control, 1)
    ours = locked(client, path, n)
    state = TransactionalState(txn_id, Accepted())
    client.say(Disposition(True, ours[0][0], ours[-1][0], False, state))
    client.hear(Settled=n)
    with scene.measured():
        client.write(client.transfers(control, [_discharge(txn_id)]))
        if scene.reads:
            client.hear(Settled=1)


@row(LISTEN, AMQP, "Disposition", "complete {n} messages in a transaction", 2_000, few=250)
def settling_in_transaction(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n)
    client = scene.client()
    control = client.control_link()
    [txn_id] = _declared(client, control, 1)
    ours = locked(client, path, n)
    state = TransactionalState(txn_id, Accepted())
    with scene.measured():
        client.say(Disposition(True, ours[0][0], ours[-1][0], False, state))
        if scene.reads:
            client.hear(Settled=n)


# -- event hubs


@row(SEND, AMQP, "Transfer", "publish {n} events in one batch of 1 MiB", 32_000, few=1_000)
def events(scene: Scene, n: int) -> None:
    _sent(scene, scene.hub(), [envelope([NOTHING] * n)], message_format=BATCH_FORMAT)


@row(SEND, AMQP, "Transfer", "publish {n} events at once", 4_000, few=250)
def single_events(scene: Scene, n: int) -> None:
    _sent(scene, scene.hub(32), [payload()] * n)


@row(LISTEN, AMQP, "Flow", "read {n} events of a hub", 2_000, few=250)
def read_events(scene: Scene, n: int) -> None:
    path = scene.hub()
    sender = scene.client("Manage")
    link = sender.attach(path, sends=True)
    sender.write(sender.transfers(link, [envelope([payload(100)] * n)], message_format=BATCH_FORMAT))
    sender.hear(Settled=1)
    client = scene.client()
    reader = client.attach(f"{path}/ConsumerGroups/$Default/Partitions/0", sends=False, deletes=True)
    with scene.measured():
        client.write(client.credit(reader, n))
        if scene.reads:
            client.hear(Transfer=n)


@row(LISTEN, AMQP, "READ", "ask {n} times what a hub is like", 90, few=20)
def hub_information(scene: Scene, n: int) -> None:
    path = scene.hub(32)
    client = scene.client()
    desk = client.desk("$management")
    named = {"type": "com.microsoft:eventhub", "name": path}
    data = desk.request("READ", None, times=n, properties=named)
    with scene.measured():
        client.write(data)
        if scene.reads:
            client.hear(Transfer=n)
