"""Frames: what one read of a socket can bring of each performative, before a login and after it."""

from __future__ import annotations

from time import time

from busway.amqp.decode import AMQP_HEADER, SASL_HEADER
from busway.amqp.performatives import (
    Accepted,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Received,
    SaslInit,
)
from busway.amqp.types import Symbol
from busway.client.connection_string import sas_token
from busway.model.descriptions import LISTEN, SEND
from tests.cost.amqp_client import WINDOW, AmqpClient, logged_in
from tests.cost.row import AMQP, FLAT, MANAGEMENT, NOBODY, WEBSOCKET, row
from tests.cost.rows_management import locked
from tests.cost.scene import Scene, payload
from tests.cost.world import rule_of
from tests.harness.frame_factory import make_frame, sasl

#: Of one stranger, with what the sockets and the loop themselves need.
STRANGER_BYTES_MAX = 1024 * 1024
EMPTY = make_frame(b"")
ECHO = make_frame(Flow(0, WINDOW, 0, WINDOW, echo=True))
FULL = "amqp:resource-limit-exceeded"
_ALL = 0xFFFF_FFFF
#: An AMQP value: declare, without fields.
DECLARE = b"\x00\x53\x77\x00\x53\x31\x45"


def properties(size: int) -> dict[Symbol, object]:
    return {Symbol(f"p{n}"): "x" * 90 for n in range(size // 100)}


# -- nobody


@row(NOBODY, AMQP, "SaslInit", "log in with {n} bytes", 8_000, memory_bytes_max=STRANGER_BYTES_MAX, unread=1)
def stranger_sasl(scene: Scene, n: int) -> None:
    client = scene.client(opens=False)
    scene.flood(
        client,
        SASL_HEADER + sasl(SaslInit("PLAIN", bytes(n))) + AMQP_HEADER + make_frame(Open("x")),
        refused="dropped",
    )


@row(
    NOBODY,
    AMQP,
    "Open",
    "open with {n} bytes of properties",
    8_000,
    memory_bytes_max=STRANGER_BYTES_MAX,
    unread=1,
)
def stranger_open(scene: Scene, n: int) -> None:
    client = scene.client(opens=False)
    scene.flood(client, logged_in() + make_frame(Open("x", properties=properties(n))))


@row(
    NOBODY,
    AMQP,
    "Open",
    "open with a list of {n} nothings",
    8_000,
    few=1_000,
    memory_bytes_max=8 << 20,
    unread=1,
)
def stranger_wide_open(scene: Scene, n: int) -> None:
    client = scene.client(opens=False)
    opened = Open("x", properties={Symbol("a"): [None] * n})
    scene.flood(client, logged_in() + make_frame(opened))


@row(NOBODY, AMQP, "Begin", "begin and end {n} sessions", 5_000, few=250, memory_bytes_max=STRANGER_BYTES_MAX)
def stranger_sessions(scene: Scene, n: int) -> None:
    client = scene.client()
    one = make_frame(Begin(None, 0, 10, 10), channel=1) + make_frame(End(), channel=1)
    scene.flood(client, one * n)


@row(
    NOBODY, AMQP, "End", "end {n} sessions that were never begun", 10_000, memory_bytes_max=STRANGER_BYTES_MAX
)
def stranger_ends(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), make_frame(End(), channel=1) * n, refused="amqp:not-allowed")


@row(NOBODY, AMQP, "Attach", "attach {n} links", 3_000, memory_bytes_max=STRANGER_BYTES_MAX, unread=1)
def stranger_links(scene: Scene, n: int) -> None:
    client = scene.client()
    frames = [client.attach_frame("q/$management", sends=True)[1] for _ in range(n)]
    scene.flood(client, b"".join(frames), refused=FULL)


@row(NOBODY, AMQP, "Detach", "attach and detach {n} links", 2_000, memory_bytes_max=STRANGER_BYTES_MAX)
def stranger_detaches(scene: Scene, n: int) -> None:
    client = scene.client()
    _, frame = client.attach_frame("$cbs", sends=True)
    scene.flood(client, (frame + make_frame(Detach(0, True))) * n, refused=FULL)


@row(
    NOBODY,
    AMQP,
    "Flow",
    "write {n} flows that want an answer",
    7_000,
    few=250,
    memory_bytes_max=STRANGER_BYTES_MAX,
    unread=1,
)
def stranger_flows(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), ECHO * n)


@row(
    NOBODY,
    AMQP,
    "Transfer",
    "write {n} requests that are none",
    4_000,
    few=100,
    memory_bytes_max=STRANGER_BYTES_MAX,
    unread=1,
)
def stranger_requests(scene: Scene, n: int) -> None:
    client = scene.client()
    desk = client.desk("$cbs")
    scene.flood(client, client.transfers(desk.requests, [b"\x00\x53\x77\x40"] * n))


@row(
    NOBODY,
    AMQP,
    "put-token",
    "put {n} wrong tokens of 16 KB",
    14,
    memory_bytes_max=STRANGER_BYTES_MAX,
    unread=1,
)
def stranger_tokens(scene: Scene, n: int) -> None:
    client = scene.client()
    desk = client.desk("$cbs")
    named = {"type": "servicebus.windows.net:sastoken", "name": "sb://localhost/"}
    token = "SharedAccessSignature sr=" + "x" * 16_000
    scene.flood(client, desk.request("put-token", token, times=n, properties=named))


@row(
    NOBODY,
    MANAGEMENT,
    "READ",
    "ask {n} times what a hub is like, with wrong tokens of 16 KB",
    14,
    memory_bytes_max=STRANGER_BYTES_MAX,
    unread=1,
)
def stranger_reads(scene: Scene, n: int) -> None:
    client = scene.client()
    desk = client.desk("$management")
    named: dict[str, object] = {"type": "com.microsoft:eventhub", "name": "hub"}
    named["security_token"] = "SharedAccessSignature sr=" + "x" * 16_000
    scene.flood(client, desk.request("READ", None, times=n, properties=named))


@row(
    NOBODY,
    MANAGEMENT,
    "Transfer",
    "peek {n} times without a right",
    90,
    few=20,
    memory_bytes_max=STRANGER_BYTES_MAX,
    unread=1,
)
def stranger_peeks(scene: Scene, n: int) -> None:
    client = scene.client()
    desk = client.desk("nobody-knows/$management")
    scene.flood(client, desk.request("com.microsoft:peek-message", {"message-count": 1}, times=n))


@row(
    NOBODY,
    AMQP,
    "Disposition",
    "settle everything {n} times",
    9_000,
    few=250,
    memory_bytes_max=STRANGER_BYTES_MAX,
)
def stranger_dispositions(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), make_frame(Disposition(True, 0, _ALL, True, Accepted())) * n)


@row(
    NOBODY, AMQP, "Declare", "declare {n} transactions", 3_000, memory_bytes_max=STRANGER_BYTES_MAX, unread=1
)
def stranger_transactions(scene: Scene, n: int) -> None:
    client = scene.client()
    control = client.control_link()
    scene.flood(client, client.transfers(control, [DECLARE] * n))


@row(NOBODY, AMQP, "Close", "close {n} times", 10_000, memory_bytes_max=STRANGER_BYTES_MAX)
def stranger_closes(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), make_frame(Close()) * n)


@row(
    NOBODY,
    AMQP,
    "an empty frame",
    "write {n} empty frames",
    32_000,
    few=1_000,
    memory_bytes_max=STRANGER_BYTES_MAX,
)
def stranger_heartbeats(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), EMPTY * n)


# -- after a login: links and sessions


@row(LISTEN, AMQP, "an empty frame", "write {n} empty frames", 32_000, few=1_000)
def heartbeats(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), EMPTY * n)


@row(LISTEN, AMQP, "Begin", "begin and end {n} sessions", 7_000, few=250)
def sessions(scene: Scene, n: int) -> None:
    one = make_frame(Begin(None, 0, 10, 10), channel=1) + make_frame(End(), channel=1)
    scene.flood(scene.client(), one * n)


@row(LISTEN, AMQP, "Attach", "attach {n} receivers to a queue", 1_000, few=100)
def receivers(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, 100)
    client = scene.client()
    data = b"".join(b"".join(_receiver(client, path, credit=1)) for _ in range(n))
    scene.flood(client, data)


def _receiver(client: AmqpClient, path: str, credit: int, **more: object) -> tuple[bytes, bytes]:
    handle, frame = client.attach_frame(path, sends=False, **more)
    return frame, client.credit(handle, credit)


@row(LISTEN, AMQP, "Attach", "attach {n} receivers to a partitioned queue", 500, few=50)
def partitioned_receivers(scene: Scene, n: int) -> None:
    path = scene.queue(enable_partitioning=True)
    client = scene.client()
    scene.flood(client, b"".join(b"".join(_receiver(client, path, credit=1)) for _ in range(n)))


@row(LISTEN, AMQP, "Attach", "accept {n} sessions", 500, few=50)
def accept_sessions(scene: Scene, n: int) -> None:
    path = scene.queue(requires_session=True)
    scene.fill(path, n, sessions=[f"s{i}" for i in range(n)])
    client = scene.client()
    data = b"".join(client.attach_frame(path, sends=False, session=f"s{i}")[1] for i in range(n))
    with scene.measured():
        client.write(data)
        if scene.reads:
            client.hear(Attach=n)


@row(LISTEN, AMQP, "Attach", "attach to {n} queues that do not exist", 1_000, few=100)
def missing(scene: Scene, n: int) -> None:
    client = scene.client()
    scene.flood(client, b"".join(client.attach_frame(f"missing-{i}", sends=False)[1] for i in range(n)))


@row(LISTEN, AMQP, "Attach", "attach {n} links with 2 KB of properties", 100, few=20, unread=1)
def attach_with_properties(scene: Scene, n: int) -> None:
    path = scene.queue()
    client = scene.client()
    more = {"properties": properties(2_000)}
    scene.flood(client, b"".join(client.attach_frame(path, sends=False, **more)[1] for _ in range(n)))


@row(LISTEN, AMQP, "Detach", "attach and detach a receiver {n} times", 1_500, few=100)
def detach(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, 10)
    client = scene.client()
    frame, credit = _receiver(client, path, credit=1)
    scene.flood(client, (frame + credit + make_frame(Detach(0, True))) * n)


@row(LISTEN, AMQP, "End", "end a session with {n} receivers and a lock on each", 500, few=50)
def end(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n)
    client = scene.client()
    client.write(b"".join(b"".join(_receiver(client, path, credit=1)) for _ in range(n)))
    client.hear(Transfer=n)
    scene.flood(client, make_frame(End()))


@row(LISTEN, AMQP, "Close", "close with {n} messages locked", 2_000, few=250)
def close(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n)
    client = scene.client()
    locked(client, path, n)
    scene.flood(client, b"")


# -- credit


@row(LISTEN, AMQP, "Flow", "write {n} flows that want an answer", 7_000, few=250)
def echoes(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), ECHO * n)


@row(LISTEN, AMQP, "Flow", "give credit {n} times", 7_000, few=250)
def credits(scene: Scene, n: int) -> None:
    path = scene.queue()
    client = scene.client()
    link = client.attach(path, sends=False)
    scene.flood(client, client.credit(link, 1) * n)


@row(LISTEN, AMQP, "Flow", "give credit for all {n} messages at once", 2_000, few=250, unread=1)
def burst(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n, 100)
    client = scene.client()
    link = client.attach(path, sends=False)
    with scene.measured():
        client.write(client.credit(link, _ALL >> 1))
        if scene.reads:
            client.hear(Transfer=n)


@row(LISTEN, AMQP, "Flow", "give credit for {n} messages of 256 KB", 40, unread=1)
def large_burst(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n, 255_000)
    client = scene.client()
    link = client.attach(path, sends=False, deletes=True)
    with scene.measured():
        client.write(client.credit(link, n))
        if scene.reads:
            client.hear(Transfer=n)


@row(LISTEN, AMQP, "Flow", "open and shut the window {n} times over 200 waiting receivers", 3_500)
def windows(scene: Scene, n: int) -> None:
    """Each time the window opens somebody may have waited for it."""
    path = scene.queue()
    client = scene.client()
    client.write(b"".join(b"".join(_receiver(client, path, credit=1)) for _ in range(200)))
    client.hear(Attach=200)
    shut = make_frame(Flow(0, 0, 0, WINDOW))
    opened = make_frame(Flow(0, WINDOW, 0, WINDOW))
    scene.flood(client, (shut + opened) * n)


@row(LISTEN, AMQP, "Flow", "drain {n} times", 6_000, few=250)
def drains(scene: Scene, n: int) -> None:
    path = scene.queue()
    client = scene.client()
    link = client.attach(path, sends=False)
    one = make_frame(Flow(0, WINDOW, 0, WINDOW, link, 0, 1, None, True))
    scene.flood(client, one * n)


# -- outcomes


def _settle(scene: Scene, n: int, state: object) -> None:
    path = scene.queue()
    scene.fill(path, n)
    client = scene.client()
    ours = locked(client, path, n)
    with scene.measured():
        client.write(make_frame(Disposition(True, ours[0][0], ours[-1][0], False, state)))
        if scene.reads:
            client.hear(Settled=n)


@row(LISTEN, AMQP, "Disposition", "complete {n} messages with one disposition", 2_000, few=250)
def complete(scene: Scene, n: int) -> None:
    _settle(scene, n, Accepted())


@row(LISTEN, AMQP, "Disposition", "defer {n} messages with one disposition", 2_000, few=250)
def defer(scene: Scene, n: int) -> None:
    _settle(scene, n, Modified(undeliverable_here=True))


@row(
    LISTEN,
    AMQP,
    "Disposition",
    "defer {n} messages with 30 KB of properties in one disposition",
    2_000,
    unread=1,
)
def defer_with_properties(scene: Scene, n: int) -> None:
    _settle(scene, n, Modified(undeliverable_here=True, message_annotations=properties(30_000)))


@row(LISTEN, AMQP, "Disposition", "settle nothing of 2,000 deliveries {n} times", 5_000)
def settle_nothing(scene: Scene, n: int) -> None:
    """A state that ends nothing may be told for all of them again and again."""
    path = scene.queue()
    scene.fill(path, 2_000)
    client = scene.client()
    locked(client, path, 2_000)
    scene.flood(client, make_frame(Disposition(True, 0, _ALL >> 1, False, Received(0, 0))) * n)


@row(LISTEN, AMQP, "Disposition", "complete {n} messages one by one", 2_000, few=250)
def complete_singly(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n)
    client = scene.client()
    ours = locked(client, path, n)
    data = b"".join(make_frame(Disposition(True, number, None, False, Accepted())) for number, _ in ours)
    with scene.measured():
        client.write(data)
        if scene.reads:
            client.hear(Settled=n)


# -- tokens


def put_tokens(client: AmqpClient, n: int) -> bytes:
    desk = client.desk("$cbs")
    name, key = rule_of(LISTEN)
    until = int(time()) + 3_600
    named = {"type": "servicebus.windows.net:sastoken", "name": "sb://localhost/"}
    tokens = [sas_token("sb://localhost/", name, key, until + i) for i in range(n)]
    return b"".join(desk.request("put-token", token, properties=named) for token in tokens)


@row(LISTEN, AMQP, "put-token", "put a token beside {n} links", 900, few=100, growth=FLAT)
def token_beside_links(scene: Scene, n: int) -> None:
    path = scene.queue()
    client = scene.client()
    request = put_tokens(client, 1)
    client.write(b"".join(client.attach_frame(path, sends=False)[1] for _ in range(n)))
    client.hear(Attach=n)
    scene.answered(client, request, 202)


@row(LISTEN, AMQP, "put-token", "put {n} tokens", 90, few=20)
def tokens(scene: Scene, n: int) -> None:
    client = scene.client()
    request = put_tokens(client, n)
    with scene.measured():
        client.write(request)
        if scene.reads:
            client.hear(Transfer=n)


# -- the same bytes in a WebSocket, whose messages are larger than a read of a socket


@row(NOBODY, WEBSOCKET, "an empty frame", "write {n} empty frames", 130_000, memory_bytes_max=4 << 20)
def stranger_web_heartbeats(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), EMPTY * n)


@row(
    NOBODY,
    WEBSOCKET,
    "Flow",
    "write {n} flows that want an answer",
    28_000,
    memory_bytes_max=4 << 20,
    unread=1,
)
def stranger_web_flows(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), ECHO * n, refused="dropped")


@row(LISTEN, WEBSOCKET, "Flow", "write {n} flows that want an answer", 9_000)
def web_flows(scene: Scene, n: int) -> None:
    scene.flood(scene.client(), ECHO * n)


@row(SEND, WEBSOCKET, "Transfer", "send {n} messages", 15_000)
def web_sends(scene: Scene, n: int) -> None:
    path = scene.queue()
    client = scene.client()
    link = client.attach(path, sends=True)
    scene.flood(client, client.transfers(link, [payload()] * n, settled=True))
