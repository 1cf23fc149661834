"""`busway pipeline triage`: a real server, a real Spark."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway_spark.pipeline.deadletters.triage import Policy, TriageOptions, triage
from busway_spark.pipeline.job import JobFailed, JobPlace
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell
from tests.spark.deadletter_rig import bury, dead_letters_of, peek_all
from tests.spark.test_deadletters import lying

POLICY = """
create = true
[[rule]]
reason = "Timeout"
budget = 1
backoff = "2h"
quarantine = "QUARANTINE"
[[rule]]
where = "deadLetterReason = 'Poison'"
budget = 0
quarantine = "QUARANTINE"
"""
REASONS = [*[("Timeout", f"no answer within {at} s") for at in range(3)], ("Poison", "bad"), ("Other", "?")]


@pytest.fixture
def place(server: RunningServer, spark: SparkSession) -> JobPlace:
    assert spark.version
    return JobPlace(Bus(server.connection_string), master="local[2]")


def test_a_policy_decides_by_what_the_message_itself_tells(
    place: JobPlace, server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Triage: told before; resubmitted later with a count, into quarantine with its history when the budget is used
    up; what no rule fits is left, and a second round does nothing to it."""
    queue, bad = (f"triage-{uuid4().hex[:10]}" for _ in range(2))
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        admin.create_queue(queue)
    asyncio.run(fill(place, queue))
    path = tmp_path / "policy.toml"
    path.write_text(POLICY.replace("QUARANTINE", bad))
    policy = Policy.read(path)

    dry = triage(place, TriageOptions((queue,), policy))
    told = {(group.reason, group.action, group.destination): count for group, count in dry.groups.items()}
    assert told == {
        ("Timeout", "resubmit", queue): 2,
        ("Timeout", "quarantine", bad): 1,
        ("Poison", "quarantine", bad): 1,
        ("Other", "leave", None): 1,
    }
    assert len(lying(place, dead_letters_of(queue))) == 5

    before_ms = time.time_ns() // 1_000_000
    call = ["pipeline", "triage", queue, "--policy", str(path), "--resubmit", "--master", "local[2]"]
    done = Shell(capsys).json(*call, "--connection-string", server.connection_string)
    assert (done["total"], done["outcomes"]) == (5, {"resubmitted": 4})
    again = lying(place, queue)
    assert sorted(str(each.message_id) for each in again) == ["m-0", "m-1"]
    for each in again:
        assert each.application_properties["busway-resubmitted"] == 1
        assert (each.scheduled_enqueue_time_ms or 0) >= before_ms + 3_600_000
    kept = {str(each.message_id): each.application_properties for each in lying(place, bad)}
    assert sorted(kept) == ["m-2", "m-3"]
    assert kept["m-2"]["busway-resubmitted"] == 1
    assert kept["m-2"]["busway-dead-letter-reason"] == "Timeout"
    assert kept["m-2"]["busway-dead-letter-description"] == "no answer within 2 s"
    assert kept["m-2"]["busway-dead-letter-source"] == queue
    assert "DeadLetterReason" not in kept["m-2"]

    rest = triage(place, TriageOptions((queue,), policy, resubmits=True))
    assert (rest.total, rest.outcomes, rest.is_complete) == (1, {}, True)

    wrong = Policy.parse("[[rule]]\nbudget = 1\nwhere = 'deliveryCount + 1'")
    with pytest.raises(JobFailed, match="rule 1: where must be true or false for each dead letter"):
        triage(place, TriageOptions((queue,), wrong))
    missing = Policy.parse("[[rule]]\nbudget = 1\nquarantine = 'nobody'")
    with pytest.raises(JobFailed, match="There is no queue or topic 'nobody'"):
        triage(place, TriageOptions((queue,), missing))


async def fill(place: JobPlace, queue: str) -> None:
    """The third was resubmitted once."""
    async with place.bus.client() as client:
        messages = [
            ServiceBusMessage(b"x", {"busway-resubmitted": 1} if at == 2 else {}, f"m-{at}")
            for at in range(5)
        ]
        await bury(client, queue, messages, REASONS)
        assert len(await peek_all(client, dead_letters_of(queue))) == 5
