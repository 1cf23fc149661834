"""The client and a real server: every road a message can take."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.atom_entries import KeyRule
from busway.client.connection_string import ConnectionString
from busway.client.entity_properties import Value
from busway.client.errors import EntityExists, EntityMissing, LockLost, NotAuthorised, Refused, TimedOut
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway.rules.rule import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter, TypedValue
from tests.harness.running_server import RunningServer


@pytest.fixture
def administration(server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        yield client


@pytest.fixture
def make_queue(administration: ServiceBusAdministrationClient) -> Callable[..., str]:
    def make(**properties: Value) -> str:
        name = f"queue-{uuid4()}"
        administration.create_queue(name, properties)
        return name

    return make


def with_client(
    server: RunningServer, work: Callable[[ServiceBusClient], Awaitable[None]], *, plain_login: bool = False
) -> None:
    async def run() -> None:
        client = ServiceBusClient.from_connection_string(server.connection_string, plain_login=plain_login)
        async with asyncio.timeout(60), client:
            await work(client)

    asyncio.run(run())


@pytest.mark.parametrize("plain_login", [False, True])
def test_a_message_goes_there_and_back(
    server: RunningServer, make_queue: Callable[..., str], plain_login: bool
) -> None:
    """A-7, R-1, M-28: by tokens and by SASL PLAIN."""
    queue = make_queue()

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(b"hello", {"n": 1}, message_id="m"))
        async with client.get_queue_receiver(queue, receive_mode="receive-and-delete") as receiver:
            [message] = await receiver.receive_messages(5)
            assert (message.body, message.message_id, message.application_properties) == (
                b"hello",
                "m",
                {"n": 1},
            )
            assert await receiver.receive_messages(1, 0.05) == []

    with_client(server, work, plain_login=plain_login)


def test_many_messages_travel_in_batches_and_arrive_in_order(
    server: RunningServer, make_queue: Callable[..., str]
) -> None:
    """S-4, S-20, S-22, R-71: many messages travel in batches and arrive in order."""
    queue = make_queue()

    async def work(client: ServiceBusClient) -> None:
        bodies = [str(number).encode() * 200 for number in range(1_000)]
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(body) for body in bodies])
        received: list[bytes] = []
        async with client.get_queue_receiver(queue, receive_mode="receive-and-delete") as receiver:
            while messages := await receiver.receive_messages(300, 1.0):
                received += [message.body for message in messages]
        assert received == bodies

    with_client(server, work)


def test_a_message_too_large_is_refused_and_the_sender_lives_on(
    server: RunningServer, make_queue: Callable[..., str]
) -> None:
    """L-5, S-8: a message too large is refused and the sender lives on."""
    queue = make_queue()

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            with pytest.raises(Refused) as refusal:
                await sender.send_messages(ServiceBusMessage(b"x" * 300_000))
            assert refusal.value.condition == "amqp:link:message-size-exceeded"

    with_client(server, work)


def test_each_settlement_does_what_it_says(server: RunningServer, make_queue: Callable[..., str]) -> None:
    """R-10, R-11, R-13, R-14, R-16, R-51: complete, abandon, defer and fetch, dead-letter."""
    queue = make_queue()

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(body) for body in (b"1", b"2", b"3")])
        async with client.get_queue_receiver(queue) as receiver:
            messages = await receiver.receive_messages(3)
            while len(messages) < 3:
                messages += await receiver.receive_messages(3 - len(messages))
            await receiver.complete_message(messages[0])
            await receiver.defer_message(messages[1])
            await receiver.dead_letter_message(messages[2], reason="why", error_description="because")
            with pytest.raises(Refused):
                await receiver.complete_message(messages[0])
            assert messages[1].sequence_number is not None
            [deferred] = await receiver.receive_deferred_messages([messages[1].sequence_number])
            assert await receiver.renew_message_lock(deferred) > (deferred.enqueued_time_ms or 0)
            await receiver.abandon_message(deferred)
            deferred.is_settled = False
            with pytest.raises(LockLost):
                await receiver.complete_message(deferred)
            [peeked] = await receiver.peek_messages(5)
            assert (peeked.state, peeked.delivery_count) == ("deferred", 2)
        async with client.get_queue_receiver(f"{queue}/$DeadLetterQueue") as dead:
            [message] = await dead.receive_messages(1)
            assert message.application_properties["DeadLetterReason"] == "why"
            assert message.application_properties["DeadLetterErrorDescription"] == "because"
            await dead.complete_message(message)

    with_client(server, work)


def test_scheduled_messages_are_numbered_and_cancelled(
    server: RunningServer, make_queue: Callable[..., str]
) -> None:
    """S-30, S-33: scheduled messages are numbered and cancelled."""
    queue = make_queue()

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            at_ms = time.time_ns() // 1_000_000 + 3_600_000
            numbers = await sender.schedule_messages(
                [ServiceBusMessage(b"a"), ServiceBusMessage(b"b")], at_ms
            )
            assert len(numbers) == 2
            await sender.cancel_scheduled_messages(numbers[:1])
            [left] = await client.get_management(queue).peek_messages(5)
            assert (left.state, left.body, left.scheduled_enqueue_time_ms) == ("scheduled", b"b", at_ms)

    with_client(server, work)


def test_messages_are_deleted_in_batches(server: RunningServer, make_queue: Callable[..., str]) -> None:
    """R-80, R-83: messages are deleted in batches."""
    queue = make_queue()

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(b"x")] * 7)
        management = client.get_management(queue)
        later_ms = time.time_ns() // 1_000_000 + 60_000
        assert await management.batch_delete_messages(5, later_ms) == 5
        assert await management.batch_delete_messages(5, later_ms) == 2
        assert await management.batch_delete_messages(5, later_ms) == 0

    with_client(server, work)


def test_a_session_is_accepted_used_and_freed(server: RunningServer, make_queue: Callable[..., str]) -> None:
    """X-3, X-6, X-7, X-9, X-11, X-15, X-17: a session is accepted, used and freed."""
    queue = make_queue(RequiresSession=True)

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(b"x", session_id="first"))
        async with client.get_queue_receiver(queue, session_id=True) as receiver:
            assert receiver.session_id == "first"
            assert await receiver.get_session_state() is None
            await receiver.set_session_state(b"half way")
            assert await receiver.get_session_state() == b"half way"
            assert await receiver.renew_session_lock() > 0
            [message] = await receiver.receive_messages(1)
            await receiver.complete_message(message)
        assert await client.get_management(queue).list_sessions() == ["first"]
        nobody = client.get_queue_receiver(queue, session_id=True, session_wait=0.2)
        with pytest.raises(TimedOut):
            await nobody.open()
        async with client.get_queue_receiver(queue, session_id="first") as again:
            assert await again.get_session_state() == b"half way"

    with_client(server, work)


def test_a_missing_queue_and_a_wrong_key_are_told_apart(server: RunningServer) -> None:
    """A-6, S-10: a missing queue and a wrong key are told apart."""

    async def work(client: ServiceBusClient) -> None:
        with pytest.raises(EntityMissing):
            await client.get_queue_sender("no-such-queue").open()
        parsed = ConnectionString.parse(server.connection_string)
        stranger = ConnectionString(parsed.host, parsed.port, parsed.key_name, "wrong", emulator=True)
        for plain_login in (False, True):
            async with ServiceBusClient(stranger, plain_login=plain_login) as other:
                with pytest.raises(NotAuthorised):
                    await other.get_queue_sender("no-such-queue").open()

    with_client(server, work)


def test_queues_are_managed_over_http(administration: ServiceBusAdministrationClient) -> None:
    """ERR-43, E-20, E-28, E-37: create, get, update, list, delete, and the queue's own keys."""
    name = f"managed/{uuid4()}"
    created = administration.create_queue(name, {"LockDuration": "PT30S", "MaxDeliveryCount": 3})
    assert (created.name, created.properties["LockDuration"]) == (name, "PT30S")
    with pytest.raises(EntityExists):
        administration.create_queue(name)
    rule = KeyRule("worker", ("Listen",), "p" * 44, "s" * 44)
    changed = created.changed({"MaxDeliveryCount": 7}).with_rules([rule])
    administration.update_queue(changed)
    read = administration.get_queue(name)
    assert (read.properties["MaxDeliveryCount"], read.rules) == (7, (rule,))
    assert name in [queue.name for queue in administration.list_queues()]
    administration.delete_queue(name)
    with pytest.raises(EntityMissing):
        administration.get_queue(name)
    with pytest.raises(EntityMissing):
        administration.delete_queue(name)


def test_topics_subscriptions_and_rules_are_managed_over_http(
    administration: ServiceBusAdministrationClient,
) -> None:
    """E-50, E-60, E-64, E-70, ERR-43: create, get, update, list, delete of each."""
    topic = f"managed/{uuid4()}"
    created = administration.create_topic(topic, {"MaxSizeInMegabytes": 2048})
    assert (created.name, created.properties["MaxSizeInMegabytes"]) == (topic, 2048)
    administration.update_topic(created.changed({"UserMetadata": "mine"}))
    assert administration.get_topic(topic).properties["UserMetadata"] == "mine"
    with pytest.raises(EntityMissing, match="that is the name of a topic"):
        administration.get_queue(topic)
    with pytest.raises(EntityMissing):
        administration.delete_queue(topic)
    first = Rule("first", SqlFilter("a > @p", (("@p", TypedValue("int", 5)),)), SqlAction("SET b = 1"))
    administration.create_subscription(topic, "s", {"MaxDeliveryCount": 3}, first)
    administration.create_rule(topic, "s", Rule("second", CorrelationFilter(label="x")))
    rules = administration.list_rules(topic, "s")
    assert [rule.name for rule in rules] == ["first", "second"]
    assert rules[0].filter == first.filter
    administration.update_rule(topic, "s", Rule("second", FalseFilter()))
    administration.delete_rule(topic, "s", "first")
    assert administration.list_rules(topic, "s") == [Rule("second", FalseFilter())]
    subscription = administration.get_subscription(topic, "s").changed({"MaxDeliveryCount": 4})
    administration.update_subscription(topic, subscription)
    [listed] = administration.list_subscriptions(topic)
    assert (listed.name, listed.properties["MaxDeliveryCount"]) == ("s", 4)
    administration.delete_subscription(topic, "s")
    with pytest.raises(EntityMissing):
        administration.list_rules(topic, "s")
    assert topic in [each.name for each in administration.list_topics()]
    administration.delete_topic(topic)
    with pytest.raises(EntityMissing):
        administration.get_topic(topic)


def test_more_queues_than_a_page_are_all_listed(administration: ServiceBusAdministrationClient) -> None:
    """ERR-43: pages of a hundred are followed to the end."""
    names = {f"many-{number}" for number in range(105)}
    for name in names:
        administration.create_queue(name)
    assert names <= {queue.name for queue in administration.list_queues()}


def test_the_namespace_has_keys_and_stores(administration: ServiceBusAdministrationClient) -> None:
    """A-2, A-3: the root rule is there; another one comes and goes."""
    assert [rule.name for rule in administration.key_rules()] == ["RootManageSharedAccessKey"]
    administration.put_key_rule(KeyRule("reader", ("Listen",), "p" * 44, "s" * 44))
    assert "reader" in [rule.name for rule in administration.key_rules()]
    administration.delete_key_rule("reader")
    assert all(store["state"] == "open" for store in administration.stores())


def test_the_server_speaks_https_on_the_same_port(server: RunningServer) -> None:
    """A-11: with the authority's file the same calls work over TLS, and AMQP does too."""
    parsed = ConnectionString.parse(server.connection_string)
    secure = ConnectionString(parsed.host, parsed.port, parsed.key_name, parsed.key)
    with ServiceBusAdministrationClient(secure, Path(server.ca_file)) as client:
        client.create_queue("secure")

    async def work() -> None:
        async with ServiceBusClient(secure, Path(server.ca_file)) as client:
            async with client.get_queue_sender("secure") as sender:
                await sender.send_messages(ServiceBusMessage(b"x"))
            assert len(await client.get_management("secure").peek_messages(1)) == 1

    asyncio.run(work())


def test_a_lost_server_ends_waiting_receivers(tmp_path: Path) -> None:
    """R-22: a stop reaches every receiver at once; the client can be opened again afterwards."""
    with RunningServer(tmp_path) as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.connection_string
        ) as administration:
            administration.create_queue("orders")
        script = (
            "import asyncio, sys\n"
            "from busway.client.service_bus_client import ServiceBusClient\n"
            "async def main():\n"
            "    async with ServiceBusClient.from_connection_string(sys.argv[1]) as client:\n"
            "        async with client.get_queue_receiver('orders') as receiver:\n"
            "            print('ready', flush=True)\n"
            "            await receiver.receive_messages(1, 60)\n"
            "asyncio.run(main())\n"
        )
        waiting = subprocess.Popen(
            [sys.executable, "-c", script, server.connection_string],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "ready\n"
        assert server.stop() == 0
        _, errors = waiting.communicate(timeout=100)
    assert "Unreachable" in errors or "Refused" in errors
