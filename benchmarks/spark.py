"""The pipeline on Spark: rows per second through the formats and the jobs, and what each process pays for a row.

1 KiB bodies, every column that the formats have, a real server on the same machine. What counts is the second run in
a session: the first one loads classes and starts workers. Server, JVM and workers share the cores, so on a busy
machine look at the CPU time per row. Each part is run with a tenth of the data, with all of it, and with all of it on
one core. Then, untimed and in new processes, once more with a tenth and with all of it, in batches that are as large
in both: what memory grows by is then owed to how much waits, not to how much is taken at once. The table is printed
and, unless the run is quick, written to benchmarks/results; the last line of output is the same as JSON. The exit
status is 1 when a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from benchmarks.busway_server import BuswayServer
from benchmarks.report import Report
from benchmarks.spark_jobs import EVERYTHING, JobMissing, backfill_work, capture_work, deadletters_work
from benchmarks.spark_rig import JVM, SERVER, WORKERS, Rig, Run, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULTS = Path(__file__).parent / "results"
CORES = 2
GROWTH = 10
REMARK = (
    "Second run in a session, 1 KiB bodies, local[2], a real server beside it. CPU time per row tells more than the"
    " rate when the machine is busy."
)
#: What memory may grow by when ten times the data passes: allocators keep some of what they had.
_GROWTH_MIB = 128.0
#: The heap, and what a JVM has beside it.
_JVM_MIB = 2048.0


@dataclass(frozen=True)
class Part:
    """What is measured: `prepare` makes the work for so many rows."""

    title: str
    bar: float
    rows: int
    prepare: Callable[[Bench, int], Callable[[], None]]
    #: The work takes what it finds, so each run needs its own.
    takes: bool = False
    #: Seconds for all rows instead of a rate.
    seconds_max: float | None = None


@dataclass
class Bench:
    rig: Rig
    folder: Path
    quick: bool
    report: Report
    figures: list[dict[str, Any]] = field(default_factory=list)
    #: Instead of what the parts say.
    rows: int | None = None
    #: What streams take at once; None: what they find right.
    batch_rows: int | None = None
    _hubs: dict[int, str] = field(default_factory=dict)

    def hub(self, rows: int) -> str:
        """With so many events; parts that only read share it."""
        if rows not in self._hubs:
            self._hubs[rows] = f"hub-{rows}"
            self.rig.fill_hub(self._hubs[rows], rows)
        return self._hubs[rows]

    def fresh_folder(self) -> str:
        return str(self.folder / uuid4().hex)

    def options(self, **more: str) -> dict[str, str]:
        return {"connectionString": self.rig.connection_string, **more}


# -- the work of the parts


def _drop(rows: DataFrame) -> None:
    """Every column of every row reaches Spark."""
    rows.write.format("noop").mode("overwrite").save()


def _hub_reading(transport: str) -> Callable[[Bench, int], Callable[[], None]]:
    def prepare(bench: Bench, rows: int) -> Callable[[], None]:
        connection = f"{bench.rig.connection_string};EntityPath={bench.hub(rows)}"
        reader = bench.rig.session.read.format("eventhubs").option("eventhubs.connectionString", connection)
        frame = reader.option("transport", transport).load()
        return lambda: _drop(frame)

    return prepare


def _queue_writing(bench: Bench, rows: int) -> Callable[[], None]:
    queue = bench.rig.queue()
    writer = bench.rig.rows(rows).write.format("servicebus").mode("append")
    return writer.options(**bench.options(queue=queue)).save


def _hub_writing(bench: Bench, rows: int) -> Callable[[], None]:
    hub = f"written-{uuid4().hex[:8]}"
    bench.rig.server.hub(hub, "--partitions", "4")
    frame = bench.rig.rows(rows).selectExpr("body", "concat('k', messageId) partitionKey", "properties")
    writer = frame.write.format("eventhubs").mode("append")
    return writer.option("eventhubs.connectionString", f"{bench.rig.connection_string};EntityPath={hub}").save


def _browsing(bench: Bench, rows: int) -> Callable[[], None]:
    reader = bench.rig.session.read.format("servicebus")
    frame = reader.options(**bench.options(queue=bench.rig.fill_queue(rows))).load()
    return lambda: _drop(frame)


def _claiming(bench: Bench, rows: int) -> Callable[[], None]:
    queue, checkpoint = bench.rig.fill_queue(rows), bench.fresh_folder()
    reader = bench.rig.session.readStream.format("servicebus")
    at_once = str(bench.batch_rows or 20_000)
    stream = reader.options(**bench.options(queue=queue, maxMessagesPerTrigger=at_once)).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)

    def work() -> None:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        found = sum(int(each["numInputRows"]) for each in query.recentProgress)
        assert found == rows, f"{found} of {rows} messages came"

    return work


def _capturing(bench: Bench, rows: int) -> Callable[[], None]:
    return capture_work(bench.rig, bench.hub(rows), bench.fresh_folder(), bench.batch_rows)


def _backfilling(bench: Bench, rows: int) -> Callable[[], None]:
    return backfill_work(bench.rig, bench.fresh_folder(), rows)


def _backfilling_all(bench: Bench, rows: int) -> Callable[[], None]:
    return backfill_work(bench.rig, bench.fresh_folder(), rows, EVERYTHING)


def _resubmitting(bench: Bench, rows: int) -> Callable[[], None]:
    return deadletters_work(bench.rig, rows)


PARTS: dict[str, Part] = {
    "bulk": Part("eventhubs batch read, bulk route", 100_000, 400_000, _hub_reading("bulk")),
    "amqp": Part("eventhubs batch read, AMQP", 25_000, 400_000, _hub_reading("amqp")),
    "write": Part("servicebus write", 25_000, 200_000, _queue_writing, takes=True),
    "hub-write": Part("eventhubs write", 25_000, 200_000, _hub_writing, takes=True),
    "browse": Part("servicebus browse", 15_000, 100_000, _browsing),
    "claim": Part("servicebus claim stream", 8_000, 100_000, _claiming, takes=True),
    "capture": Part("capture of a hub to Parquet", 30_000, 400_000, _capturing, takes=True),
    "backfill": Part("backfill, a selective filter", 0, 1_000_000, _backfilling, takes=True, seconds_max=60),
    "backfill-all": Part(
        "backfill, a filter that selects all", 40_000, 400_000, _backfilling_all, takes=True
    ),
    "deadletters": Part("dead letters resubmitted", 5_000, 1_000_000, _resubmitting, takes=True),
}


# -- measuring


def measure(bench: Bench, name: str) -> None:
    part = PARTS[name]
    rows = bench.rows or (part.rows // 10 if bench.quick else part.rows)
    bench.rig.spark(CORES)
    small = _second(bench, part, rows // GROWTH)
    large = _second(bench, part, rows)
    bench.rig.spark(1)
    alone = _second(bench, part, rows)
    _tell(bench.report, part, small, large, alone)
    bench.rig.spark(CORES)
    tenth, whole = _watched(bench, part, rows // GROWTH, rows)
    _tell_memory(bench.report, part, tenth, whole)
    for kind, run in (("small", small), ("large", large), ("one-core", alone)):
        bench.figures.append(
            {
                **{"part": name, "kind": kind, "rows": run.rows, "seconds": round(run.seconds, 3)},
                **{"rate": round(run.rate), "bar": part.bar or part.seconds_max},
                "cpu_us_per_row": {group: round(spent, 2) for group, spent in run.cpu_us().items()},
                "load": round(os.getloadavg()[0], 2),
            }
        )
    for kind, run in (("memory-tenth", tenth), ("memory-whole", whole)):
        sizes = {group: round(size) for group, size in run.memory_mib.items()}
        bench.figures.append({"part": name, "kind": kind, "rows": run.rows, "pss_mib": sizes})


def _second(bench: Bench, part: Part, rows: int, *, watches_memory: bool = False) -> Run:
    """The first run only warms up; on few rows where each run needs its own."""
    warming = rows if not part.takes else min(rows, 10_000)
    work = part.prepare(bench, warming)
    work()
    if part.takes:
        work = part.prepare(bench, rows)
    return bench.rig.measure(rows, work, watches_memory=watches_memory)


def _watched(bench: Bench, part: Part, *sizes: int) -> list[Run]:
    """From few rows to many, because processes keep memory that they once had."""
    bench.batch_rows = sizes[0]
    try:
        return [_second(bench, part, rows, watches_memory=True) for rows in sizes]
    finally:
        bench.batch_rows = None


def _tell(report: Report, part: Part, small: Run, large: Run, alone: Run) -> None:
    if part.seconds_max is None:
        report.no_less(f"{part.title}, {large.rows:,} rows", large.rate, part.bar, "/s")
    else:
        report.within(f"{part.title}, {large.rows:,} rows", large.seconds, part.seconds_max, "s")
    report.note(f"{part.title}, CPU", large.costs())
    total = sum(large.cpu_us().values())
    report.note(f"{part.title}, what {CORES} cores could do at that cost", f"{CORES * 1e6 / total:,.0f}/s")
    growth = large.seconds / small.seconds
    report.note(f"{part.title}, time for {GROWTH}x the rows", f"{growth:.1f}x ({small.seconds:.2f} s before)")
    report.note(f"{part.title}, 1 core -> {CORES}", f"{alone.rate:,.0f}/s -> {large.rate:,.0f}/s")


def _tell_memory(report: Report, part: Part, tenth: Run, whole: Run) -> None:
    report.note(f"{part.title}, most memory", f"{whole.memory()} (a tenth: {tenth.memory()})")
    grown = max(0.0, whole.memory_mib[SERVER] - whole.server_before_mib)
    report.within(f"{part.title}, growth of the server's memory in the run", grown, _GROWTH_MIB, "MiB")
    grown = max(0.0, whole.memory_mib[WORKERS] - tenth.memory_mib[WORKERS])
    report.within(f"{part.title}, more memory of the workers than for a tenth", grown, _GROWTH_MIB, "MiB")
    report.within(f"{part.title}, memory of the JVM", whole.memory_mib[JVM], _JVM_MIB, "MiB")


# -- the program


def main() -> int:
    options = _options()
    headline = (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, {platform.machine()}"
    )
    report = Report(f"{headline}, {os.cpu_count()} cores, load {load()} at the start", REMARK)
    folder = Path(tempfile.mkdtemp(prefix="busway-bench-spark-"))
    figures: list[dict[str, Any]] = []
    try:
        with BuswayServer(folder / "server") as server:
            server.start()
            bench = Bench(Rig(server), folder, options.quick, report, figures, options.rows)
            try:
                _run(bench, options.only)
            finally:
                bench.rig.stop()
    finally:
        with suppress(OSError):
            rmtree(folder)
    report.note("load at the end", load())
    print(report.text())
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        names = [] if options.only == list(PARTS) else options.only
        (RESULTS / ("-".join([f"{datetime.now(UTC):%Y-%m-%d}", "spark", *names]) + ".md")).write_text(
            report.text()
        )
    print(json.dumps({"benchmark": "spark", "holds": report.bar_holds(), "figures": figures}))
    return 0 if report.bar_holds() else 1


def _run(bench: Bench, names: list[str]) -> None:
    for name in names:
        begun = time.monotonic()
        try:
            measure(bench, name)
        except JobMissing as error:
            bench.report.note(PARTS[name].title, f"not measured: {error}")
        print(f"{name}: {time.monotonic() - begun:.0f} s, load {load()}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    lines = [f"  {name:<14}{part.title}" for name, part in PARTS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark",
        description=__doc__,
        epilog="parts:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, no file")
    parser.add_argument("--rows", type=int, help="so many rows, whatever the part")
    parser.add_argument(
        "--only", nargs="+", choices=[*PARTS], default=[*PARTS], metavar="PART", help="these parts, see below"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
