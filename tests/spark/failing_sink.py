"""The sink of `capture` on a store that fails once in the process in which Spark has it commit, or ends that process:
before the first file is moved, or when a version of a Delta table is written already."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath
from typing import ClassVar

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from busway_spark.pipeline.capture.capture_sink import PARQUET, CaptureSink, CaptureStreamWriter
from busway_spark.pipeline.capture.captured_writer import ZSTD
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import parse_path


class FailingRoot(CaptureRoot):
    """A file beside the root remembers that it has failed."""

    def _fail(self) -> None:
        struck = struck_file(Path(self.location))
        if not struck.exists():
            struck.touch()
            self._strike()

    def _strike(self) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def move(self, source: PurePosixPath, target: PurePosixPath) -> None:
        if parse_path(target) is not None:
            self._fail()
        super().move(source, target)

    def sync_file(self, path: PurePosixPath) -> None:
        super().sync_file(path)
        if path.parts[0] == "_delta_log":
            self._fail()


class DeadlyRoot(FailingRoot):
    def _strike(self) -> None:
        os._exit(9)


class FailingSink(CaptureSink):
    root: ClassVar[type[CaptureRoot]] = FailingRoot

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        del schema, overwrite
        options = self.options
        layout = options.get("layout", PARQUET)
        return CaptureStreamWriter(self.root(options["root"]), options["entity"], layout, ZSTD)


class DeadlySink(FailingSink):
    root = DeadlyRoot


def struck_file(root: Path) -> Path:
    return root.with_name(f"{root.name}.struck")
