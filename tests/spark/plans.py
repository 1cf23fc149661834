"""Random plans that write to an entity, with faults and restarts in them, and what must hold of each: every row is
there once, and no row of a batch that was not decided is ever seen.

A plan is drawn from its seed alone. It reads a hub, shuffles the rows in ways that Spark need not repeat, and
writes them by a stream, by two named writes inside of `foreachBatch`, or by a job. Each of its runs goes on from
the checkpoint of the one before, in another layout; all runs but the last meet a fault.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import rand

from tests.spark.faults import ANY, COMMIT, FAIL, ROWS, TASK, WAIT, Fault
from tests.spark.flows import STARTS_MAX, STARVED, register_faults
from tests.spark.hub_traffic import expected, stream
from tests.spark.targets import KINDS, Target

Restart = Callable[[Callable[[], bool], Callable[[], None]], None]

#: How a plan writes.
STREAM, EACH, JOB = "stream", "each", "job"
#: What happens in a run: a task fails after some rows or after all; `commit` raises after the decision; Spark does
#: not note the last batch; the bus is killed when rows are staged and comes back.
FAILS, FAILS_LATE, RAISES, UNNOTED, KILLED = "fails", "fails late", "raises", "unnoted", "bus killed"
_FAULTS = {FAILS: (ROWS, FAIL), FAILS_LATE: (TASK, FAIL), RAISES: (COMMIT, FAIL), KILLED: (TASK, WAIT)}
#: What rows go through. Those behind the first three need a batch.
SHUFFLES = ("repartition", "rand", "join", "group", "sort", "none")
_OF_STREAMS = 3
#: Events of the source, in each of its two partitions, and in a batch.
COUNT = 30
PER_BATCH = 40


@dataclass(frozen=True)
class Run:
    fault: str | None
    #: `minPartitions` of the source, and partitions behind a shuffle.
    tasks: int
    is_adaptive: bool
    #: Where the fault is: the batch of a stream, the write inside of `foreachBatch`.
    batch: int
    write: int


@dataclass(frozen=True)
class Plan:
    seed: int
    way: str
    kind: str
    shuffles: tuple[str, ...]
    runs: tuple[Run, ...]
    #: Of `foreachBatch`: a first try of the second write fails, is caught, and made again.
    catches: bool

    @classmethod
    def drawn(cls, seed: int, *, may_kill: bool = False, faults_max: int = 2) -> Plan:
        chance = random.Random(seed)
        way = chance.choice((STREAM, EACH, JOB))
        possible = SHUFFLES[:_OF_STREAMS] if way == STREAM else SHUFFLES
        faults = [FAILS, FAILS_LATE, RAISES, UNNOTED, *([KILLED] if may_kill else [])]

        def run(fault: str | None) -> Run:
            return Run(
                fault,
                chance.randint(2, 5),
                chance.random() < 0.5,
                chance.choice((ANY, 0, 1)),
                chance.randint(0, 1),
            )

        runs = [run(chance.choice(faults)) for _ in range(chance.choice((1, 1, 2)))]
        shuffles = tuple(chance.sample(possible, chance.randint(1, 2)))
        last, catches = run(None), chance.random() < 0.5
        return cls(seed, way, KINDS[seed % len(KINDS)], shuffles, (*runs[:faults_max], last), catches)


class Playground:
    """Where plans are played. `restart(when, then)` starts a thread that kills the bus when that holds, starts it
    again and does the last."""

    def __init__(self, spark: SparkSession, hub: str, folder: Path, restart: Restart | None = None) -> None:
        self.spark = spark
        #: With COUNT events in each of two partitions.
        self.hub = hub
        self.folder = folder
        self.restart = restart
        register_faults(spark)


class PlayedPlan:
    def __init__(self, plan: Plan, ground: Playground, target: Target) -> None:
        self.plan = plan
        self._ground = ground
        self._spark = ground.spark
        self._target = target
        self._folder = ground.folder / f"plan-{plan.seed}"
        self._checkpoint = str(self._folder / "checkpoint")

    def play(self) -> None:
        """Raises AssertionError."""
        self._folder.mkdir(parents=True)
        for at, run in enumerate(self.plan.runs):
            self._spark.conf.set("spark.sql.adaptive.enabled", str(run.is_adaptive).lower())
            failure = self._run(at, run)
            assert run.fault is not None or failure is None, (self.plan, failure)
            self._check(at, run, failure)
        shutil.rmtree(self._folder)

    # -- what is there

    def _check(self, at: int, run: Run, failure: str | None) -> None:
        suffixes = ("-0", "-1") if self.plan.way == EACH else ("",)
        wanted = Counter(f"{body}{suffix}" for body in expected(COUNT) for suffix in suffixes)
        seen = self._target.seen()
        assert not seen - wanted, (self.plan, run, failure, "double", seen - wanted)
        if run.fault is None:
            assert seen == wanted, (self.plan, "lost", wanted - seen)
        elif at == 0 and run.fault in (FAILS, FAILS_LATE) and failure is not None:
            decided = (
                len(suffixes) * self._noted_rows() + (run.write if self.plan.way == EACH else 0) * PER_BATCH
            )
            assert seen.total() <= decided, (self.plan, run, "of a batch that was not decided", seen.total())

    def _noted_rows(self) -> int:
        noted = list(Path(self._checkpoint, "commits").glob("[0-9]*"))
        return min(PER_BATCH * len(noted), 2 * COUNT)

    # -- one run

    def _run(self, at: int, run: Run) -> str | None:
        """What it failed with."""
        place, act = _FAULTS.get(run.fault or "", ("nowhere", FAIL))
        batch = run.batch if self.plan.way == STREAM else ANY
        folder = (
            self._folder / f"faults-{at}"
        )  # of its own: in another one it may have been told to go on already
        folder.mkdir()
        fault = Fault(f"{self.plan.seed}-{at}", place, batch, act, str(folder))
        if run.fault == KILLED and self._ground.restart is not None:
            self._ground.restart(fault.reached.exists, (folder / "go-on").touch)
        for _ in range(STARTS_MAX):
            try:
                if self.plan.way == JOB:
                    self._write(self._shaped(self._named(), run), fault)
                else:
                    self._stream(run, fault)
            except Exception as error:
                if STARVED in str(error):
                    continue  # nothing but one failure more
                if "a fault at" not in str(error):
                    raise AssertionError(self.plan, run) from error
                return str(error)
            break
        if run.fault == UNNOTED and self.plan.way != JOB:
            self._forget()
        return None

    def _stream(self, run: Run, fault: Fault) -> None:
        source = stream(
            self._spark,
            self._target.rig.connection_string,
            self._ground.hub,
            startingPosition=json.dumps({"offset": "-1"}),
            minPartitions=str(run.tasks),
            maxEventsPerTrigger=str(PER_BATCH),
        )
        rows = source.load().selectExpr("cast(body as string) body")
        if self.plan.way == STREAM:
            writer = self._shaped(rows, run).writeStream.format(f"{self._target.format}-faulty")
            writer = writer.options(**self._target.options(fault=fault.text))
        else:
            writer = rows.writeStream.foreachBatch(lambda found, batch: self._each(found, batch, run, fault))
        writer = writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()

    def _each(self, rows: DataFrame, batch: int, run: Run, fault: Fault) -> None:
        never = replace(fault, place="nowhere")
        for at, write_id in enumerate(("first", "second")):
            named = self._shaped(rows, run).selectExpr(f"concat(body, '-{at}') body")
            if at == 1 and self.plan.catches:
                caught = replace(fault, name=f"{fault.name}-{batch}", place=TASK, act=FAIL)
                with suppress(PySparkException):
                    self._write(named, caught, write_id)
            self._write(named, fault if at == run.write else never, write_id)

    def _write(self, rows: DataFrame, fault: Fault, write_id: str = "job") -> None:
        options = self._target.options(fault=fault.text, writeId=write_id)
        rows.write.format(f"{self._target.format}-faulty").mode("append").options(**options).save()

    def _named(self) -> DataFrame:
        return self._spark.createDataFrame([(body,) for body in expected(COUNT)], "body string")

    def _shaped(self, rows: DataFrame, run: Run) -> DataFrame:
        """The same rows, in places that are others each time."""
        for shuffle in self.plan.shuffles:
            if shuffle == "repartition":
                rows = rows.repartition(run.tasks)
            elif shuffle == "rand":
                rows = rows.repartition(run.tasks, rand())
            elif shuffle == "join":
                rows = rows.join(self._named().hint("shuffle_hash"), "body")
            elif shuffle == "group":
                rows = rows.groupBy("body").count().select("body")
            elif shuffle == "sort":
                rows = rows.orderBy(rand())
        return rows

    def _forget(self) -> None:
        """As a driver leaves it that dies between the decision and Spark's log."""
        notes = sorted(Path(self._checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        if notes:
            notes[-1].unlink()
            notes[-1].with_name(f".{notes[-1].name}.crc").unlink(missing_ok=True)
