"""`busway pipeline compact`: many small captured files become few large ones.

Files of one partition and hour are put together up to a size, in the order of their numbers; what is large enough
already stays. Hours that are not over for some minutes are left alone, as are files that a capture is just about
to move: so it may run beside captures, and beside readers (`captured.swap` says what they see). What was begun by
a compaction that was killed is finished first.

Theory of operation. The driver has the lock, the plan, what is left over of a kill, and the swaps, one behind the
other. Merging is done one folder after the other in this process, without Spark, or by tasks of Spark, as many
folders at a time as it has cores; either way a folder is swapped as soon as it is merged.

To merge is to put the files of one folder together: written, checked and on the disk, but nobody's data yet. Old
files are read and nothing else is touched: what was written takes their place by the swap alone. Each try writes
into a staging folder of its own. So a try that Spark repeats, behind a dead one or beside one that it only
believes dead, shares no file with it; what is left of a killed one is removed when a compaction begins or ends.

On Spark each folder is a job of one task. The driver hands out plans, a thread for each that is under way, and
gives every result on as it comes, so that its folder is swapped at once; what a kill takes away is what was under
way. A plan and a result are some names each. Where plans end early, because somebody asked to stop, tasks that run
are waited for. A failure, or a second signal, ends them.

A sentence that a task has to say comes back as its result. Raised, it would have Spark try three times more what
cannot succeed; what may succeed elsewhere or later, files and machines that fail, is raised.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import groupby, islice, pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.capture.capture_commit import promised_files
from busway_spark.pipeline.capture.captured_writer import COMPRESSIONS, ZSTD, parquet_writer
from busway_spark.pipeline.captured.capture_root import CaptureRoot, Held
from busway_spark.pipeline.captured.captured import CapturedFile, fitted, folder_of, with_others
from busway_spark.pipeline.captured.captured_files import listed_files
from busway_spark.pipeline.captured.manifests import FileSpan, RecordedFile, Records, rewrite, span_of
from busway_spark.pipeline.captured.swap import COMPACTION, Swap, carry_out, read_swaps
from busway_spark.pipeline.job import JobFailed, JobProgress, job_session

if TYPE_CHECKING:
    from pyspark import SparkContext

#: An hour is over when nothing of it can come any more but from a capture that lags behind.
_OVER_AFTER: Final = timedelta(minutes=10)
_BATCH_ROWS: Final = 16 * 1024
_GROUP_ROWS: Final = 64 * 1024
_GROUP_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class SizedFile:
    file: CapturedFile
    bytes: int


@dataclass(frozen=True)
class FolderPlan:
    """What becomes one file each, in one folder. Travels to executors."""

    folder: PurePosixPath
    groups: tuple[tuple[SizedFile, ...], ...]

    @property
    def files(self) -> list[SizedFile]:
        return [file for group in self.groups for file in group]


def plan_folders(
    root: CaptureRoot, entity: str | None, target_bytes: int, now: datetime
) -> Iterator[FolderPlan]:
    """The files are listed before notes of captures are read: a file that is in place and in no note stays so."""
    sizes = [SizedFile(each.file, each.bytes) for each in listed_files(root, entity)]
    moving: dict[str, set[str]] = {}
    for folder, files in groupby(sizes, key=lambda each: each.file.path.parent):
        found = list(files)
        name = found[0].file.entity
        if name not in moving:
            moving[name] = promised_files(root, name)
        still = [each for each in found if str(each.file.path) not in moving[name]]
        groups = tuple(_groups(still, target_bytes)) if _is_over(found[0].file.hour, now) else ()
        if groups:
            yield FolderPlan(folder, groups)


def _is_over(hour: datetime, now: datetime) -> bool:
    return hour + timedelta(hours=1) + _OVER_AFTER <= now


def _groups(files: list[SizedFile], target_bytes: int) -> Iterator[tuple[SizedFile, ...]]:
    """Small files that stand beside each other, as many as fit."""
    group: list[SizedFile] = []
    for each in files:
        is_full = sum(one.bytes for one in group) + each.bytes > target_bytes
        if is_full and len(group) > 1:
            yield tuple(group)
        if is_full:
            group = []
        if each.bytes < target_bytes:
            group.append(each)
    if len(group) > 1:
        yield tuple(group)


@dataclass(frozen=True)
class MergedFile:
    name: str
    bytes: int
    span: FileSpan


@dataclass(frozen=True)
class MergedFolder:
    """What a try has written. Travels back to the driver."""

    #: Of its staging folder.
    name: str
    files: tuple[MergedFile, ...]


MergedFolders = Generator[tuple[FolderPlan, MergedFolder], None, None]


@dataclass(frozen=True)
class FolderMerge:
    """What to do with a plan, here or in a task."""

    root: CaptureRoot
    compression: str

    def __call__(self, plan: FolderPlan) -> MergedFolder:
        """Raises JobFailed and OSError, with nothing left behind."""
        name = uuid4().hex
        staging = COMPACTION / name
        try:
            files = [self._merge(staging, group) for group in plan.groups]
            self.root.sync_folder(staging)
        except Exception:
            with contextlib.suppress(OSError):
                self.root.delete_folder(staging)
            raise
        return MergedFolder(name, tuple(files))

    def _merge(self, staging: PurePosixPath, group: tuple[SizedFile, ...]) -> MergedFile:
        spans = [span_of(self.root, each.file.path) for each in group]
        first, last = min(each.first_number for each in spans), max(each.last_number for each in spans)
        one = group[0].file
        target = CapturedFile(one.entity, one.hour, one.partition, first, last)
        overlap = any(before.last_number >= after.first_number for before, after in pairwise(spans))
        paths = [each.file.path for each in group]
        schema = with_others((self.root.full(path), _schema(self.root, path)) for path in paths)
        batches = (_sorted_batches if overlap else _batches)(self.root, paths, schema)
        path = staging / target.path.name
        rows, size = _write(self.root, path, batches, self.compression, schema)
        if rows != sum(each.rows for each in spans):
            raise JobFailed(
                f"{folder_of(one.entity, one.hour, one.partition)} changed while it was compacted."
            )
        times = [each.first_time_us for each in spans], [each.last_time_us for each in spans]
        return MergedFile(path.name, size, FileSpan(rows, first, last, min(times[0]), max(times[1])))


def _write(
    root: CaptureRoot,
    path: PurePosixPath,
    batches: Iterator[pa.RecordBatch],
    compression: str,
    schema: pa.Schema,
) -> tuple[int, int]:
    """Its rows and bytes."""
    root.make_folder(path.parent)
    rows, last = 0, -1
    with root.filesystem.open_output_stream(root.full(path)) as sink:
        with parquet_writer(sink, compression, schema) as writer:
            for table in _tables(batches):
                last = _check_rising(table, last, path)
                writer.write_table(table, row_group_size=table.num_rows)
                rows += table.num_rows
        told = sink.tell()
    root.sync_file(path)
    return rows, root.written_size(path, told)


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches in lots that make good row groups."""
    lot: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        lot.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(lot)
            lot, rows, size = [], 0, 0
    if lot:
        yield pa.Table.from_batches(lot)


def _check_rising(table: pa.Table, last: int, path: PurePosixPath) -> int:
    numbers: Any = table.column("sequenceNumber").to_numpy()
    if (np.diff(numbers, prepend=last) <= 0).any():
        raise JobFailed(f"A message is in two files that belong to {path.name}; nothing of them was changed.")
    return int(numbers[-1])


def _schema(root: CaptureRoot, path: PurePosixPath) -> pa.Schema:
    try:
        with root.filesystem.open_input_file(root.full(path)) as source:
            return pq.read_schema(source)
    except pa.ArrowException as error:
        raise JobFailed(f"{root.full(path)} cannot be read: {error}") from error


def _batches(root: CaptureRoot, paths: list[PurePosixPath], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        try:
            with root.filesystem.open_input_file(root.full(path)) as source:
                for batch in pq.ParquetFile(source).iter_batches(_BATCH_ROWS):
                    yield fitted(batch, schema)
        except pa.ArrowException as error:
            raise JobFailed(f"{root.full(path)} cannot be read: {error}") from error


def _sorted_batches(
    root: CaptureRoot, paths: list[PurePosixPath], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(list(_batches(root, paths, schema)))
    yield from table.sort_by("sequenceNumber").to_batches(_BATCH_ROWS)


TARGET_BYTES: Final = 128 * 1024 * 1024
_DELTA_LOG: Final = PurePosixPath("_delta_log")


@dataclass(frozen=True)
class CompactOptions:
    root: str
    #: None: all.
    entity: str | None = None
    target_bytes: int = TARGET_BYTES
    compression: str = ZSTD
    #: Tells what would be done.
    dry_run: bool = False


@dataclass
class CompactResult:
    folders: int = 0
    files_before: int = 0
    files_after: int = 0
    #: False: it was stopped, and the same call goes on.
    is_done: bool = True


#: Merges plans; results may come in another order.
Merging = Callable[[FolderMerge, Iterator[FolderPlan]], MergedFolders]


def merge_here(merge: FolderMerge, plans: Iterator[FolderPlan]) -> MergedFolders:
    for plan in plans:
        yield plan, merge(plan)


def compact(
    options: CompactOptions,
    progress: JobProgress,
    now: datetime | None = None,
    merging: Merging = merge_here,
) -> CompactResult:
    """Raises JobFailed."""
    if options.compression not in COMPRESSIONS:
        raise JobFailed(f"The compression must be one of {', '.join(COMPRESSIONS)}.")
    root = CaptureRoot(options.root)
    lock = root.locked(COMPACTION / "lock", f"Another compaction of {root.location} is running.")
    with root.telling(), lock as check_lock:
        if root.exists(_DELTA_LOG):
            raise JobFailed(f"{root.location} is a Delta table: its own 'optimize' puts files together.")
        if not options.dry_run:
            recover(root)
        plans = plan_folders(root, options.entity, options.target_bytes, now or datetime.now(UTC))
        compaction = _Compaction(root, options, progress, check_lock)
        if options.dry_run:
            compaction.look(plans)
        else:
            compaction.run(plans, merging)
        return compaction.result


def recover(root: CaptureRoot) -> None:
    """What a compaction that was killed has begun. Only while no other one runs."""
    for swap in read_swaps(root):
        carry_out(root, swap)
    _forget_staging(root)
    root.forget_halves(COMPACTION)


def _forget_staging(root: CaptureRoot) -> None:
    """What nobody will swap any more. A task that was given up may still write there for a moment: what cannot be
    removed now goes with the next compaction."""
    kept = {swap.staging for swap in read_swaps(root)}
    for folder in root.folders(COMPACTION):
        if folder not in kept:
            with contextlib.suppress(OSError):
                root.delete_folder(folder)


class _Compaction:
    def __init__(
        self, root: CaptureRoot, options: CompactOptions, progress: JobProgress, check_lock: Held
    ) -> None:
        self._root = root
        self._check_lock = check_lock
        self._gone: dict[str, set[PurePosixPath]] = {}
        self._new: dict[str, Records] = {}
        self._options = options
        self._progress = progress
        self.result = CompactResult()

    def look(self, plans: Iterator[FolderPlan]) -> None:
        for plan in self._until_stopped(plans):
            self._count(plan)
            self._tell(plan, "would become")

    def run(self, plans: Iterator[FolderPlan], merging: Merging) -> None:
        merge = FolderMerge(self._root, self._options.compression)
        try:
            with contextlib.closing(merging(merge, self._until_stopped(plans))) as merged_folders:
                for plan, merged in merged_folders:
                    self._swap(plan, merged)
                    self._count(plan)
                    self._tell(plan, "became")
        except (JobFailed, OSError):
            _forget_staging(self._root)
            raise
        _forget_staging(self._root)
        for entity, gone in self._gone.items():
            rewrite(self._root, entity, gone, self._new[entity])

    def _until_stopped(self, plans: Iterator[FolderPlan]) -> Iterator[FolderPlan]:
        for plan in plans:
            if self._progress.is_stopping:
                self.result.is_done = False
                return
            yield plan

    def _swap(self, plan: FolderPlan, merged: MergedFolder) -> None:
        replaced = tuple(each.file.path.name for each in plan.files)
        swap = Swap(merged.name, plan.folder, tuple(each.name for each in merged.files), replaced)
        # Behind the note there is no way back, and a task may have seen another disk than this process sees.
        if any(self._root.size(swap.staging / each.name) != each.bytes for each in merged.files):
            raise JobFailed(
                f"What was merged for {plan.folder} is not at {self._root.location}, and nothing was changed: all"
                " machines of the cluster must share that place."
            )
        self._check_lock()
        self._root.write_text(swap.note, swap.to_json())
        carry_out(self._root, swap)
        entity = plan.files[0].file.entity
        self._gone.setdefault(entity, set()).update(each.file.path for each in plan.files)
        self._new.setdefault(entity, {}).update(
            {plan.folder / each.name: RecordedFile(each.bytes, each.span) for each in merged.files}
        )

    def _count(self, plan: FolderPlan) -> None:
        self.result.folders += 1
        self.result.files_before += len(plan.files)
        self.result.files_after += len(plan.groups)

    def _tell(self, plan: FolderPlan, verb: str) -> None:
        sentence = f"{plan.folder}: {len(plan.files)} files {verb} {len(plan.groups)}"
        self._progress.tell(sentence, folder=str(plan.folder), files=len(plan.files))


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
