"""A home of Spark by links, and an archive of Java's classes: both only make starts cheaper."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from busway_spark.start import session as module
from busway_spark.start.session import SPARK_HOME, lead_to_quick_home, quick_home
from tests.spark import class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REAL = Path(pyspark.__file__).parent.resolve()


def test_workers_import_spark_as_a_package(spark: SparkSession) -> None:
    """not out of an archive, which every process would compile again; it is the same Spark."""

    def where(_: int) -> list[str]:
        import py4j  # type: ignore[import-untyped]
        import pyspark

        return [os.path.realpath(str(each.__file__)) for each in (pyspark, py4j)]

    found = [Path(each) for each in spark.sparkContext.parallelize([0], 1).map(where).first()]
    assert found[0].parent == REAL
    assert all(path.is_file() for path in found)


def test_a_home_has_all_of_the_real_one(tmp_path: Path) -> None:
    """also what came later, and also when it was made before."""
    home = quick_home(tmp_path)
    assert home is not None
    assert {each.name for each in home.iterdir()} == {each.name for each in REAL.iterdir()}
    assert (home / "jars").resolve() == REAL / "jars"
    library = {each.name for each in (REAL / "python" / "lib").iterdir()}
    assert {each.name for each in (home / "python" / "lib").iterdir()} == library
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark").resolve() == REAL
    (home / "jars").unlink()
    assert quick_home(tmp_path) == home
    assert (home / "jars" / "..").resolve() == REAL


def test_a_home_that_somebody_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of ours is replaced: it came from another process, whose Spark may be another."""
    monkeypatch.setenv(SPARK_HOME, "/opt/spark")
    lead_to_quick_home()
    assert os.environ[SPARK_HOME] == "/opt/spark"
    other = tmp_path / "spark-other"
    (other / "python" / "lib" / "pyspark.zip").mkdir(parents=True)
    monkeypatch.setenv(SPARK_HOME, str(other))
    lead_to_quick_home()
    assert Path(os.environ[SPARK_HOME]) == quick_home(tmp_path) != other


def test_where_there_can_be_no_links_spark_has_its_own_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert quick_home(tmp_path / "file") is None
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert quick_home(tmp_path) is None


@pytest.mark.parametrize("content", [None, b"", b"no archive" * 1000])
def test_java_runs_without_a_sound_archive(content: bytes | None, tmp_path: Path) -> None:
    """Where a class archive is missing or damaged Java says nothing and starts as it always did."""
    archive = tmp_path / "classes.jsa"
    if content is not None:
        archive.write_bytes(content)
    options = [*class_archive.SHORT_LIFE.split(), f"-XX:SharedArchiveFile={archive}"]
    command = [class_archive._java(), *options, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ersion" in done.stderr
    assert done.stdout == ""
