"""Which captured files become one, folder by folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import PurePosixPath
from typing import Final

from busway_spark.pipeline.capture.capture_commit import promised_files
from busway_spark.pipeline.capture.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import CapturedFile
from busway_spark.pipeline.captured.captured_files import listed_files

#: An hour is over when nothing of it can come any more but from a capture that lags behind.
_OVER_AFTER: Final = timedelta(minutes=10)


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
