"""A played capture (`played_capture`) into a store of objects: files, or a Delta table."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from busway_spark.pipeline.capture.capture_sink import DELTA, PARQUET, CaptureStreamWriter
from busway_spark.pipeline.capture.captured_writer import ZSTD
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from tests.spark.played_capture import Key, PlayedBus, PlayedCapture, travelled
from tests.spark.s3_server import BUCKET, S3Server


class PlayedObjects(PlayedCapture):
    def __init__(self, server: S3Server, name: str, bus: PlayedBus, layout: str = PARQUET) -> None:
        super().__init__(Path(name), layout, bus, self._root)  # type: ignore[arg-type]
        self.server = server
        self.name = name
        self.owner: str | None = None

    def _root(self, folder: str) -> CaptureRoot:
        """Spelled now this way, now that."""
        return CaptureRoot(f"s3a://{BUCKET}/{folder}", self.owner)

    def _begin(self, stack: ExitStack) -> CaptureRoot:
        self.owner = None
        root = super()._begin(stack)
        self.owner = root.owner
        return root

    def _writer(self) -> CaptureStreamWriter:
        root = CaptureRoot(f"s3://{BUCKET}/{self.name}", self.owner)
        return travelled(CaptureStreamWriter(root, self.bus.entity.name, self.layout, ZSTD))

    def _found(self) -> dict[str, bytes]:
        start = f"{self.name}/"
        return {
            key[len(start) :]: data for key, data in self.server.objects().items() if key.startswith(start)
        }

    def lake(self) -> list[Key]:
        found: list[Key] = []
        there = self._found()
        named = table_keys(there) if self.layout == DELTA else there
        for key, data in there.items():
            if key.startswith("entity=") and key in named:
                rows: list[Any] = pq.read_table(io.BytesIO(data), columns=["body"]).to_pylist()
                found += [
                    (int(each.split(b"-")[0]), int(each.split(b"-")[1]))
                    for row in rows
                    for each in row.values()
                ]
        return sorted(found)

    def leftovers(self) -> list[str]:
        known = ("lock", "source.json", "committed.json")
        return [key for key in self._found() if key.startswith("_capture") and not key.endswith(known)]


def table_keys(objects: Mapping[str, bytes]) -> set[str]:
    """The files that the log of a Delta table names, as its versions say one behind the other."""
    found: set[str] = set()
    for key in sorted(objects):
        if key.startswith("_delta_log/") and key.endswith(".json"):
            for action in map(json.loads, objects[key].splitlines()):
                found |= {unquote(each["path"]) for name, each in action.items() if name == "add"}
                found -= {unquote(each["path"]) for name, each in action.items() if name == "remove"}
    return found
