"""Spark Connect: a server that was started with our archive and whose interpreter has nothing of ours, and clients in
processes of their own. As a program it is such a client: `python -m tests.spark.test_connect PLAN.json`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from busway_spark import spark_session
from busway_spark.start.session import prepare_environment
from busway_spark.start.shipping import code_archive
from tests.harness.running_server import RunningServer
from tests.spark.cluster import EXECUTOR_SETTINGS, bare_python
from tests.spark.flows import HUB, QUEUE, Flow, hub_bodies, run_flows
from tests.spark.hub_traffic import expected, fill, frame, stream, texts
from tests.spark.scene import Scene
from tests.spark.servicebus_rig import ServiceBusRig, numbers

COUNT = 100
WRITTEN = 20
_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
_STARTED_AT = re.compile(r"Spark Connect server started at: 127\.0\.0\.1:(\d+)")
#: Makes a source out of the archive, leaves it pickled, and asks for a stream and a batch.
_MAKER = """
import sys
from pyspark import cloudpickle
from pyspark_eventhubs import DefaultSource as EventHubs
from pyspark_servicebus import DefaultSource as ServiceBus
sources = [
    EventHubs({"eventhubs.connectionString": sys.argv[2] + ";EntityPath=h"}),
    ServiceBus({"connectionString": sys.argv[2], "queue": "q"}),
]
open(sys.argv[1], "wb").write(cloudpickle.dumps(sources))
for source in sources:
    source.reader(source.schema())
    for make in (source.streamReader, lambda schema: source.streamWriter(schema, False)):
        try:
            make(source.schema().__class__().add("body", "binary"))
        except RuntimeError as error:
            print(type(error).__name__, error)
        else:
            print("made")
"""
_OPENER = """
import pickle, sys
for source in pickle.load(open(sys.argv[1], "rb")):
    print(sys.modules[type(source).__module__].__file__, source.name(), len(source.schema().fields) > 5)
"""


@contextmanager
def connect_server(folder: Path, archive: Path) -> Iterator[str]:
    """Its address. Its interpreter and its environment have nothing of ours; it is handed the archive as a file. Its
    executor is a process of its own, as on any cluster."""
    prepare_environment()
    folder.mkdir()
    python = str(bare_python(folder / "bare"))
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    environment.pop("PYTHONPATH", None)
    settings = {
        **EXECUTOR_SETTINGS,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    told = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [
        str(_SUBMIT),
        "--master",
        "local-cluster[1,2,700]",
        "--py-files",
        str(archive),
        *told,
        "--class",
        server,
    ]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            stdout=output, stderr=output, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
    try:
        yield f"sc://127.0.0.1:{_port(process, log)}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _port(process: subprocess.Popen[bytes], log: Path, seconds_max: float = 120.0) -> str:
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline and process.poll() is None:
        found = _STARTED_AT.search(log.read_text(errors="replace"))
        if found is not None:
            return found.group(1)
        time.sleep(0.05)
    raise RuntimeError(f"Spark Connect did not start:\n{log.read_text(errors='replace')[-3000:]}")


def client(plan: Path, **work: Any) -> dict[str, Any]:
    """What the client found, in a session of its own."""
    plan.write_text(json.dumps(work))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.test_connect", str(plan)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
@pytest.mark.skipif(find_spec("grpc") is None, reason="make setup-spark installs what Spark Connect needs")
def test_batches_and_streams_run_on_a_server_without_our_code(server: RunningServer, tmp_path: Path) -> None:
    """Batches read and write a hub and a queue. A stream of a hub into a queue and one of a queue into a hub go on
    from their checkpoints in the session of another client, with more rows: every row arrives once."""
    connection = server.connection_string
    no_session: Any = None
    scene = Scene(ServiceBusRig(no_session, connection), tmp_path, COUNT)
    flows = [
        Flow(source, sink, scene.filled(source), scene.empty(sink), str(tmp_path / f"checkpoint-{source}"))
        for source, sink in ((HUB, QUEUE), (QUEUE, HUB))
    ]
    read = {HUB: flows[0].origin, QUEUE: flows[1].origin}
    written = {HUB: scene.empty(HUB), QUEUE: scene.empty(QUEUE)}
    work = {"connection": connection, "flows": [asdict(flow) for flow in flows]}
    with connect_server(tmp_path / "connect", code_archive()) as address:
        first = client(tmp_path / "first.json", address=address, read=read, write=written, **work)
        fill(connection, flows[0].origin, COUNT // 2, COUNT // 2)
        scene.rig.send_numbered(flows[1].origin, COUNT, COUNT)
        second = client(tmp_path / "second.json", address=address, read={}, write={}, **work)
    assert first == {HUB: expected(COUNT // 2), QUEUE: numbers(COUNT), "ended": [None, None]}
    assert second == {"ended": [None, None]}
    assert hub_bodies(connection, written[HUB]) == Counter(numbers(WRITTEN))
    assert sorted(each.body.decode() for each in scene.rig.receive(written[QUEUE])) == numbers(WRITTEN)
    assert scene.found(flows[0]) == Counter(expected(COUNT))
    assert scene.found(flows[1]) == Counter(numbers(2 * COUNT))
    assert scene.rig.peek(flows[1].origin) == []


@pytest.mark.long
@pytest.mark.skipif(find_spec("grpc") is None, reason="make setup-spark installs what Spark Connect needs")
def test_a_write_inside_of_a_stream_needs_its_batch_and_is_made_once(
    server: RunningServer, tmp_path: Path
) -> None:
    """Two-phase sinks: on Spark Connect tasks of an inner write are not told which batch it is. A name alone is
    refused: every batch but the first would pass for a repetition. With `batchId` a batch that comes again is
    known."""
    no_session: Any = None
    scene = Scene(ServiceBusRig(no_session, server.connection_string), tmp_path, COUNT)
    hub, queue = scene.filled(HUB), scene.rig.queue()
    work = {"connection": server.connection_string, "read": {}, "write": {}, "flows": []}
    checkpoint = tmp_path / "checkpoint"
    each = {"hub": hub, "queue": queue, "checkpoint": str(checkpoint)}
    with connect_server(tmp_path / "connect", code_archive()) as address:
        refused = client(tmp_path / "a.json", address=address, each={**each, "tells": False}, **work)
        assert "batchId" in refused["each"]
        assert scene.rig.peek_all(queue) == []
        for at in range(2):
            done = client(tmp_path / f"{at}.json", address=address, each={**each, "tells": True}, **work)
            assert done["each"] is None
            found = sorted(message.body.decode() for message in scene.rig.peek_all(queue))
            assert found == expected(COUNT // 2)
            last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
            last.unlink()
            last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_server_without_the_archive_tells_how_to_start_it(server: RunningServer, tmp_path: Path) -> None:
    """Spark keeps what a session brings in a folder of the session, which tasks of streams do not get. Batches are
    not refused, nor is a stream where the server has the same archive, or Busway, of its own."""
    session = tmp_path / "userFiles" / str(uuid4())
    archive = code_archive(session)
    python = str(bare_python(tmp_path / "bare"))
    pickled = str(tmp_path / "sources.pickle")

    def run(code: str, *path: Path) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
        done = subprocess.run(
            [python, "-c", code, pickled, server.connection_string],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    refused = run(_MAKER, archive)
    assert len(refused) == 4
    for line in refused:
        assert line.startswith(
            "ServerLacksCode This server of Spark Connect runs batches of Busway's formats but no"
        )
        assert f"Start the server with --py-files and the path of {archive.name}, " in line
    assert run(_MAKER, archive, code_archive(tmp_path / "installed")) == ["made"] * 4
    shutil.copy(archive, session.parent)
    assert run(_MAKER, archive) == ["made"] * 4
    # The process that plans a stream: only the pickle tells it where our code is.
    assert run(_OPENER) == [
        f"{archive}/pyspark_eventhubs.py eventhubs True",
        f"{archive}/pyspark_servicebus.py servicebus True",
    ]


# -- the client


def main(path: str) -> None:
    """Prints one JSON object: the bodies of what was read, and what each flow failed with."""
    plan: dict[str, Any] = json.loads(Path(path).read_text())
    spark = spark_session("busway-connect", master=plan["address"])
    connection, found = plan["connection"], {}
    rig = ServiceBusRig(spark, connection)
    if HUB in plan["read"]:
        found[HUB] = texts(frame(spark, connection, plan["read"][HUB]))
        found[QUEUE] = texts(rig.read(queue=plan["read"][QUEUE]))
    if HUB in plan["write"]:
        rows = spark.range(WRITTEN).selectExpr("cast(id as string) body")
        rig.write(rows, queue=plan["write"][QUEUE])
        target = {"eventhubs.connectionString": connection, "eventhubs.name": plan["write"][HUB]}
        rows.write.format("eventhubs").mode("append").options(**target).save()
    if "each" in plan:
        found["each"] = _write_inside(spark, connection, **plan["each"])
    ended = run_flows(spark, connection, [Flow(**flow) for flow in plan["flows"]])
    print(json.dumps({**found, "ended": ended}))
    spark.stop()


def _write_inside(
    spark: SparkSession, connection: str, hub: str, queue: str, checkpoint: str, tells: bool
) -> str | None:
    """By foreachBatch, in batches of 40. What it failed with."""
    start = json.dumps({"offset": "-1"})
    rows = stream(spark, connection, hub, startingPosition=start, maxEventsPerTrigger="40").load()
    options = {"connectionString": connection, "queue": queue, "writeId": "copy"}

    def each(found: DataFrame, batch: int) -> None:
        writer = found.select("body").write.format("servicebus").mode("append").options(**options)
        (writer.option("batchId", batch) if tells else writer).save()

    query = rows.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        return str(error)
    return None


if __name__ == "__main__":
    main(sys.argv[1])
