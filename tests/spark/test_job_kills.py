"""Whole jobs of `busway pipeline` die by kill -9 in the middle of their work: driver, Java and Python workers
at once. The same command once more does the rest, and nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.deadletters.plan import DEAD_LETTER
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import events, writer
from tests.spark.captured_topic import CapturedTopic
from tests.spark.deadletter_rig import peek_all
from tests.spark.job_driver import Job
from tests.spark.test_backfill import RULES

pytestmark = [pytest.mark.fault, pytest.mark.long]

PUBLISHED = 2_000
#: More than one step of a backfill: it takes 256 files at a time, and a partitioned topic has 16 fragments.
FILES = 20
#: Of each queue; every third is not chosen.
DEAD_LETTERS = 6_000
CHOSEN = [number for number in range(DEAD_LETTERS) if number % 3]
#: Of each of two partitions.
REPLAYED = 1_000
LEFT = [number for number in range(DEAD_LETTERS) if number % 3 == 0]


def test_a_backfill_that_is_killed_twice_gives_what_a_live_subscription_received(
    server: RunningServer, tmp_path: Path
) -> None:
    """Backfill, E-70: killed among its first copies, and again when it is more than half done; each copy is there
    once, and so is each dead letter of a rule that failed."""
    topic = CapturedTopic(server.connection_string, tmp_path / "lake", is_partitioned=True)
    topic.subscribe("live", *RULES)
    topic.publish(PUBLISHED)
    topic.subscribe("late", *RULES)
    topic.capture(FILES)
    command = ("backfill", topic.name, "late", "--from", str(topic.root))
    with topic.administration() as client:
        total = held(client, topic, "live")
        sent = 0
        for wanted in (0, total * 6 // 10):
            with Job(tmp_path, server.connection_string, *command) as job:
                died = job.kill_when(partial(holds_more, client, topic, wanted))
            assert {"java", "busway", "pyspark.daemon"} <= died
            before, sent = sent, held(client, topic, "late")
            assert before < sent < total
        with Job(tmp_path, server.connection_string, *command) as job:
            job.end()
    for place in ("", DEAD_LETTER):
        live, late = topic.seen(f"live{place}"), topic.seen(f"late{place}")
        assert late == live, (place, "missing", live - late, "too much", late - live)
        assert live


def holds_more(client: ServiceBusAdministrationClient, topic: CapturedTopic, number: int) -> bool:
    return held(client, topic, "late") > number


def held(client: ServiceBusAdministrationClient, topic: CapturedTopic, subscription: str) -> int:
    """Dead letters too."""
    return int(str(client.get_subscription(topic.name, subscription).numbers["MessageCount"]))


def test_a_resubmission_that_is_killed_twice_moves_exactly_the_chosen_ones(
    server: RunningServer, tmp_path: Path
) -> None:
    """Dead letters, TX-8: killed while it moves those of its first queue, which is partitioned, and again while it
    writes its report; each chosen one is in the other queue once, changed once, and the report can be read."""
    plain, partitioned, target = (f"dead-{uuid4().hex[:10]}" for _ in range(3))
    report = tmp_path / "report"
    command = ["deadletters", partitioned, plain, "--into", target, "--resubmit", "--report", str(report)]
    command += ["--where", "properties.kind::int > 0", "--set", "properties.tries=properties.tries::int + 1"]
    command += ["--set", "subject=concat(subject, '!')"]
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        for name, is_partitioned in ((plain, False), (partitioned, True), (target, False)):
            client.create_queue(name, {"LockDuration": "PT5S", "EnablePartitioning": is_partitioned})
    asyncio.run(fill(server.connection_string, plain, partitioned))
    with Job(tmp_path, server.connection_string, *command) as job:
        died = job.kill_when(lambda: dead_letters(server.connection_string, partitioned) < DEAD_LETTERS)
    assert {"java", "busway"} <= died
    assert len(LEFT) < dead_letters(server.connection_string, partitioned) < DEAD_LETTERS
    assert dead_letters(server.connection_string, plain) == DEAD_LETTERS
    assert not report.exists()
    with Job(tmp_path, server.connection_string, *command) as job:
        job.kill_when(lambda: any(report.glob(".*")))
    assert told(report) == {}
    with Job(tmp_path, server.connection_string, *command) as job:
        assert f"{2 * len(LEFT)} dead letters, 0 chosen" in job.end()
    assert told(report) == {"untouched": 2 * len(LEFT)}
    assert (report / "deadletters.html").read_text().endswith("</html>\n")
    asyncio.run(check(server.connection_string, plain, partitioned, target))


def test_a_triage_that_is_killed_counts_each_message_once(server: RunningServer, tmp_path: Path) -> None:
    """Triage: a stream is killed while it moves, and another one does the rest; then those whose budget is used up go
    into quarantine, killed again. Each message is in one place, with the count that is true."""
    queue, bad = (f"triage-{uuid4().hex[:10]}" for _ in range(2))
    policy = tmp_path / "policy.toml"
    policy.write_text(f"create = true\n[[rule]]\nreason = 'Bad'\nbudget = 1\nquarantine = '{bad}'\n")
    command = ["triage", queue, "--policy", str(policy), "--resubmit", "--follow", "--every", "1"]
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        client.create_queue(queue)
    asyncio.run(fill(server.connection_string, queue))
    for place in (queue, bad):
        with Job(tmp_path, server.connection_string, *command) as job:
            job.kill_when(lambda: dead_letters(server.connection_string, queue) < DEAD_LETTERS)
        assert 0 < dead_letters(server.connection_string, queue) < DEAD_LETTERS
        with Job(tmp_path, server.connection_string, *command) as job:
            job.kill_when(lambda: dead_letters(server.connection_string, queue) == 0)
        found = asyncio.run(peeked(server.connection_string, place))
        assert Counter(each.body for each in found) == Counter(bodies(queue, list(range(DEAD_LETTERS))))
        assert {each.application_properties["busway-resubmitted"] for each in found} == {1}
        if place == queue:
            asyncio.run(bury_all(server.connection_string, queue))


def test_a_replay_that_is_killed_again_and_again_sends_each_message_once(
    server: RunningServer, tmp_path: Path
) -> None:
    """Replay: into a queue that does not detect duplicates, at a pace; killed three times, wherever it is then."""
    queue = f"replayed-{uuid4().hex[:10]}"
    sink = writer(tmp_path / "lake")
    times = timedelta(milliseconds=10)
    rows = [events(range(REPLAYED), partition=at, every=times) for at in range(2)]
    sink.commit([sink.write_batch(BatchName("q", 0), iter([each])) for each in rows], 0)
    command = ("replay", str(tmp_path / "lake"), "--entity", "clicks", "--into", queue, "--speed", "2x")
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        client.create_queue(queue)
        for wanted in (0, REPLAYED // 2, REPLAYED):
            with Job(tmp_path, server.connection_string, *command, settings={}) as job:
                job.kill_when(lambda more=wanted: waiting(client, queue) > more)  # type: ignore[misc]
            assert waiting(client, queue) < 2 * REPLAYED
        with Job(tmp_path, server.connection_string, *command, settings={}) as job:
            job.end()
    found = [each.body for each in asyncio.run(peeked(server.connection_string, queue))]
    assert found == [b"%d-%d" % (part, number) for number in range(REPLAYED) for part in range(2)]


def waiting(client: ServiceBusAdministrationClient, queue: str) -> int:
    return int(str(client.get_queue(queue).numbers["MessageCount"]))


async def peeked(connection: str, place: str) -> list[ServiceBusReceivedMessage]:
    async with Bus(connection).client() as client:
        return await peek_all(client, place)


async def fill(connection: str, *queues: str) -> None:
    """Dead letters that tell where they come from."""
    async with ServiceBusClient.from_connection_string(connection) as client:
        for queue in queues:
            async with client.get_queue_sender(queue) as sender:
                for first in range(0, DEAD_LETTERS, 50):
                    await sender.send_messages([letter(queue, number) for number in range(first, first + 50)])
            await bury_all(connection, queue)


async def bury_all(connection: str, queue: str) -> None:
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        left = DEAD_LETTERS
        while left:
            messages = await receiver.receive_messages(100, 5)
            await asyncio.gather(*(receiver.dead_letter_message(each, "Bad", "bad") for each in messages))
            left -= len(messages)


def letter(queue: str, number: int) -> ServiceBusMessage:
    return ServiceBusMessage(f"{queue} {number}".encode(), {"kind": number % 3, "tries": number}, subject="x")


def dead_letters(connection: str, queue: str) -> int:
    """By a connection of its own: one that rests while a job starts is closed by the server."""
    with ServiceBusAdministrationClient.from_connection_string(connection) as client:
        return int(str(client.get_queue(queue).numbers["DeadLetterMessageCount"]))


def told(report: Path) -> Counter[str]:
    """What became of each, by any reader of Parquet."""
    files = sorted(report.glob("*.parquet"))
    return Counter(str(word) for file in files for word in pq.read_table(file).column("done").to_pylist())


async def check(connection: str, plain: str, partitioned: str, target: str) -> None:
    async with Bus(connection).client() as client:
        for queue in (plain, partitioned):
            left = await peek_all(client, queue + DEAD_LETTER)
            assert Counter(each.body for each in left) == Counter(bodies(queue, LEFT))
            assert {each.subject for each in left} == {"x"}
        moved = await peek_all(client, target)
        assert Counter(each.body for each in moved) == Counter(
            [body for queue in (plain, partitioned) for body in bodies(queue, CHOSEN)]
        )
        for each in moved:
            assert each.subject == "x!"
            assert each.application_properties["tries"] == int(each.body.split()[1]) + 1


def bodies(queue: str, numbers: list[int]) -> list[bytes]:
    return [f"{queue} {number}".encode() for number in numbers]
