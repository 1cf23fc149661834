"""Compaction by tasks of Spark: tasks that are repeated or fail, disks that are not shared, drivers that die."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Generator, Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from busway.cli.app import run as busway
from busway_spark.pipeline.compaction import (
    CompactOptions,
    CompactResult,
    FolderMerge,
    FolderPlan,
    MergedFolder,
    MergedFolders,
    Merging,
    SparkMerging,
    compact,
)
from busway_spark.pipeline.job import JobFailed, JobProgress
from tests.harness.running_server import BUSWAY
from tests.spark.capture_rig import NINE, data_files, numbers, numbers_in
from tests.spark.test_compact import NOON, filled, put, strays

#: More than are merged while a signal is on its way.
FOLDERS = 60
EACH = list(range(6))
MASTER = "local[2]"


@pytest.fixture
def merging(spark: SparkSession) -> SparkMerging:
    assert spark.version
    return SparkMerging(MASTER, {})


def run(root: Path, way: Merging) -> CompactResult:
    return compact(CompactOptions(str(root)), JobProgress(), NOON, way)


def test_a_task_that_runs_twice_is_harmless(tmp_path: Path, merging: SparkMerging) -> None:
    """Compact on Spark: a repeated task writes files of its own; one try counts, and nothing stays of the other."""
    tries: list[MergedFolder] = []

    def twice(merge: FolderMerge, plans: Iterator[FolderPlan]) -> MergedFolders:
        planned = list(plans)
        found = list(merging(merge, chain(planned, planned)))
        tries.extend(merged for _, merged in found)
        yield from {plan: (plan, merged) for plan, merged in found}.values()

    filled(tmp_path)
    assert run(tmp_path, twice).folders == 2
    assert len({each.name for each in tries}) == 4
    assert len({each.files for each in tries}) == 2, "equal contents"
    assert numbers(tmp_path) == [(0, at) for at in range(100)]
    assert len(data_files(tmp_path)) == 2
    assert strays(tmp_path) == []


def test_what_goes_wrong_in_a_task_is_told_in_one_sentence(tmp_path: Path, merging: SparkMerging) -> None:
    """Compact on Spark: errors help. A file is gone, a machine sees no such folder, or writes where the driver does
    not look: nothing of it is swapped."""

    def without(path: Path) -> Merging:
        def way(merge: FolderMerge, plans: Iterator[FolderPlan]) -> MergedFolders:
            planned = list(plans)
            shutil.move(path, tmp_path / "away")
            with contextlib.closing(merging(merge, iter(planned))) as merged:
                yield from merged

        return way

    def elsewhere(merge: FolderMerge, plans: Iterator[FolderPlan]) -> MergedFolders:
        for plan, merged in merging(merge, plans):
            shutil.rmtree(lake / "_capture/compaction" / merged.name)
            yield plan, merged

    lake = tmp_path / "lake"
    put(lake, 0, range(10), range(10, 20))
    before = data_files(lake)
    first = lake / before[0]
    for way, sentence in (
        (
            without(first),
            rf"^entity=clicks/.* could not be merged: Files at {lake} cannot be used: .*0\.parquet",
        ),
        (without(first.parent), rf"^\S+ does not see {first.parent}: all machines"),
        (elsewhere, r"^What was merged for entity=clicks/.* is not at .*nothing was changed"),
    ):
        with pytest.raises(JobFailed, match=sentence) as raised:
            run(lake, way)
        assert "\n" not in str(raised.value)
        assert "Traceback" not in str(raised.value)
        for gone in [each for each in (first.parent, first) if not each.exists()][:1]:
            shutil.move(tmp_path / "away", gone)
        assert data_files(lake) == before
        assert strays(lake) == []


def test_the_command_takes_a_master(
    tmp_path: Path, merging: SparkMerging, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command-line contract: --master and --conf, as all commands of the pipeline have them. Looking needs no Spark,
    not even one that there is."""
    call = ["pipeline", "compact", str(filled(tmp_path))]
    assert busway([*call, "--dry-run", "--master", "spark://nowhere:1"]) == 0
    assert busway([*call, "--master", merging.master, "--conf", "spark.a=b"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "10 files in 2 folders would become 2.",
        "10 files in 2 folders became 2.",
    ]
    assert told.err.count("8 files became 1") == 1
    assert numbers(tmp_path) == [(0, at) for at in range(100)]
    for wrong, sentence in (
        (["--master", "sc://there"], "Spark Connect"),
        (["--conf", "spark.a=b"], "need a --master"),
    ):
        assert busway([*call, *wrong]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.long
def test_a_driver_that_is_killed_or_interrupted_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Compact on Spark: kill -9 of everything among its folders, then SIGINT to the next run, which ends in good
    order; a run without Spark finishes."""
    lake, left = tmp_path / "lake", tmp_path / "left"
    put(lake, 0, EACH[:2], EACH[2:4], EACH[4:], at=NINE - timedelta(days=365))
    (folder,) = lake.glob("entity=*/date=*/hour=*")
    for day in range(1, FOLDERS):
        name = f"date=2024-{day // 28 + 1:02}-{day % 28 + 1:02}"
        shutil.copytree(folder, folder.parent.parent / name / folder.name)
    with driver(lake, left) as killed:
        wait_for_folder(killed)
        os.killpg(killed.pid, signal.SIGKILL)
    assert check_folders(lake) > 0
    with driver(lake, left) as stopped:
        wait_for_folder(stopped)
        os.killpg(stopped.pid, signal.SIGINT)
        told, _ = stopped.communicate()
    assert stopped.returncode == 0
    assert told.endswith(" Stopped; the same call goes on.\n")
    assert check_folders(lake) > 0
    assert strays(lake) == []
    assert busway(["pipeline", "compact", str(lake), "--quiet"]) == 0
    assert check_folders(lake) == 0
    assert strays(lake) == []


@contextlib.contextmanager
def driver(root: Path, left: Path) -> Generator[subprocess.Popen[str]]:
    """What it leaves behind when it is killed is in `left`."""
    left.mkdir(exist_ok=True)
    command = [str(BUSWAY), "pipeline", "compact", str(root), "--master", MASTER]
    process = subprocess.Popen(
        [*command, "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(left), "SPARK_LOCAL_DIRS": str(left)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_folder(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    told = next((line for line in process.stderr if "files became" in line), None)
    assert told is not None, "it ended before"


def check_folders(root: Path) -> int:
    """How many are left; in each folder every message is there once."""
    folders = sorted(path for path in root.glob("entity=*/date=*/hour=*/partition=*") if path.is_dir())
    files = [sorted(folder.iterdir()) for folder in folders]
    assert len(folders) == FOLDERS
    assert [sorted(chain(*map(numbers_in, each))) for each in files] == [EACH] * FOLDERS
    return sum(len(each) > 1 for each in files)
