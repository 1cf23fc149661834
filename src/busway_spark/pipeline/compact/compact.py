"""`busway pipeline compact`: many small captured files become few large ones.

Files of one partition and hour are put together up to a size, in the order of their numbers; what is large enough
already stays (`compact_merge`). Hours that are not over for some minutes are left alone, as are files that a capture
is just about to move: so it may run beside captures, and beside readers (`captured.swap` says what they see). What
was begun by a compaction that was killed is finished first.

Theory of operation. Here are the lock, the plan, what is left over of a kill, and the swaps, one behind the other.
Merging is done one folder after the other in this process, without Spark, or by tasks of Spark (`compact_tasks`);
either way a folder is swapped as soon as it is merged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Final

from busway_spark.pipeline.capture.captured_writer import COMPRESSIONS, ZSTD
from busway_spark.pipeline.captured.manifests import RecordedFile, Records, rewrite
from busway_spark.pipeline.captured.swap import COMPACTION, Swap, carry_out, read_swaps
from busway_spark.pipeline.compact.compact_merge import (
    FolderMerge,
    FolderPlan,
    MergedFolder,
    MergedFolders,
    plan_folders,
)
from busway_spark.pipeline.job import JobFailed, Progress
from busway_spark.pipeline.places.capture_root import CaptureRoot, Held

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
    bytes_before: int = 0
    bytes_after: int = 0
    #: False: it was stopped, and the same call goes on.
    is_done: bool = True


#: Merges plans; results may come in another order.
Merging = Callable[[FolderMerge, Iterator[FolderPlan]], MergedFolders]


def merge_here(merge: FolderMerge, plans: Iterator[FolderPlan]) -> MergedFolders:
    for plan in plans:
        yield plan, merge(plan)


def compact(
    options: CompactOptions,
    progress: Progress,
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
        self, root: CaptureRoot, options: CompactOptions, progress: Progress, check_lock: Held
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
                    self.result.bytes_after += sum(each.bytes for each in merged.files)
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
        self.result.bytes_before += sum(each.bytes for each in plan.files)

    def _tell(self, plan: FolderPlan, verb: str) -> None:
        sentence = f"{plan.folder}: {len(plan.files)} files {verb} {len(plan.groups)}"
        self._progress.tell(sentence, folder=str(plan.folder), files=len(plan.files))
