"""Putting merged files in the place of those that they were made of, in one folder.

    ROOT/_capture/compaction/5f0c…/          the merged files, complete, under the names that they will have
    ROOT/_capture/compaction/5f0c….json      which folder they belong to, what they replace: there is no way back

Theory of operation. The note is written when all merged files are on the disk. From then on the swap is carried
out, by whoever finds the note: again and again if need be, each step may have been done already.

1. In a directory of Linux the folder of merged files gets links to everything else that lies in the live folder,
   and the two folders change names in one step. Whoever lists the folder sees all the old files or all the new
   ones. Elsewhere the merged files are moved in one by one: until step 2 a reader that does not know of the note
   sees messages twice; our own readers (`captured_files`) know.
2. What was replaced is removed. Names of merged files are new ones, so a reader that has listed the old files
   before finds one of them missing and fails; it never reads a mixture.
3. A file that `capture` has put into the old folder at the moment of the change is moved to the new one.
4. The note is removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from busway_spark.pipeline.captured.capture_root import NOTES, CaptureRoot
from busway_spark.pipeline.captured.captured import note_text, parse_path, read_note
from busway_spark.pipeline.job import JobFailed

COMPACTION: Final = NOTES / "compaction"
_NOTE: Final = ".json"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@dataclass(frozen=True)
class Swap:
    """Names are those of files in the folder."""

    name: str
    folder: PurePosixPath
    merged: tuple[str, ...]
    replaced: tuple[str, ...]

    @property
    def staging(self) -> PurePosixPath:
        return COMPACTION / self.name

    @property
    def note(self) -> PurePosixPath:
        return COMPACTION / f"{self.name}{_NOTE}"

    def to_json(self) -> str:
        facts = {"folder": str(self.folder), "merged": self.merged, "replaced": self.replaced}
        return note_text(facts)


def read_swaps(root: CaptureRoot) -> list[Swap]:
    """Those that are under way. Raises JobFailed for a damaged note."""
    paths = [path for path, _ in root.files(COMPACTION) if _is_note(path)]
    notes = [(path, read_note(root, path)) for path in paths]
    return [_swap(path, note) for path, note in notes if note]


def _is_note(path: PurePosixPath) -> bool:
    return path.parent == COMPACTION and path.suffix == _NOTE and not path.name.startswith(".")


def _swap(path: PurePosixPath, note: dict[str, Any]) -> Swap:
    swap = Swap(
        path.stem,
        PurePosixPath(str(note.get("folder"))),
        tuple(note.get("merged", ())),
        tuple(note.get("replaced", ())),
    )
    # What lies below the root is no proof of who wrote it.
    if not swap.merged or any(
        parse_path(swap.folder / each) is None or "/" in each for each in (*swap.merged, *swap.replaced)
    ):
        raise JobFailed(f"{path} is damaged: it names what is no captured file.")
    return swap


def hidden_by(root: CaptureRoot, swaps: Sequence[Swap]) -> set[PurePosixPath]:
    """Files that a reader must leave out while swaps are under way."""
    hidden: set[PurePosixPath] = set()
    for swap in swaps:
        is_in_place = all(root.file_size(swap.folder / name) is not None for name in swap.merged)
        hidden.update(swap.folder / name for name in (swap.replaced if is_in_place else swap.merged))
    return hidden


def carry_out(root: CaptureRoot, swap: Swap) -> None:
    """Whatever of it was done before. Raises JobFailed, with nothing removed, where merged files are missing."""
    outside = [name for name in swap.merged if root.file_size(swap.folder / name) is None]
    if outside:
        _check_staged(root, swap, outside)
        if not _exchange(root, swap):
            _move_in(root, swap)
    root.delete_files([swap.folder / name for name in swap.replaced])
    _drain(root, swap)
    root.sync_folder(swap.folder)
    root.delete(swap.note)


def _check_staged(root: CaptureRoot, swap: Swap, names: Sequence[str]) -> None:
    for name in names:
        if root.file_size(swap.staging / name) is None:
            _forget_void(root, swap)
            raise JobFailed(
                f"{root.full(swap.staging / name)} is gone, so {swap.folder} keeps its files as they are. Remove"
                f" {root.full(swap.note)} to go on."
            )


def _forget_void(root: CaptureRoot, swap: Swap) -> None:
    """A compaction that has lost its lock may write a note behind the back of the next one, which has removed what
    was merged. Where every old file is in place nothing was begun, and the note is of no use. In a directory a lock
    is not lost."""
    if root.objects is not None and all(
        root.file_size(swap.folder / name) is not None for name in swap.replaced
    ):
        root.delete(swap.note)


def _exchange(root: CaptureRoot, swap: Swap) -> bool:
    """False where folders cannot change names in one step."""
    if not root.is_local:
        return False
    try:
        _link_others(root, swap)
        _exchange_names(root.full(swap.staging), root.full(swap.folder))
    except OSError:
        return False
    root.sync_folder(swap.folder.parent)
    return True


def _link_others(root: CaptureRoot, swap: Swap) -> None:
    for path, _ in root.files(swap.folder):
        if path.name not in swap.replaced:
            with contextlib.suppress(FileExistsError):
                os.link(root.full(path), root.full(swap.staging / path.name))
    root.sync_folder(swap.staging)


def _exchange_names(one: str, other: str) -> None:
    """Raises OSError where the system or the file system cannot."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        raise OSError("no renameat2")
    result = function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if result != 0:
        raise OSError(ctypes.get_errno(), "exchange of folders")


def _move_in(root: CaptureRoot, swap: Swap) -> None:
    there = [name for name in swap.merged if root.file_size(swap.staging / name) is not None]
    root.move_all([(swap.staging / name, swap.folder / name) for name in there])


def _drain(root: CaptureRoot, swap: Swap) -> None:
    """Until nothing is left in what was the live folder."""
    if root.objects is not None:
        root.delete_folder(swap.staging)  # nothing but what was merged is ever there
        return
    while root.exists(swap.staging):
        for path, _ in root.files(swap.staging):
            if path.name in swap.replaced or root.exists(swap.folder / path.name):
                root.delete(path)
            else:
                root.move(path, swap.folder / path.name)
        root.remove_empty_folder(swap.staging)
