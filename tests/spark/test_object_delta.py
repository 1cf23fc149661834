"""A Delta table in a store of objects: captured whatever request fails, put together by its own optimize, and read by
replay and report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from busway_spark.eventhubs.offsets import EventRange
from busway_spark.eventhubs.ranges import BulkReader
from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.capture.capture_sink import DELTA, CaptureStreamWriter
from busway_spark.pipeline.capture.captured_writer import ZSTD
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured_files import History
from busway_spark.pipeline.captured.delta_table import open_table
from busway_spark.pipeline.compaction import CompactOptions, compact
from busway_spark.pipeline.job import HUB, QUEUE_KIND, JobFailed, JobPlace, JobProgress, hadoop_version
from busway_spark.pipeline.replay import MAX, ReplayOptions, replay
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import events
from tests.spark.hub_traffic import expected, fill
from tests.spark.played_capture import PlayedBus
from tests.spark.played_objects import PlayedObjects
from tests.spark.s3_server import BUCKET, HAPPENINGS, Happening, S3Server, s3, s3_server
from tests.spark.test_s3a import busway

__all__ = ["s3", "s3_server"]


def filled(name: str) -> CaptureRoot:
    """Three batches of an hour."""
    root = CaptureRoot(f"s3a://{BUCKET}/{name}")
    sink = CaptureStreamWriter(root, "clicks", DELTA, ZSTD)
    for at in range(3):
        rows = events(range(10 * at, 10 * at + 10))
        sink.commit([sink.write_batch(BatchName("q", at), iter([rows]))], at)
    return root


def optimise(root: CaptureRoot) -> None:
    """As whoever keeps the table does."""
    table = open_table(root)
    assert isinstance(table, DeltaTable)
    table.optimize.compact()


def good_requests(s3: S3Server, kind: str) -> int:
    run = PlayedObjects(s3, f"good-{kind}", PlayedBus(kind), DELTA)
    run.run()
    run.check_all()
    return len(s3.requests)


def check_happenings(s3: S3Server, kind: str, happenings: Iterator[Happening]) -> None:
    broken = []
    for at, happening in enumerate(happenings):
        run = PlayedObjects(s3, f"{kind}-{at}", PlayedBus(kind), DELTA)
        s3.arm(happening)
        try:
            run.run()
        except JobFailed:
            pass
        finally:
            s3.arm()
        try:
            run.check()
            run.run()
            run.check_all()
        except (AssertionError, Exception) as error:
            broken.append(f"{happening}: {type(error).__name__} {error}"[:300])
    assert broken == [], f"{len(broken)}:\n" + "\n".join(broken)


def test_a_table_of_objects_is_captured_optimised_and_replayed(
    s3: S3Server, server: RunningServer, hub: str
) -> None:
    """Delta: on s3://, by the one spelling and the other; each event comes back once, in its order."""
    root = filled("lake")
    assert [row.number for row in History(root, "clicks").rows(0)] == list(range(30))
    with pytest.raises(JobFailed, match="its own 'optimize'"):
        compact(CompactOptions(root.location), JobProgress())
    optimise(root)
    assert len(History(root, "clicks").files) == 1
    place = JobPlace(Bus(server.connection_string), "local[2]")
    result = replay(place, ReplayOptions(f"s3://{BUCKET}/lake", "clicks", hub, speed=MAX), JobProgress())
    assert (result.rows, result.is_done) == (30, True)
    batches = BulkReader(Bus(server.connection_string), hub).batches(EventRange("0", 0, 100))
    bodies = [body for each in batches for body in each.column("body").to_pylist()]
    assert bodies == [b"0-%d" % number for number in range(30)]
    assert any("_delta_log" in key for key in s3.objects())


def test_a_version_is_written_on_a_condition(s3: S3Server) -> None:
    """Delta: only if there is none of its number, so that of two that write at once one alone wins."""
    filled("lake")
    versions = [each for each in s3.requests if "_delta_log" in each and not each.startswith("GET")]
    assert versions == [f"CREATE /{BUCKET}/lake/_delta_log/{at:020}.json" for at in range(4)]


def test_a_batch_that_comes_again_is_known_by_the_last_versions(s3: S3Server) -> None:
    """Delta: by a request for each, behind those that open the table; other threads go on meanwhile (the store's own
    is one of them)."""
    sink = CaptureStreamWriter(filled("lake"), "clicks", DELTA, ZSTD)
    versions = sorted(key for key in s3.objects() if "_delta_log" in key)
    rows = events(range(20, 30))
    s3.arm()
    sink.commit([sink.write_batch(BatchName("q", 2), iter([rows]))], 2)
    assert sorted(key for key in s3.objects() if "_delta_log" in key) == versions
    with pytest.raises(JobFailed, match="comes again with other messages"):
        sink.commit([sink.write_batch(BatchName("q", 2), iter([events(range(25, 35))]))], 2)


def test_a_request_that_fails_loses_and_doubles_nothing_of_a_table(s3: S3Server) -> None:
    """Delta: a busy store, a broken connection, a lost answer, a kill; `abort`, and a new start."""
    count = good_requests(s3, HUB)
    tried = range(5, count + 1, 24)
    check_happenings(s3, HUB, (Happening(at, HAPPENINGS[at // 24 % len(HAPPENINGS)]) for at in tried))


@pytest.mark.long
@pytest.mark.parametrize("what", HAPPENINGS)
@pytest.mark.parametrize("kind", [HUB, QUEUE_KIND])
def test_every_request_that_fails_in_every_way_loses_and_doubles_nothing_of_a_table(
    s3: S3Server, kind: str, what: str
) -> None:
    """Delta: the same with each request and everything that may happen to it."""
    count = good_requests(s3, kind)
    check_happenings(s3, kind, (Happening(at, what) for at in range(1, count + 1)))


@pytest.mark.long
def test_commands_capture_into_a_table_of_objects_and_replay_it(
    s3: S3Server, server: RunningServer, hub: str, tmp_path: Path
) -> None:
    """Delta: `capture --format delta` needs no driver of Spark's where the checkpoint lies elsewhere, and `replay`
    none at all; what does need one (`--where`, `report`) says how to get it."""
    lake = f"s3://{BUCKET}/x"
    fill(server.connection_string, hub, 20)
    keeping = ("--checkpoint", str(tmp_path / "checkpoint"), "--master", "local[1]")
    done = busway(server, "capture", hub, "--to", lake, "--format", "delta", *keeping)
    assert done.returncode == 0, done.stderr
    bodies = [row.body for part in range(2) for row in History(CaptureRoot(lake), hub).rows(part)]
    assert sorted(body.decode() for body in bodies if body is not None) == expected(20)
    again = ("replay", lake, "--entity", hub, "--into", hub, "--speed", "max")
    done = busway(server, *again)
    assert done.returncode == 0, done.stderr
    way = f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()}"
    for refused in ((*again, "--where", "partition = 0"), ("report", "--captured", lake)):
        done = busway(server, *refused, "--master", "local[1]")
        assert done.returncode == 1
        assert way in done.stderr, done.stderr
        assert "--checkpoint" not in done.stderr
    assert json.loads(s3.objects()["x/_delta_log/00000000000000000000.json"].splitlines()[0])
