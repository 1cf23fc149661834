"""Folders merged by tasks of Spark, as many at a time as it has cores.

Theory of operation. Each folder is a job of one task. The driver hands out plans, a thread for each that is under
way, and gives every result on as it comes, so that its folder is swapped at once; what a kill takes away is what was
under way. A plan and a result are some names each. Where plans end early, because somebody asked to stop, tasks that
run are waited for. A failure, or a second signal, ends them.

A sentence that a task has to say comes back as its result. Raised, it would have Spark try three times more what
cannot succeed; what may succeed elsewhere or later, files and machines that fail, is raised.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from busway_spark.pipeline.compact.compact_merge import FolderMerge, FolderPlan, MergedFolder, MergedFolders
from busway_spark.pipeline.job import JobFailed, job_session

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Each has a thread on the driver.
_TASKS_MAX: Final = 128


@dataclass(frozen=True)
class SparkMerging:
    """The way of merging that `compact` takes instead of its own."""

    #: Of Spark, but not of Spark Connect.
    master: str
    config: Mapping[str, str]

    def __call__(self, merge: FolderMerge, plans: Iterator[FolderPlan]) -> MergedFolders:
        """Without a plan there is no Spark. Raises JobFailed."""
        first = next(plans, None)
        if first is None:
            return
        with _failing("Spark could not be started: "):
            session = job_session("compact", self.master, self.config)
            jobs = _Jobs(session.sparkContext, _Task(merge))
        with ThreadPoolExecutor(_TASKS_MAX, "compact") as pool:
            running: dict[Future[MergedFolder], FolderPlan] = {pool.submit(jobs.run, first): first}
            try:
                while running:
                    for plan in islice(plans, max(0, jobs.free_slots() - len(running))):
                        running[pool.submit(jobs.run, plan)] = plan
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        plan = running.pop(done)
                        with _failing(f"{plan.folder} could not be merged: "):
                            merged = done.result()
                        yield plan, merged
            finally:
                if running:
                    jobs.cancel()


@contextmanager
def _failing(before: str) -> Iterator[None]:
    """What Spark says, or that it says nothing any more, as a sentence."""
    from busway_spark.pipeline.job import failing

    lost: tuple[type[Exception], ...] = (ConnectionError, import_module("py4j.protocol").Py4JError)
    try:
        with failing(before):
            yield
    except lost as error:
        raise JobFailed(f"{before}the Java process of Spark has ended.") from error
    except OSError as error:
        raise JobFailed(f"{before}{error}") from error


class _Jobs:
    def __init__(self, context: SparkContext, task: _Task) -> None:
        self._context = context
        self._task = task
        self._group = f"compact-{uuid4().hex}"

    def free_slots(self) -> int:
        """How many may be under way. One of them waits, for the next free core and so that Spark, where it takes
        machines as it needs them, sees a need."""
        with _failing(""):
            return min(self._context.defaultParallelism + 1, _TASKS_MAX)

    def run(self, plan: FolderPlan) -> MergedFolder:
        self._context.setJobGroup(self._group, f"merge {plan.folder}")
        (result,) = self._context.parallelize([plan], 1).map(self._task).collect()
        if isinstance(result, str):
            raise JobFailed(result)
        return result

    def cancel(self) -> None:
        """As far as there is still somebody to tell."""
        with suppress(JobFailed), _failing(""):
            self._context.cancelJobGroup(self._group)


@dataclass(frozen=True)
class _Task:
    """Travels to executors."""

    merge: FolderMerge

    def __call__(self, plan: FolderPlan) -> MergedFolder | str:
        """Or why it cannot be."""
        root = self.merge.root
        with root.telling():
            if not root.exists(plan.folder):
                return (
                    f"{socket.gethostname()} does not see {root.full(plan.folder)}: all machines of the cluster"
                    " must share the place of captured files."
                )
            try:
                return self.merge(plan)
            except JobFailed as error:
                return str(error)
