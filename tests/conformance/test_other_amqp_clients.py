"""SB-85x, SB-86x: AMQP 1.0 clients that know nothing of Service Bus, with SASL PLAIN (rule name, key).

python-qpid-proton (Apache's C library) and rhea (JavaScript). Proton's `Delivery.tag` reads tags as UTF-8, which
lock tokens are not: never touch it here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from busway.client.connection_string import ConnectionString
from tests.conformance.node_program import needs_node, run_node
from tests.conformance.traffic import bodies, dead_letters, peek_count, receive_all, send
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

try:
    from proton import Condition, ConnectionException, Delivery, Message
    from proton.reactor import AtMostOnce
    from proton.utils import BlockingConnection, LinkDetached
except ImportError:
    HAS_PROTON = False
else:
    HAS_PROTON = True

needs_proton = pytest.mark.skipif(
    not HAS_PROTON, reason="python-qpid-proton is not installed: proton was not tried"
)

LARGE_BYTES = 200_000


@contextmanager
def proton_connection(server: RunningServer, key: str | None = None, **options: Any) -> Iterator[Any]:
    parts = ConnectionString.parse(server.connection_string)
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{server.port}",
        timeout=100,
        user=parts.key_name,
        password=parts.key if key is None else key,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        **options,
    )
    try:
        yield connection
    finally:
        connection.close()


@needs_proton
def test_sb_850_proton_sends_receives_and_accepts(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """A-7, S-1, R-10, M-1, M-28: properties and body reach the SDK, and the SDK's reach Proton."""
    queue = new_queue()
    with proton_connection(server) as connection:
        sender = connection.create_sender(queue)
        sender.send(Message(body="from proton", id="p-1", subject="label", properties={"n": 3}))
        (received,) = receive_all(client, queue, 1)
        assert (received.message_id, received.subject) == ("p-1", "label")
        assert received.body == b"from proton"  # an AMQP value: the SDK gives text as bytes
        assert received.application_properties == {b"n": 3}
        send(client, queue, "from the SDK", message_id="s-1")
        receiver = connection.create_receiver(queue, credit=1)
        message = receiver.receive(timeout=100)
        assert (bytes(message.body), message.id) == (b"from the SDK", "s-1")
        receiver.accept()
        receiver.close()
    assert peek_count(client, queue) == 0


@needs_proton
def test_sb_851_release_leaves_the_count_and_modified_raises_it(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """R-6, R-11, R-12, R-40: released often it is still the first delivery; delivery-failed counts."""
    queue = new_queue(max_delivery_count=2)
    with proton_connection(server) as connection:
        connection.create_sender(queue).send(Message(body="x"))
        receiver = connection.create_receiver(queue, credit=1)
        for _ in range(4):
            assert receiver.receive(timeout=100).delivery_count == 0
            receiver.release(delivered=False)
            receiver.link.flow(1)
        assert receiver.receive(timeout=100).delivery_count == 0
        receiver.release(delivered=True)
        receiver.link.flow(1)
        assert receiver.receive(timeout=100).delivery_count == 1
        receiver.accept()


@needs_proton
def test_sb_852_a_rejection_with_any_condition_dead_letters(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-15, D-6: the reason is the condition, the description its text."""
    queue = new_queue()
    with proton_connection(server) as connection:
        connection.create_sender(queue).send(Message(body="bad"))
        receiver = connection.create_receiver(queue, credit=1)
        receiver.receive(timeout=100)
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.condition = Condition("app:unreadable", "no such format")
        delivery.update(Delivery.REJECTED)
        delivery.settle()
        receiver.close()
    with dead_letters(client, queue) as dead:
        (message,) = dead.receive_messages()
        told = (message.dead_letter_reason, message.dead_letter_error_description)
        assert told == ("app:unreadable", "no such format")
        dead.complete_message(message)


@needs_proton
def test_sb_853_messages_of_many_frames_pass_both_ways(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-8, L-20: with frames of 4 KiB a message of 200 kB is whole in both directions."""
    queue = new_queue()
    body = bytes(range(256)) * (LARGE_BYTES // 256)
    with proton_connection(server, max_frame_size=4096) as connection:
        sender = connection.create_sender(queue)
        sender.send(Message(body=body, inferred=True))
        sender.send(Message(body="after"))
        receiver = connection.create_receiver(queue, credit=2)
        assert bytes(receiver.receive(timeout=100).body) == body
        receiver.accept()
        assert receiver.receive(timeout=100).body == "after"
        receiver.accept()
    assert peek_count(client, queue) == 0


@needs_proton
def test_sb_854_settled_sends_are_stored_without_an_answer(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-3, S-4: at-most-once sends are stored in order; a refused one is dropped without ending the link."""
    queue = new_queue()
    with proton_connection(server) as connection:
        sender = connection.create_sender(queue, options=AtMostOnce())
        for number in range(20):
            sender.send(Message(body=str(number).encode(), inferred=True))
        sender.send(Message(body=b"x" * 300_000, inferred=True))
        sender.send(Message(body=b"last", inferred=True))
        sender.close()
    assert bodies(receive_all(client, queue, 21)) == [*(str(number) for number in range(20)), "last"]


@needs_proton
def test_sb_855_a_drain_gives_what_there_is_and_takes_the_rest_of_the_credit(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """R-8, R-9: within 100 ms, also on an empty queue."""
    queue = new_queue()
    with proton_connection(server) as connection:
        connection.create_sender(queue).send(Message(body="only"))
        receiver = connection.create_receiver(queue, credit=0)
        for expected in (1, 0):
            started = time.monotonic()
            receiver.link.drain(10)
            connection.wait(lambda: not receiver.link.draining())
            assert time.monotonic() - started < 0.5
            assert receiver.link.credit == 0
            assert len(receiver.fetcher.incoming) == expected
            while receiver.fetcher.incoming:
                receiver.fetcher.pop()
                receiver.accept()


@needs_proton
def test_sb_856_a_wrong_key_fails_in_sasl(server: RunningServer) -> None:
    """A-7, ERR-4: authentication fails before the connection is open, with nothing about the key in the text."""
    with (
        pytest.raises(ConnectionException, match=r"(?i)auth") as refused,
        proton_connection(server, key="not-the-key"),
    ):
        pass
    assert "not-the-key" not in str(refused.value)


@needs_proton
def test_sb_857_many_links_share_one_session(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-4, R-3, ERR-1: ten queues over one connection and session; one bad attach harms nobody."""
    queues = [new_queue() for _ in range(10)]
    with proton_connection(server) as connection:
        senders = [connection.create_sender(queue) for queue in queues]
        receivers = [connection.create_receiver(queue, credit=1) for queue in queues]
        with pytest.raises(LinkDetached):
            connection.create_receiver("no-such-queue")
        for number, sender in enumerate(senders):
            sender.send(Message(body=number))
        for number, receiver in enumerate(receivers):
            assert receiver.receive(timeout=100).body == number
            receiver.accept()
    assert [peek_count(client, queue) for queue in queues] == [0] * 10


# -- rhea


@needs_node
def test_sb_860_rhea_settles_in_every_way(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """A-7, R-10, R-11, R-12, R-15, D-6: release, modified, reject and accept, over three links of one session."""
    assert run_node(server, "plain_amqp.mjs", "outcomes", queue=new_queue()) == {
        "counts": [0, 0, 1],
        "reason": "app:unreadable",
        "description": "no such format",
        "a": 1,
    }


@needs_node
def test_sb_861_rhea_drains(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """R-1, R-9: what is there comes, the rest of the credit is gone, and new credit works afterwards."""
    found: Any = run_node(server, "plain_amqp.mjs", "drain", queue=new_queue())
    assert found["seen"] == ["a", "b", "c"]
    assert (found["creditLeft"], found["atRest"]) == (0, 2)
    assert found["ms"] < 500


@needs_node
def test_sb_862_rhea_sends_and_receives_many_frames(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """S-8, L-20: 200 kB in frames of 4 KiB."""
    found = run_node(server, "plain_amqp.mjs", "large", queue=new_queue(), bytes=LARGE_BYTES)
    assert found == {"length": LARGE_BYTES, "same": True, "after": "after"}


@needs_node
def test_sb_863_strangers_and_missing_entities_are_told(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """A-7, ERR-1: a wrong key never opens a connection; a missing queue is amqp:not-found."""
    found: Any = run_node(server, "plain_amqp.mjs", "strangers", queue=new_queue())
    assert found["refused"] == "connection_error"
    assert found["missing"] == "amqp:not-found"


@needs_node
def test_sb_864_messages_are_deleted_in_batches(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-80, R-81, R-83, R-84, L-16, ERR-8: the oldest first, before a time, neither locked nor deferred ones."""
    queue = new_queue()
    send(client, queue, *(str(number) for number in range(12)))
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        locked, deferred = receiver.receive_messages(max_message_count=2)
        receiver.defer_message(deferred)
        middle_ms = round(time.time() * 1000) + 1
        while time.time() * 1000 < middle_ms + 1:
            time.sleep(0.001)
        send(client, queue, "late")
        far_ms = middle_ms + 60_000
        found = run_node(
            server,
            "plain_amqp.mjs",
            "batchDelete",
            queue=queue,
            requests=[
                {"count": 4, "beforeMs": middle_ms},
                {"count": 500, "beforeMs": middle_ms},
                {"count": 500, "beforeMs": middle_ms},
                {"count": 501, "beforeMs": far_ms},
                {"count": 0, "beforeMs": far_ms},
            ],
        )
        left = bodies(receiver.peek_messages(max_message_count=20, sequence_number=1))
        receiver.complete_message(locked)
    assert found[:3] == [[200, 4, None], [200, 6, None], [204, None, None]]
    assert [answer[0] for answer in found[3:]] == [400, 400]
    assert left == ["0", "1", "late"]


@needs_node
def test_sb_865_a_session_is_purged_alone(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-80, R-83: with a session id only that session's messages go."""
    queue = new_queue(requires_session=True)
    send(client, queue, "a1", "a2", session_id="a")
    send(client, queue, "b1", session_id="b")
    far_ms = round(time.time() * 1000) + 60_000
    found = run_node(
        server,
        "plain_amqp.mjs",
        "batchDelete",
        queue=queue,
        requests=[{"count": 500, "beforeMs": far_ms, "sessionId": "a"}],
    )
    assert found == [[200, 2, None]]
    with client.get_queue_receiver(queue, session_id="b", max_wait_time=5) as receiver:
        assert bodies(receiver.receive_messages()) == ["b1"]
