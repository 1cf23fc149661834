"""The jobs of the pipeline as work that can be measured."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark_rig import BODY_BYTES, Rig
from busway.client.administration import ServiceBusAdministrationClient
from busway_spark.pipeline.captured.captured import SCHEMA, CapturedFile
from busway_spark.pipeline.job import JobPlace, JobProgress
from busway_spark.wire.bus import Bus
from tests.harness.running_server import BUSWAY

#: One of so many captured messages passes the filter of a backfill.
SELECTED = 1_000
#: A condition that is evaluated for each message and holds for each.
EVERYTHING = "quantity >= 0"
FILTER = "region = 'r0' AND quantity < 7"
_FILE_ROWS = 50_000
_FIRST_HOUR = datetime(2026, 11, 1, tzinfo=UTC)


class JobMissing(Exception):
    """The job is not there; the text says which."""


def _job(name: str) -> Any:
    try:
        return import_module(f"busway_spark.pipeline.{name}.{name}")
    except ImportError as error:
        raise JobMissing(f"there is no busway_spark.pipeline.{name}") from error


def capture_work(rig: Rig, hub: str, root: str, batch_rows: int | None = None) -> Callable[[], None]:
    job = _job("capture")
    place = JobPlace(Bus(rig.connection_string))
    options = job.CaptureOptions((hub,), root, batch_rows=batch_rows)

    def work() -> None:
        job.capture(place, options, JobProgress())

    return work


def write_captured(root: Path, entity: str, rows: int) -> None:
    """Files as a capture leaves them, without the capture. The filter selects one in SELECTED."""
    for first in range(0, rows, _FILE_ROWS):
        count = min(_FILE_ROWS, rows - first)
        hour = _FIRST_HOUR + timedelta(hours=first // _FILE_ROWS)
        path = root / CapturedFile(entity, hour, 0, first + 1).path
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_captured(first, count, hour), path, compression="zstd", row_group_size=10_000)


def _captured(first: int, count: int, hour: datetime) -> pa.Table:
    numbers = range(first, first + count)
    columns: dict[str, Any] = {
        "sequenceNumber": pa.array([at + 1 for at in numbers], pa.int64()),
        "enqueuedTime": pa.array([hour] * count, pa.timestamp("us", "UTC")),
        "body": pa.array([b"%d" % at * (BODY_BYTES // len(str(at))) for at in numbers], pa.binary()),
        "messageId": pa.array([f"id-{at}" for at in numbers]),
        "subject": pa.array([f"subject-{at % 13}" for at in numbers]),
        "contentType": pa.array(["application/json"] * count),
        "enqueuedSequenceNumber": pa.array([at + 1 for at in numbers], pa.int64()),
        "properties": pa.array(
            [f'{{"region": "r{at % 10}", "quantity": {at // 10 % 700}}}' for at in numbers]
        ),
    }
    empty = {each.name: pa.nulls(count, each.type) for each in SCHEMA if each.name not in columns}
    return pa.table([{**columns, **empty}[name] for name in SCHEMA.names], schema=SCHEMA)


def backfill_work(rig: Rig, root: str, rows: int, condition: str = FILTER) -> Callable[[], None]:
    """A subscription that is made after its topic's messages were captured gets those that its rule selects."""
    job = _job("backfill")
    topic, subscription = f"topic-{uuid4().hex[:8]}", "late"
    write_captured(Path(root), topic, rows)
    for command in (
        ("topic", "create", topic, "--max-size-in-megabytes", "5120"),
        ("subscription", "create", topic, subscription),
        ("rule", "create", topic, subscription, "selective", "--filter", condition),
        ("rule", "delete", topic, subscription, "$Default"),
    ):
        subprocess.run(
            [str(BUSWAY), *command, "--connection-string", rig.connection_string],
            check=True,
            capture_output=True,
        )
    end_us = int(datetime.now(UTC).timestamp() * 1e6)
    options = job.BackfillOptions(root, topic, subscription, before_us=end_us)
    place = JobPlace(Bus(rig.connection_string))

    def work() -> None:
        result = job.backfill(place, options, JobProgress())
        if condition == EVERYTHING:
            assert result.sent == rows, f"{result.sent} of {rows} messages were sent"

    return work


def deadletters_work(rig: Rig, rows: int) -> Callable[[], None]:
    """Dead letters of a queue, made by the end of their time, go back to it, each once."""
    job = _job("deadletters")
    queue = rig.server.queue(
        "--max-size-in-megabytes",
        "5120",
        "--default-message-time-to-live",
        "PT1S",
        "--dead-lettering-on-message-expiration",
    ).address
    rig.fill(queue, rows)
    bus = Bus(rig.connection_string)
    with ServiceBusAdministrationClient.from_connection_string(rig.connection_string) as admin:
        while (found := admin.get_queue(queue)).numbers["DeadLetterMessageCount"] != rows:
            time.sleep(0.5)
        admin.update_queue(found.changed({"DefaultMessageTimeToLive": "P1D"}))
    options = job.DeadLetters((queue,), resubmits=True)

    def work() -> None:
        outcomes = job.run(JobPlace(bus), options, JobProgress()).outcomes
        assert outcomes == {"resubmitted": rows}, f"{outcomes} of {rows} dead letters"

    return work
