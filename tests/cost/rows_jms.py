"""JMS: browsers with selectors over long queues, temporary queues, and subscriptions that clients make and end."""

from __future__ import annotations

from busway.amqp.performatives import Close, Detach, Flow, Source, Target
from busway.amqp.types import Described, Symbol, ULong
from busway.model.descriptions import LISTEN, MANAGE, SubscriptionDescription, TopicDescription
from tests.cost.amqp_client import SESSION_LINKS, WINDOW, AmqpClient
from tests.cost.row import AMQP, row
from tests.cost.scene import Scene, payload
from tests.harness.frame_factory import make_frame

_SELECTOR = Symbol("jms-selector")
_CODE = ULong(0x0000_468C_0000_0004)
_TEXT = "a" * 31_000


def _browser(path: str, selector: str) -> Source:
    return Source(path, distribution_mode=Symbol("copy"), filter={_SELECTOR: Described(_CODE, selector)})


def _browse(scene: Scene, client: AmqpClient, path: str, selector: str) -> None:
    """To the end: a drain is answered there."""
    link = client.attach(path, sends=False, source=_browser(path, selector))
    with scene.measured():
        client.write(make_frame(Flow(0, WINDOW, 0, WINDOW, link, 0, 100, None, True)))
        if scene.reads:
            client.hear(Flow=1)


# -- browsing


@row(
    LISTEN, AMQP, "Flow", "browse {n} messages none of which a selector selects", 100_000, few=2_000, unread=1
)
def browse(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, n)
    _browse(scene, scene.client(), path, "colour = 'red' AND JMSType IS NULL")


@row(
    LISTEN, AMQP, "Flow", "browse {n} texts of 31 KB with a selector that walks over each for all it may", 40
)
def browse_dearly(scene: Scene, n: int) -> None:
    path = scene.queue()
    message = payload(1, application_properties={"p": _TEXT})
    scene.world.run(scene._sent(path, [scene.message(message) for _ in range(n)]))
    _browse(scene, scene.client(), path, "OR".join(["(p LIKE'%b_%')"] * 60))


@row(LISTEN, AMQP, "Flow", "browse 2,000 messages by {n} browsers at once", 40, few=5)
def browse_together(scene: Scene, n: int) -> None:
    path = scene.queue()
    scene.fill(path, 2_000)
    client = scene.client()
    source = _browser(path, "colour = 'red'")
    links = [client.attach(path, sends=False, source=source) for _ in range(n)]
    flows = [make_frame(Flow(0, WINDOW, 0, WINDOW, link, 0, 100, None, True)) for link in links]
    with scene.measured():
        client.write(b"".join(flows))
        if scene.reads:
            client.hear(Flow=n)


_LONG_SELECTOR = " OR ".join(f"a{i} LIKE '%x_{i}%'" for i in range(48))


def _attach_all(scene: Scene, source: Source, n: int) -> None:
    client = scene.client()
    frames = [client.attach_frame("", sends=False, source=source)[1] for _ in range(n)]
    with scene.measured():
        client.write(b"".join(frames))
        if scene.reads:
            client.hear(Attach=n)


@row(LISTEN, AMQP, "Attach", "attach {n} browsers with selectors of 1 KB", 200, few=20, unread=1)
def browsers(scene: Scene, n: int) -> None:
    _attach_all(scene, _browser(scene.queue(), _LONG_SELECTOR), n)


@row(
    LISTEN, AMQP, "Attach", "attach {n} receivers with selectors of 1 KB, which they cannot have", 200, few=20
)
def selecting_receivers(scene: Scene, n: int) -> None:
    source = _browser(scene.queue(), _LONG_SELECTOR)
    source.distribution_mode = None
    _attach_all(scene, source, n)


@row(
    LISTEN, AMQP, "Attach", "ask for {n} subscriptions with selectors of 1 KB, without the right", 200, few=20
)
def selecting_subscribers(scene: Scene, n: int) -> None:
    source = _browser(scene.topic(0), _LONG_SELECTOR)
    source.capabilities = [Symbol("topic")]
    _attach_all(scene, source, n)


# -- what is made by attaching


def _made(client: AmqpClient) -> bytes:
    return client.attach_frame("", sends=True, target=Target(dynamic=True))[1]


@row(MANAGE, AMQP, "Attach", "make {n} temporary queues", 500, few=25, is_crowded=True, unread=1)
def make_temporary(scene: Scene, n: int) -> None:
    client = scene.client()
    with scene.measured():
        client.write(b"".join(_made(client) for _ in range(n)))
        if scene.reads:
            client.hear(Attach=n)


@row(
    MANAGE,
    AMQP,
    "Detach",
    "attach to {n} temporary queues and detach in the same breath",
    1_000,
    few=100,
    unread=1,
)
def leave_at_once(scene: Scene, n: int) -> None:
    client = scene.client()
    scene.flood(client, (_made(client) + make_frame(Detach(0, True))) * n)


@row(MANAGE, AMQP, "Close", "close a connection with {n} temporary queues", 500, few=25, is_crowded=True)
def leave_temporary(scene: Scene, n: int) -> None:
    client = scene.client()
    client.write(b"".join(_made(client) for _ in range(n)))
    client.hear(Attach=n)
    with scene.measured():
        client.write(make_frame(Close()))
        client.hear(Close=1)
        scene.world.wait_until(lambda: scene.namespace.queues() == [])


@row(
    MANAGE,
    AMQP,
    "Attach",
    "make {n} durable subscriptions with a selector each",
    500,
    few=25,
    is_crowded=True,
)
def subscribe(scene: Scene, n: int) -> None:
    path = scene.topic(0)
    client = scene.client()
    frames = []
    for i in range(n):
        source = Source(path, durable=2, capabilities=[Symbol("topic")])
        source.filter = {_SELECTOR: Described(_CODE, f"a = {i} OR b LIKE '%{i}'")}
        frames.append(client.attach_frame("", sends=False, source=source)[1])
    with scene.measured():
        client.write(b"".join(frames))
        if scene.reads:
            client.hear(Attach=n)


def _many_durable(scene: Scene, n: int) -> str:
    path = scene.name("t")
    made = [
        SubscriptionDescription(f"{path}/Subscriptions/s{i}~client", made_for_a_link=True) for i in range(n)
    ]
    scene.create(TopicDescription(path), *made)
    return path


@row(MANAGE, AMQP, "Attach", "unsubscribe beside {n} durable subscriptions", 2_000, few=250, is_crowded=True)
def unsubscribe(scene: Scene, n: int) -> None:
    path = _many_durable(scene, n)
    client = scene.client()
    _, frame = client.attach_frame("", sends=False, name="s0", source=None, target=Target())
    with scene.measured():
        client.write(frame)
        client.hear(Attach=1)
        client.write(make_frame(Detach(0, True)))
        client.hear(Detach=1)
    assert len(scene.namespace.subscriptions(path)) == n - 1


@row(
    MANAGE, AMQP, "Attach", "unsubscribe {n} times from what there is not, beside 2,000", 250, is_crowded=True
)
def unsubscribe_in_vain(scene: Scene, n: int) -> None:
    _many_durable(scene, 2_000)
    client = scene.client()
    assert n <= SESSION_LINKS
    frames = [
        client.attach_frame("", sends=False, name=f"x{i}", source=None, target=Target())[1] for i in range(n)
    ]
    with scene.measured():
        client.write(b"".join(frames))
        client.hear(Detach=n)
