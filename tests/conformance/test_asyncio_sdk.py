"""SB-7xx: the asynchronous Python SDK, unmodified, and what tokens and rules let a client do."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus import ServiceBusClient as BlockingClient
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    SessionCannotBeLockedError,
)
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from tests.conformance.traffic import bodies, peek_count, send
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

RULE_KEY = base64.b64encode(b"a rule's primary key, 32 bytes.. ").decode()
OTHER_KEY = base64.b64encode(b"another key, made for a rotation").decode()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def connect(server: RunningServer, retries: int = 3) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        server.connection_string, retry_total=retries, retry_backoff_factor=0.1
    )


async def send_async(client: ServiceBusClient, queue: str, *texts: str, **properties: object) -> None:
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(text, **properties) for text in texts])


async def receive_async(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly so many, not settled."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        batch = await receiver.receive_messages(max_message_count=count - len(found), max_wait_time=5)
        assert batch, f"only {len(found)} of {count} messages came"
        found += batch
    return found


# -- messages


def test_sb_701_send_receive_and_settle(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """S-1, R-2, R-10, R-11: a batch arrives in order; complete, abandon and receive again."""
    queue = new_queue()

    async def work() -> None:
        async with connect(server) as client:
            async with client.get_queue_sender(queue) as sender:
                batch = await sender.create_message_batch()
                for number in range(5):
                    batch.add_message(ServiceBusMessage(str(number)))
                await sender.send_messages(batch)
            async with client.get_queue_receiver(queue) as receiver:
                messages = await receive_async(receiver, 5)
                assert bodies(messages) == ["0", "1", "2", "3", "4"]
                await receiver.abandon_message(messages[0])
                for message in messages[1:]:
                    await receiver.complete_message(message)
                (again,) = await receive_async(receiver, 1)
                assert (str(again), again.delivery_count) == ("0", 1)
                await receiver.complete_message(again)
                assert await receiver.peek_messages() == []

    run(work())


def test_sb_702_deferral_and_dead_letters(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """R-50, R-51, D-1, D-10: a deferred message by its number, a dead one with its reason."""
    queue = new_queue()

    async def work() -> None:
        async with connect(server) as client:
            await send_async(client, queue, "later", "never")
            async with client.get_queue_receiver(queue) as receiver:
                later, never = await receive_async(receiver, 2)
                await receiver.defer_message(later)
                await receiver.dead_letter_message(never, reason="bad", error_description="very bad")
                (deferred,) = await receiver.receive_deferred_messages([later.sequence_number])
                assert str(deferred) == "later"
                await receiver.complete_message(deferred)
            async with client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
                (message,) = await receive_async(dead, 1)
                assert (message.dead_letter_reason, message.dead_letter_error_description) == (
                    "bad",
                    "very bad",
                )
                await dead.complete_message(message)

    run(work())


def test_sb_703_scheduling_and_cancelling(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """S-30, S-31, S-33: one comes at its time, the cancelled one never."""
    queue = new_queue()

    async def work() -> None:
        async with connect(server) as client, client.get_queue_sender(queue) as sender:
            soon = datetime.now(UTC) + timedelta(seconds=2)
            first, second = await sender.schedule_messages(
                [ServiceBusMessage("comes"), ServiceBusMessage("cancelled")], soon
            )
            assert second == first + 1
            await sender.cancel_scheduled_messages(second)
            async with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
                received = [message async for message in receiver]
                assert bodies(received) == ["comes"]
                assert received[0].enqueued_time_utc >= soon - timedelta(milliseconds=1)

    run(work())


def test_sb_704_the_renewer_keeps_a_lock(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """R-18, R-40: AutoLockRenewer holds a message for longer than the queue's lock."""
    queue = new_queue(lock_duration=timedelta(seconds=5))

    async def work() -> None:
        async with connect(server) as client, AutoLockRenewer() as renewer:
            await send_async(client, queue, "held")
            async with client.get_queue_receiver(queue) as receiver:
                (message,) = await receive_async(receiver, 1)
                first_end = message.locked_until_utc
                renewer.register(receiver, message, max_lock_renewal_duration=30)
                await _until(lambda: datetime.now(UTC) > first_end + timedelta(seconds=1))
                assert message.locked_until_utc > first_end
                await receiver.complete_message(message)
                assert await receiver.peek_messages() == []

    run(work())


async def _until(holds: Callable[[], bool], seconds_max: float = 100.0) -> None:
    until = time.monotonic() + seconds_max
    while not holds():
        assert time.monotonic() < until, "it never came to pass"
        await asyncio.sleep(0.05)


def test_sb_705_prefetch_and_several_receivers_share_the_work(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """R-3, R-20: each message goes to one of the receivers, whatever they prefetch."""
    queue = new_queue()
    texts = [str(number) for number in range(60)]

    async def consume(client: ServiceBusClient, found: list[str]) -> None:
        async with client.get_queue_receiver(queue, prefetch_count=10, max_wait_time=3) as receiver:
            async for message in receiver:
                found.append(str(message))
                await receiver.complete_message(message)

    async def work() -> None:
        found: list[list[str]] = [[], [], []]
        async with connect(server) as client:
            await send_async(client, queue, *texts)
            await asyncio.gather(*(consume(client, part) for part in found))
        assert sorted(itertools.chain(*found), key=int) == texts

    run(work())


# -- sessions


def test_sb_710_named_and_next_sessions(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """X-3, X-4, X-6, X-8, X-15: each receiver has one session; the next is the oldest free one; none is a
    time-out."""
    queue = new_queue(requires_session=True)

    async def work() -> None:
        async with connect(server) as client:
            await send_async(client, queue, "a1", session_id="a")
            await send_async(client, queue, "b1", "b2", session_id="b")
            async with client.get_queue_receiver(queue, session_id="a") as named:
                assert bodies(await receive_async(named, 1)) == ["a1"]
                await named.session.set_state("state of a")
                assert await named.session.get_state() == b"state of a"
                async with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as following:
                    assert following.session.session_id == "b"
                    assert bodies(await receive_async(following, 2)) == ["b1", "b2"]
                    with pytest.raises(OperationTimeoutError):
                        await _accept_next(client, queue)

    run(work())


async def _accept_next(client: ServiceBusClient, queue: str) -> None:
    async with client.get_queue_receiver(
        queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
    ) as receiver:
        await receiver.receive_messages(max_wait_time=1)


def test_sb_711_the_service_keeps_session_locks_across_connections(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """X-18, X-5: receivers on two connections, as on two machines: one holds the session, the other waits."""
    queue = new_queue(requires_session=True)

    async def work() -> None:
        async with connect(server) as here, connect(server, 0) as there:
            await send_async(here, queue, "1", "2", session_id="s")
            async with here.get_queue_receiver(queue, session_id="s") as holder:
                (first,) = await receive_async(holder, 1)
                await holder.complete_message(first)
                with pytest.raises(SessionCannotBeLockedError):
                    await there.get_queue_receiver(queue, session_id="s").__aenter__()
            async with there.get_queue_receiver(queue, session_id="s") as successor:
                assert bodies(await receive_async(successor, 1)) == ["2"]

    run(work())


# -- the server goes and comes


def test_sb_720_a_client_goes_on_after_a_restart(tmp_path: Path) -> None:
    """ERR-24: a connection that the server closes is an error that the SDK retries: the same sender and the same
    receiver work again when the server is back, and nothing is lost."""

    async def work(server: RunningServer) -> None:
        async with (
            connect(server) as client,
            client.get_queue_sender("q") as sender,
            client.get_queue_receiver("q") as receiver,
        ):
            await sender.send_messages(ServiceBusMessage("before"))
            (before,) = await receive_async(receiver, 1)
            await receiver.complete_message(before)
            assert await asyncio.to_thread(server.stop) == 0
            await asyncio.to_thread(server.start)
            await sender.send_messages(ServiceBusMessage("after"))
            (after,) = await receive_async(receiver, 1)
            assert str(after) == "after"
            await receiver.complete_message(after)

    with RunningServer(tmp_path) as server:
        _administration(server).create_queue("q")
        run(work(server))


def test_sb_721_a_wait_for_a_session_goes_on_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-25, X-7: a stop cancels the wait with com.microsoft:operation-cancelled; the SDK asks again by itself and
    gets the session when the server is back."""
    caplog.set_level(logging.INFO, "azure.servicebus")

    def count(text: str) -> int:
        return sum(text in record.getMessage() for record in list(caplog.records))

    async def until(text: str, times: int = 1) -> None:
        for _ in range(1_000):
            if count(text) >= times:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"the SDK did not log {text!r}")

    async def work(server: RunningServer) -> None:
        async with connect(server, 8) as client:
            receiver = client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30)
            waiting = asyncio.create_task(receiver.__aenter__())
            await until("ATTACH_SENT", 3)  # two links for the token, then the receiver's own
            await asyncio.sleep(0.5)  # it is on its way, and nothing answers it
            assert await asyncio.to_thread(server.stop) == 0
            await until("com.microsoft:operation-cancelled")
            await asyncio.to_thread(server.start)
            await send_async(client, "q", "after", session_id="s")
            await asyncio.wait_for(waiting, 100)
            assert receiver.session.session_id == "s"
            assert bodies(await receive_async(receiver, 1)) == ["after"]
            await receiver.close()

    with RunningServer(tmp_path) as server:
        _administration(server).create_queue("q", requires_session=True)
        run(work(server))


def _administration(server: RunningServer) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file
    )


# -- administration


def test_sb_730_the_asynchronous_administration_client(server: RunningServer) -> None:
    """E-43, E-80, E-82, E-90: create, read, change, list and delete; a queue is Available."""

    async def work() -> None:
        async with AsyncAdministrationClient.from_connection_string(
            server.connection_string, connection_verify=server.ca_file
        ) as admin:
            await admin.create_queue("sb-730", max_delivery_count=3)
            queue = await admin.get_queue("sb-730")
            assert (queue.max_delivery_count, queue.availability_status) == (3, "Available")
            queue.max_delivery_count = 4
            await admin.update_queue(queue)
            assert [q.max_delivery_count async for q in admin.list_queues() if q.name == "sb-730"] == [4]
            counts = await admin.get_queue_runtime_properties("sb-730")
            assert counts.total_message_count == 0
            await admin.delete_queue("sb-730")
            assert "sb-730" not in [q.name async for q in admin.list_queues()]

    run(work())


# -- rules and tokens


def rule(name: str, rights: list[AccessRights], key: str = RULE_KEY) -> AuthorizationRule:
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=rights,
        key_name=name,
        primary_key=key,
        secondary_key=base64.b64encode(name.ljust(32).encode()).decode(),
    )


def with_rule(server: RunningServer, queue: str, name: str, key: str = RULE_KEY) -> str:
    """A connection string for one queue with one of its rules."""
    endpoint = server.connection_string.partition(";")[0]
    return (
        f"{endpoint};SharedAccessKeyName={name};SharedAccessKey={key};EntityPath={queue};"
        "UseDevelopmentEmulator=true"
    )


def blocking(connection_string: str) -> BlockingClient:
    return BlockingClient.from_connection_string(connection_string, retry_total=0)


def test_sb_740_a_send_rule_sends_and_does_not_receive(
    server: RunningServer, client: BlockingClient, new_queue: Callable[..., str]
) -> None:
    """A-6, A-9: the rule of a queue gives just its rights: no receiving, no peeking, no other queue."""
    queue = new_queue(authorization_rules=[rule("sender", [AccessRights.SEND])])
    other = new_queue()
    with blocking(with_rule(server, queue, "sender")) as restricted:
        send(restricted, queue, "sent with a rule")
        with pytest.raises(ServiceBusAuthorizationError, match=r"'Listen' claim\(s\) are required"):
            restricted.get_queue_receiver(queue, max_wait_time=1).receive_messages()
        with pytest.raises(ServiceBusError):
            restricted.get_queue_receiver(queue).peek_messages()
    with (
        blocking(with_rule(server, other, "sender")) as elsewhere,
        pytest.raises(ServiceBusAuthenticationError),
    ):
        send(elsewhere, other, "refused")
    assert peek_count(client, queue) == 1
    assert peek_count(client, other) == 0


def test_sb_741_a_listen_rule_receives_and_does_not_send(
    server: RunningServer, client: BlockingClient, new_queue: Callable[..., str]
) -> None:
    """A-9: the other way round; settlement needs Listen only."""
    queue = new_queue(authorization_rules=[rule("listener", [AccessRights.LISTEN])])
    send(client, queue, "for the listener")
    with blocking(with_rule(server, queue, "listener")) as restricted:
        with restricted.get_queue_receiver(queue, max_wait_time=5) as receiver:
            (message,) = receiver.receive_messages()
            receiver.complete_message(message)
        with pytest.raises(ServiceBusAuthorizationError, match=r"'Send' claim\(s\) are required"):
            send(restricted, queue, "refused")
    assert peek_count(client, queue) == 0


def token(server: RunningServer, path: str, expires_in_s: int, *, name: str, key: str) -> str:
    """A shared access signature as any client makes it."""
    host = server.connection_string.partition("sb://")[2].partition(";")[0]
    audience = quote_plus(f"sb://{host}/{path}")
    expiry = int(time.time()) + expires_in_s
    digest = hmac.new(key.encode(), f"{audience}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={audience}&sig={signature}&se={expiry}&skn={name}"


def with_token(server: RunningServer, text: str) -> str:
    endpoint = server.connection_string.partition(";")[0]
    return f"{endpoint};SharedAccessSignature={text};UseDevelopmentEmulator=true"


class TokenSource:
    """A credential of the application's own: counts how often it was asked."""

    def __init__(self, make: Callable[[], str], life_s: int) -> None:
        self._make = make
        self._life_s = life_s
        self.asked = 0

    def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        self.asked += 1
        return AccessToken(self._make(), int(time.time()) + self._life_s)


def test_sb_742_an_expired_token_is_refused(
    server: RunningServer,
    client: BlockingClient,
    new_queue: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A-5, A-6: also when its signature is good."""
    queue = new_queue(authorization_rules=[rule("sender", [AccessRights.SEND])])
    with blocking(with_token(server, token(server, queue, 60, name="sender", key=RULE_KEY))) as in_time:
        send(in_time, queue, "in time")
    caplog.set_level(logging.INFO, "azure.servicebus")
    with (
        blocking(with_token(server, token(server, queue, -60, name="sender", key=RULE_KEY))) as too_late,
        pytest.raises(ServiceBusAuthenticationError),
    ):
        send(too_late, queue, "too late")
    assert "Put token error: b'com.microsoft:auth-failed'" in caplog.text
    assert peek_count(client, queue) == 1


def test_sb_743_a_rotated_key_ends_links_and_the_new_one_opens_them(
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    client: BlockingClient,
    new_queue: Callable[..., str],
) -> None:
    """A-10: regenerating a key ends all tokens made with it, open links included."""
    queue = new_queue(authorization_rules=[rule("sender", [AccessRights.SEND])])
    with (
        blocking(with_rule(server, queue, "sender")) as restricted,
        restricted.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("with the old key"))
        description = admin.get_queue(queue)
        description.authorization_rules = [rule("sender", [AccessRights.SEND], OTHER_KEY)]
        admin.update_queue(description)
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("still with the old key"))
    with blocking(with_rule(server, queue, "sender", OTHER_KEY)) as renewed:
        send(renewed, queue, "with the new key")
    assert peek_count(client, queue) == 2


def test_sb_744_a_renewed_token_keeps_a_link_alive(
    server: RunningServer, client: BlockingClient, new_queue: Callable[..., str]
) -> None:
    """A-8: the SDK puts a new token before the old one ends, and the link lives on past it."""
    queue = new_queue(authorization_rules=[rule("sender", [AccessRights.SEND])])
    source = TokenSource(lambda: token(server, queue, 10, name="sender", key=RULE_KEY), life_s=10)
    host = server.connection_string.partition("sb://")[2].partition(";")[0]
    sent = 0
    with (
        BlockingClient(host, source, use_tls=False, retry_total=0) as restricted,
        restricted.get_queue_sender(queue) as sender,
    ):
        until = time.monotonic() + 12
        while time.monotonic() < until:
            sender.send_messages(ServiceBusMessage(str(sent)))
            sent += 1
            time.sleep(0.25)
    assert source.asked > 1
    assert peek_count(client, queue) == sent


def test_sb_745_a_missing_queue_fails_at_the_token(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """S-10, ERR-1: put-token answers that the entity is not there; the SDK calls it an authentication error."""
    caplog.set_level(logging.INFO, "azure.servicebus")
    with blocking(server.connection_string) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            send(client, "no-such-queue", "lost")
        assert "Put token error: b'amqp:not-found'" in caplog.text
        with pytest.raises(ServiceBusAuthenticationError):
            client.get_queue_receiver("no-such-queue", max_wait_time=1).receive_messages()
