"""Whole commands into a store of objects, checkpoints too. Spark's own driver comes from Maven Central (700 MB), so
`make test-spark` alone runs them. Where jars lie already, name them: BUSWAY_S3A_JARS=a.jar,b.jar."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.delta_table import open_table
from busway_spark.pipeline.job import hadoop_version
from tests.harness.running_server import BUSWAY, RunningServer
from tests.spark.captured_topic import CapturedTopic
from tests.spark.hub_traffic import expected, fill
from tests.spark.s3_server import BUCKET, S3Server, s3, s3_server
from tests.spark.test_backfill import RULES

__all__ = ["s3", "s3_server"]
_JARS = os.environ.get("BUSWAY_S3A_JARS")
DRIVER = (
    f"spark.jars={_JARS}" if _JARS else f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()}"
)


def busway(
    server: RunningServer, *arguments: str, conf: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    settings = [word for each in ("spark.ui.enabled=false", *conf) for word in ("--conf", each)]
    return subprocess.run(
        [str(BUSWAY), "pipeline", *arguments, *settings],
        env={**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def bodies(s3: S3Server) -> list[str]:
    data = [each for key, each in s3.objects().items() if key.startswith("x/entity=")]
    tables = [pq.read_table(io.BytesIO(each), columns=["body"]) for each in data]
    return sorted(row["body"].decode() for table in tables for row in table.to_pylist())


@pytest.mark.long
def test_a_capture_keeps_data_and_checkpoint_in_one_bucket(
    s3: S3Server, server: RunningServer, hub: str
) -> None:
    """Places: a second call goes on behind the first, by the checkpoint that lies beside the data."""
    call = ("capture", hub, "--to", f"s3://{BUCKET}/x", "--master", "local[1]")
    fill(server.connection_string, hub, 10)
    done = busway(server, *call, conf=(DRIVER,))
    assert done.returncode == 0, done.stderr
    fill(server.connection_string, hub, 5, first=10)
    done = busway(server, *call, conf=(DRIVER,))
    assert done.returncode == 0, done.stderr
    assert bodies(s3) == expected(15)
    assert any(key.startswith(f"x/_checkpoints/entity={hub}/commits/") for key in s3.objects())


@pytest.mark.long
def test_a_driver_that_is_missing_is_told(s3: S3Server, server: RunningServer, hub: str) -> None:
    """Places: PySpark brings none; the sentence says how to get it, and nothing is captured."""
    fill(server.connection_string, hub, 10)
    done = busway(server, "capture", hub, "--to", f"s3a://{BUCKET}/x", "--master", "local[1]")
    assert done.returncode == 1
    assert f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()}" in done.stderr
    assert bodies(s3) == []


@pytest.mark.long
@pytest.mark.usefixtures("s3")
def test_a_report_counts_a_table_of_objects(server: RunningServer, hub: str, tmp_path: Path) -> None:
    """Places: a Delta table, by its log: what an optimize has put together is counted once."""
    lake = f"s3://{BUCKET}/x"
    for first in (0, 10):
        fill(server.connection_string, hub, 10, first=first)
        keeping = ("--checkpoint", str(tmp_path / "checkpoint"), "--master", "local[1]")
        done = busway(server, "capture", hub, "--to", lake, "--format", "delta", *keeping)
        assert done.returncode == 0, done.stderr
    table = open_table(CaptureRoot(lake))
    assert isinstance(table, DeltaTable)
    assert table.optimize.compact()["numFilesRemoved"] > 0
    out = tmp_path / "report"
    done = busway(server, "report", "--captured", lake, "--out", str(out), "--json", conf=(DRIVER,))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == len(expected(20))
    assert (out / "report.html").is_file()


@pytest.mark.long
@pytest.mark.usefixtures("s3")
def test_a_subscription_gets_its_history_out_of_a_bucket(server: RunningServer, tmp_path: Path) -> None:
    """Places: `backfill` and `report` find, choose and read what lies there as they do in a directory."""
    topic = CapturedTopic(server.connection_string, tmp_path / "lake", is_partitioned=True)
    topic.subscribe("live", *RULES)
    topic.publish(200)
    topic.subscribe("late", *RULES)
    topic.capture(files=2)
    lake = CaptureRoot(f"s3://{BUCKET}/x")
    assert lake.objects is not None
    for path in topic.root.rglob("*.parquet"):
        lake.objects.put(f"x/{path.relative_to(topic.root)}", path.read_bytes())
    done = busway(server, "backfill", topic.name, "late", "--from", lake.location, conf=(DRIVER,))
    assert done.returncode == 0, done.stderr
    live, late = topic.seen("live"), topic.seen("late")
    assert late == live, ("missing", live - late, "too much", late - live)
    assert live
    out = ("--out", str(tmp_path / "report"), "--json")
    done = busway(server, "report", "--captured", lake.location, *out, conf=(DRIVER,))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == 200
