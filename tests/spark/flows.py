"""Streams from one entity of the bus to another, with faults in them or without, and what must hold afterwards.

As a program it is the driver that tests kill: `python -m tests.spark.flows PLAN.json`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busway.cli.app import run
from busway_spark import spark_session
from busway_spark.eventhubs.offsets import EventRange
from busway_spark.eventhubs.ranges import BulkReader
from busway_spark.wire.bus import Bus
from tests.spark import faults
from tests.spark.faults import Fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HUB = "eventhubs"
QUEUE = "servicebus"
#: Rows that a writer is given at once: a task has several such batches.
ROWS_AT_ONCE = "20"
ROWS_PER_BATCH = 120
STARVED = "Python worker failed to connect back"
#: More of that in a row is no accident.
STARTS_MAX = 5
_END = 1 << 40


@dataclass(frozen=True)
class Flow:
    source: str
    sink: str
    origin: str
    target: str
    checkpoint: str
    fault: str | None = None
    #: With it the connection is TLS.
    ca_file: str | None = None

    def start(self, spark: SparkSession, connection: str) -> StreamingQuery:
        """To the end of what is there."""
        rows = spark.readStream.format(self.source).options(**self._source_options(connection)).load()
        writer = rows.select("body").writeStream.options(**self._entity(self.sink, connection, self.target))
        writer = writer.option("checkpointLocation", self.checkpoint)
        if self.fault is None:
            writer = writer.format(self.sink)
        else:
            writer = writer.format(f"{self.sink}-faulty").option("fault", self.fault)
        return writer.trigger(availableNow=True).start()

    def healthy(self) -> Flow:
        return replace(self, fault=None)

    def _source_options(self, connection: str) -> dict[str, str]:
        options = self._entity(self.source, connection, self.origin)
        if self.source == QUEUE:
            return {**options, "maxMessagesPerTrigger": str(ROWS_PER_BATCH), "messagesPerPartition": "60"}
        return {
            **options,
            "startingPosition": json.dumps({"offset": "-1"}),
            "maxEventsPerTrigger": str(ROWS_PER_BATCH),
        }

    def _entity(self, kind: str, connection: str, name: str) -> dict[str, str]:
        prefix = "eventhubs." if kind == HUB else ""
        options = {
            f"{prefix}connectionString": connection,
            "eventhubs.name" if kind == HUB else "queue": name,
        }
        return options if self.ca_file is None else {**options, f"{prefix}caFile": self.ca_file}


def register_faults(spark: SparkSession) -> None:
    """Executors need not be able to import this package."""
    from pyspark import cloudpickle

    register: Callable[[object], None] = cloudpickle.register_pickle_by_value
    register(faults)
    spark.dataSource.register(faults.FaultyEventHubs)
    spark.dataSource.register(faults.FaultyServiceBus)


def run_flows(spark: SparkSession, connection: str, flows: Sequence[Flow]) -> list[str | None]:
    """All of them at once, to their ends. What each failed with; None for those that did not. Spark gives a process
    of Python ten seconds to start; where the machine is too busy for that the flow is started again."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_AT_ONCE)
    try:
        queries = [_begun(flow, spark, connection) for flow in flows]
        ended = [_ended(query) for query in queries]
        for at, flow in enumerate(flows):
            for _ in range(STARTS_MAX):
                if STARVED in (ended[at] or ""):
                    ended[at] = _ended(flow.start(spark, connection))
        return ended
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def _begun(flow: Flow, spark: SparkSession, connection: str) -> StreamingQuery:
    """Is at work, or at its fault, when this returns: many processes that start together starve each other."""
    query = flow.start(spark, connection)
    reached = None if flow.fault is None else Fault(**json.loads(flow.fault)).reached
    while query.isActive:
        if query.lastProgress is not None if reached is None else reached.exists():
            break
        time.sleep(0.05)
    return query


def _ended(query: StreamingQuery) -> str | None:
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
    return None


def hub_bodies(connection: str, hub: str, partitions: int = 2) -> Counter[str]:
    """What is in a hub, without Spark."""
    reader = BulkReader(Bus(connection), hub)
    batches = [batch for at in range(partitions) for batch in reader.batches(EventRange(str(at), 0, _END))]
    found = [body for batch in batches for body in batch.column("body").to_pylist()]
    return Counter(body.decode() for body in found if body is not None)


def write_plan(
    path: Path,
    master: str,
    config: dict[str, str],
    connection: str,
    flows: Sequence[Flow],
    commands: Sequence[Sequence[str]] = (),
) -> Path:
    plan = {
        "master": master, "config": config, "connection": connection, "flows": [asdict(flow) for flow in flows],
        "commands": commands,
    }  # fmt: skip
    path.write_text(json.dumps(plan))
    return path


def main(path: str) -> None:
    """Prints two JSON objects: how each command of ours ended and where an executor has our code from; then, unless
    it is killed meanwhile, what each flow failed with that was run in the same session."""
    plan: dict[str, Any] = json.loads(Path(path).read_text())
    spark = spark_session("busway-flows", master=plan["master"], config=plan["config"])
    spark.sparkContext.setLogLevel("OFF")
    commands = [run_command(arguments) for arguments in plan["commands"]]
    print(json.dumps({"commands": commands, "code": _code_of_executors(spark)}), flush=True)
    register_faults(spark)
    ended = run_flows(spark, plan["connection"], [Flow(**flow) for flow in plan["flows"]])
    print(json.dumps({"ended": ended}))
    spark.stop()


def run_command(arguments: list[str]) -> dict[str, Any]:
    output, errors = StringIO(), StringIO()
    begun = time.monotonic()
    with redirect_stdout(output), redirect_stderr(errors):
        status = run(arguments)
    return {
        "arguments": arguments, "status": status, "output": output.getvalue(), "errors": errors.getvalue(),
        "seconds": time.monotonic() - begun,
    }  # fmt: skip


def _code_of_executors(spark: SparkSession) -> str:
    def where(_: int) -> str:
        import busway

        return f"{busway.__file__} {busway.compiled.status()}"

    return str(spark.sparkContext.parallelize([0], 1).map(where).first())


def fault(name: str, place: str, act: str, folder: Path, together: int = 1, batch: int = 1) -> str:
    """In the second batch, if nothing else is said."""
    return Fault(name, place, batch, act, str(folder), together).text


def committed(flow: Flow) -> set[int]:
    """The batches that Spark has noted as done."""
    found = Path(flow.checkpoint, "commits").glob("*")
    return {int(path.name) for path in found if path.name.isdigit()}


if __name__ == "__main__":
    main(sys.argv[1])
