"""Moving dead letters back against a real server, without Spark: each once, the others untouched."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway_spark.pipeline.deadletters.plan import (
    DUPLICATE_DETECTION,
    GONE,
    LOCKED,
    REFUSED,
    RESUBMITTED,
    TRANSACTION,
    LetterRoute,
    find_route,
)
from busway_spark.pipeline.job import JobFailed, JobProgress
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.deadletter_rig import COUNT, STEPS, bury, dead_letters_of, is_even, move, peek_all, route_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bus(server: RunningServer) -> Bus:
    return Bus(server.connection_string)


@pytest.fixture
def admin(server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    """Its own: the server closes a connection that waited for other tests for long."""
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        yield client


def numbered(count: int = COUNT) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(str(at).encode(), message_id=f"m-{at}") for at in range(count)]


def new_queue(admin: ServiceBusAdministrationClient, **properties: str | int | bool) -> str:
    name = f"dead-{uuid4().hex[:10]}"
    admin.create_queue(name, properties)
    return name


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


async def both(bus: Bus, source: str, destination: str) -> tuple[list[ServiceBusReceivedMessage], ...]:
    async with bus.client() as client:
        return await peek_all(client, dead_letters_of(source)), await peek_all(client, destination)


EVEN = list(range(0, COUNT, 2))
ODD = list(range(1, COUNT, 2))


@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["home", "elsewhere"])
def test_exactly_the_chosen_ones_move(
    admin: ServiceBusAdministrationClient, bus: Bus, is_partitioned: bool, elsewhere: bool
) -> None:
    """R-12, TX-3, TX-8, TX-17: sent and taken away in one transaction; the others keep even their delivery counts."""
    source = new_queue(admin, EnablePartitioning=is_partitioned)
    destination = new_queue(admin) if elsewhere else source

    async def work() -> None:
        async with bus.client() as client:
            await bury(client, source, numbered())
        route = find_route(bus, source, destination if elsewhere else None)
        assert (route.guarantee, route.is_via) == (TRANSACTION, is_partitioned or elsewhere)
        mover, outcomes = await move(bus, route, is_even)
        assert outcomes == {RESUBMITTED: len(EVEN)}
        assert mover.moved == len(EVEN)
        left, moved = await settled(bus, source, destination)
        assert bodies(left) == ODD
        assert bodies(moved) == EVEN
        assert {message.delivery_count for message in left} == {0}
        assert "DeadLetterReason" not in moved[0].application_properties
        assert {message.message_id for message in moved} == {f"m-{at}" for at in EVEN}
        assert await receivable(bus, dead_letters_of(source)) == len(ODD)

    asyncio.run(work())


async def settled(bus: Bus, source: str, destination: str) -> tuple[list[ServiceBusReceivedMessage], ...]:
    """What is sent via another entity arrives a moment later."""
    for _ in range(100):
        left, moved = await both(bus, source, destination)
        if len(moved) >= len(EVEN):
            break
        await asyncio.sleep(0.05)
    return left, moved


async def receivable(bus: Bus, address: str) -> int:
    async with bus.client() as client, client.get_queue_receiver(address) as receiver:
        return len(await receiver.receive_messages(250, 2))


def test_a_mover_that_is_killed_at_any_step_loses_and_doubles_nothing(
    admin: ServiceBusAdministrationClient, server: RunningServer, bus: Bus
) -> None:
    """TX-5, TX-8, S-40: kill -9 while locked, settled, sent, committing, committed; a second run ends the work."""
    tasks: list[tuple[str, str, str]] = []
    for step, guarantee in STEPS:
        detects = guarantee == DUPLICATE_DETECTION
        queue = new_queue(admin, LockDuration="PT5S", RequiresDuplicateDetection=detects)
        tasks.append((step, guarantee, queue))

    async def prepare() -> None:
        async with bus.client() as client:
            for _, _, queue in tasks:
                await bury(client, queue, numbered())

    asyncio.run(prepare())
    command = [sys.executable, "-m", "tests.spark.deadletter_rig", server.connection_string]
    killed = subprocess.run(
        [*command, *("/".join(task) for task in tasks)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert killed.returncode == 0, killed.stderr

    async def finish() -> None:
        again = [
            move(bus, route_of(bus, queue, guarantee), is_even, wait_s=10) for _, guarantee, queue in tasks
        ]
        await asyncio.gather(*again)
        for step, guarantee, queue in tasks:
            left, moved = await both(bus, queue, queue)
            assert bodies(left) == ODD, (step, guarantee)
            assert Counter(bodies(moved)) == Counter(EVEN), (step, guarantee)

    asyncio.run(finish())


def test_a_destination_that_detects_duplicates_takes_what_comes_back(
    admin: ServiceBusAdministrationClient, bus: Bus
) -> None:
    """S-40: under its old id a message would be dropped as a duplicate of itself; a new id is always the same."""
    queue = new_queue(admin, RequiresDuplicateDetection=True, EnablePartitioning=True)

    async def work() -> None:
        async with bus.client() as client:
            await bury(client, queue, numbered())
        _, outcomes = await move(bus, find_route(bus, queue, None), is_even)
        assert outcomes == {RESUBMITTED: len(EVEN)}
        left, moved = await settled(bus, queue, queue)
        assert (bodies(left), bodies(moved)) == (ODD, EVEN)

    asyncio.run(work())
    route = LetterRoute(queue, queue, TRANSACTION)
    first = route.message_id("m-1", 7)
    assert first is not None
    assert first.startswith("m-1~dl-")
    assert route.message_id(first, 7) == first
    assert route.message_id("m-1", 8) != first
    assert LetterRoute("other", queue, TRANSACTION).message_id("m-1", 7) != first
    assert len(route.message_id("x" * 500, 7) or "") == 128


def test_changes_are_put_into_the_message_and_the_rest_stays_as_it_was(
    admin: ServiceBusAdministrationClient, bus: Bus
) -> None:
    """Fixes: subject, body, a property more, one less; body, id, session and other properties untouched."""
    queue = new_queue(admin)
    message = ServiceBusMessage(
        b"0",
        {"tenant": 5, "old": "x", "kept": b"\x00\x01"},
        "m-0",
        "s",
        subject="was",
        time_to_live_ms=600_000,
    )

    async def work() -> None:
        async with bus.client() as client:
            await bury(client, queue, [message])
        changes = {
            "subject": "new",
            "properties.tenant": "t5",
            "properties.old": None,
            "partitionKey": "s",
            "to": "x",
        }
        await move(bus, find_route(bus, queue, None), is_even, changes=changes)
        _, [moved] = await both(bus, queue, queue)
        assert moved.subject == "new"
        assert moved.application_properties == {"tenant": "t5", "kept": b"\x00\x01"}
        assert (moved.body, moved.message_id, moved.session_id, moved.to) == (b"0", "m-0", "s", "x")
        assert (moved.partition_key, moved.time_to_live_ms) == ("s", 600_000)

    asyncio.run(work())


def test_what_the_destination_refuses_stays_dead_lettered_and_is_named(
    admin: ServiceBusAdministrationClient, bus: Bus
) -> None:
    """S-9, X-1: one that is too large, or has no session id, keeps no other from going."""
    queue = new_queue(admin)

    async def work() -> None:
        async with bus.client() as client:
            await bury(client, queue, numbered(3))
        mover, outcomes = await move(
            bus, find_route(bus, queue, None), is_even, changes={"body": b"x" * 400_000}
        )
        assert outcomes == {REFUSED: 2}
        assert mover.ended_early is None
        needs = LetterRoute(queue, queue, TRANSACTION, needs_session=True)
        _, outcomes = await move(bus, needs, is_even)
        assert outcomes == {REFUSED: 2}
        left, moved = await both(bus, queue, queue)
        assert (bodies(left), moved) == ([0, 1, 2], [])
        assert {message.delivery_count for message in left} == {0}

    asyncio.run(work())


def test_deferred_dead_letters_go_by_number_and_locked_ones_stay(
    admin: ServiceBusAdministrationClient, bus: Bus
) -> None:
    """R-51, R-52: what somebody else holds is told and left; what vanished meanwhile is told."""
    queue = new_queue(admin)

    async def work() -> None:
        async with bus.client() as client:
            await bury(client, queue, numbered(6))
            async with client.get_queue_receiver(dead_letters_of(queue)) as receiver:
                zero, _, two, *_ = taken = await receiver.receive_messages(6, 2)
                await receiver.defer_message(zero)
                for message in taken[3:]:
                    await receiver.complete_message(message)
                _, outcomes = await move(bus, find_route(bus, queue, None), is_even, wait_s=0.3)
                assert outcomes == {RESUBMITTED: 1, LOCKED: 1}
                left, moved = await both(bus, queue, queue)
                assert (bodies(left), bodies(moved)) == ([1, 2], [0])
                await receiver.complete_message(two)

    asyncio.run(work())


def test_what_somebody_else_takes_meanwhile_is_told(admin: ServiceBusAdministrationClient, bus: Bus) -> None:
    """The plan is older than the moving: what is gone by then is gone, not resubmitted."""
    queue = new_queue(admin)

    async def work() -> None:
        async with bus.client() as client:
            await bury(client, queue, numbered(2))
            known = await peek_all(client, dead_letters_of(queue))
            async with client.get_queue_receiver(dead_letters_of(queue)) as receiver:
                for message in await receiver.receive_messages(2, 2):
                    await receiver.complete_message(message)
        mover, outcomes = await move(bus, find_route(bus, queue, None), is_even, known=known)
        assert (mover.moved, outcomes) == (0, {GONE: 1})

    asyncio.run(work())


def test_a_stop_leaves_the_rest_for_the_next_run(admin: ServiceBusAdministrationClient, bus: Bus) -> None:
    """Stopping: nothing is locked afterwards, and the next run does the rest."""
    queue = new_queue(admin)
    progress = JobProgress()
    progress.stop()

    async def work() -> None:
        async with bus.client() as client:
            await bury(client, queue, numbered(4))
        route = find_route(bus, queue, None)
        mover, outcomes = await move(bus, route, is_even, progress=progress)
        assert (mover.ended_early, outcomes) == ("it was asked to stop", {"planned": 2})
        _, outcomes = await move(bus, route, is_even)
        assert outcomes == {RESUBMITTED: 2}

    asyncio.run(work())


def test_destinations_that_cannot_take_anything_are_named(
    admin: ServiceBusAdministrationClient, bus: Bus
) -> None:
    """Errors help: a missing and a disabled destination."""
    queue = new_queue(admin)
    closed = new_queue(admin, Status="SendDisabled")
    with pytest.raises(JobFailed, match="There is no queue or topic 'nowhere'"):
        find_route(bus, queue, "nowhere")
    with pytest.raises(JobFailed, match=f"'{closed}' takes no messages"):
        find_route(bus, queue, closed)


def test_dead_letters_of_a_subscription_go_to_its_topic(
    admin: ServiceBusAdministrationClient, bus: Bus
) -> None:
    """TX-2: a topic and its subscriptions are one entity to a transaction."""
    topic = f"topic-{uuid4().hex[:10]}"
    admin.create_topic(topic)
    admin.create_subscription(topic, "all")
    source = f"{topic}/Subscriptions/all"

    async def work() -> None:
        async with bus.client() as client:
            await bury(client, source, numbered(4))
        route = find_route(bus, f"{source}", None)
        assert route.destination == topic
        _, outcomes = await move(bus, route, is_even)
        assert outcomes == {RESUBMITTED: 2}
        left, moved = await both(bus, source, source)
        assert (bodies(left), bodies(moved)) == ([1, 3], [0, 2])

    asyncio.run(work())
