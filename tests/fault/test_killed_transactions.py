"""A server that is killed while transactions are under way: each of them took place as a whole, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.errors import ClientError
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.harness.postgres_server import PostgresServer
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.fault

JOBS = 400
AT_ONCE = 20
#: So many are known to be committed when the server is killed.
KILLED_AFTER = 120
RESULTS = 2


async def _bodies(client: ServiceBusClient, queue: str) -> Counter[bytes]:
    """Everything that lies there."""
    found: Counter[bytes] = Counter()
    management = client.get_management(queue)
    after = 0
    while page := await management.peek_messages(250, after):
        found.update(message.body for message in page)
        after = 1 + max(message.sequence_number or 0 for message in page)
    return found


async def _work(server: RunningServer, queue: str, other: str | None, committed: set[bytes]) -> None:
    """Completes jobs and sends their results in transactions until the server is gone."""
    client = ServiceBusClient.from_connection_string(server.connection_string)
    async with client, client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(b"%d" % number) for number in range(JOBS)])
        jobs: list[ServiceBusReceivedMessage] = []
        while len(jobs) < JOBS:
            jobs += await receiver.receive_messages(JOBS - len(jobs))
        results = client.get_queue_sender(queue if other is None else other)
        await results.open()

        async def worker() -> None:
            while jobs:
                job = jobs.pop()
                async with client.transaction():
                    await receiver.complete_message(job)
                    for _ in range(RESULTS):
                        await results.send_messages(ServiceBusMessage(b"result of " + job.body))
                committed.add(job.body)
                if len(committed) == KILLED_AFTER:
                    server.kill()

        await asyncio.gather(*[worker() for _ in range(AT_ONCE)], return_exceptions=True)


@pytest.fixture(params=["files", "postgres"])
def stores(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Arguments of the server: four files, or a store in each of four databases."""
    if request.param == "files":
        yield []
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    urls = [postgres.database() for _ in range(4)]
    yield [word for at, url in enumerate(urls) for word in ("--store", f"{url}?name=db{at}&stores=1")]
    for url in urls:
        postgres.drop(url)


@pytest.mark.parametrize("crosses", [False, True])
def test_a_killed_server_tears_no_transaction_apart(tmp_path: Path, crosses: bool, stores: list[str]) -> None:
    """TX-8, TX-3: a job is gone exactly when its results are there, also when they move on to another entity, in
    another file or database."""
    committed: set[bytes] = set()
    with RunningServer(tmp_path, *stores) as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.connection_string
        ) as administration:
            for name in ("jobs", *[f"other-{number}" for number in range(4)]):
                administration.create_queue(name, {})
        other = "other-2" if crosses else None
        with contextlib.suppress(ClientError):
            asyncio.run(_work(server, "jobs", other, committed))
        assert len(committed) >= KILLED_AFTER
        server.start()
        asyncio.run(_check(server, other, committed))


async def _check(server: RunningServer, other: str | None, committed: set[bytes]) -> None:
    async with ServiceBusClient.from_connection_string(server.connection_string) as client:
        left = await _bodies(client, "jobs")
        results = left if other is None else await _moved(client, other, JOBS - len(left))
    for number in range(JOBS):
        job = b"%d" % number
        sent = results[b"result of " + job]
        assert sent == (0 if left[job] else RESULTS), job
        assert left[job] + sent // RESULTS == 1
        assert sent == RESULTS or job not in committed


async def _moved(client: ServiceBusClient, queue: str, jobs_done: int) -> Counter[bytes]:
    """What arrived, once everything that was committed has."""
    found: Counter[bytes] = Counter()
    async with client.get_queue_receiver(queue, receive_mode="receive-and-delete") as receiver:
        while found.total() < jobs_done * RESULTS:
            arrived = await receiver.receive_messages(1_000, 20.0)
            assert arrived, "something that was committed did not arrive"
            found.update(message.body for message in arrived)
        found.update(message.body for message in await receiver.receive_messages(1_000, 0.5))
    return found
