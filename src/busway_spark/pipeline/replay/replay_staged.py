"""Replayed messages into a bus that can stage them: each once, whatever ends the replay.

Theory of operation. A replay is one write of many steps, known by a random name that its note keeps
(`replay_state`). Rows of a step are staged, and nobody sees them. Then the step is noted, its number and how far it
reaches, and then the bus decides about it (`writing.two_phase`). A replay that is started again carries the
step of its note out once more, the same rows under the same number: if it was decided the bus knows it, and nothing
is sent. Nothing else is asked of the bus, so a decision that is still on its way from a process that is dead does no
harm either.

A step is not seen before it is decided. With a speed that is right for the pace all the same: what is due together
is one step. At full speed a step is what goes in a second.

The bus remembers a write for 90 days after its last step, and refuses what comes later. At its end a replay gives
that up, so that nothing of it is left behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np
import pyarrow as pa

from busway.amqp.sections import encode_message
from busway.client.errors import ClientError
from busway_spark.amqp_arrays.encoded_rows import EncodedRows
from busway_spark.pipeline.captured.captured_history import HistoryRow
from busway_spark.pipeline.entity_kind import HUB, KnownEntity
from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.replay.replay_target import (
    MessageNaming,
    ReplayTarget,
    Sourced,
    event_of,
    hub_partition,
    message_of,
)
from busway_spark.wire.bus import Bus, BusFailure
from busway_spark.writing.staging import StagingRoutes, WriteRefused
from busway_spark.writing.two_phase import RowsRefused, RowsStaged, Stage, decide
from busway_spark.writing.write_names import JOB, STREAM, WriteName

#: Codes of refusals after which the write cannot go on: the note went back, or is too old.
_OVER: Final = ("behind", "forgotten")


def new_write(replay: str) -> str:
    return f"replay-{replay}-{secrets.token_hex(8)}"


class StagedTarget(ReplayTarget):
    def __init__(
        self, bus: Bus, entity: KnownEntity, naming: MessageNaming, write: str, last_step: int
    ) -> None:
        self._bus = bus
        self._entity = entity
        self._naming = naming
        self._write = write
        #: The last step that was decided.
        self._step = last_step
        self._stage: Stage | None = None
        self._staged: RowsStaged | None = None

    @property
    def is_staged(self) -> bool:
        return True

    async def open(self) -> None:
        """A stage opens with its first row."""

    async def put(self, rows: Sequence[Sourced]) -> None:
        with self._told():
            if self._stage is None:
                self._stage = Stage(self._bus, WriteName(self._write, self._step + 1, STREAM))
            if not self._stage.is_known:
                for partition, found in self._routed(rows).items():
                    self._stage.put(self._entity.name, partition, self._encoded(found))

    def _routed(self, rows: Sequence[Sourced]) -> dict[str | None, list[Sourced]]:
        """By partition of a hub, in order."""
        if self._entity.kind != HUB:
            return {None: list(rows)}
        routed: dict[str | None, list[Sourced]] = {}
        for partition, row in rows:
            target = hub_partition(partition, row, self._entity.partition_count)
            routed.setdefault(target, []).append((partition, row))
        return routed

    def _encoded(self, rows: Sequence[Sourced]) -> EncodedRows:
        messages = pa.array([self._message(partition, row) for partition, row in rows], pa.binary())
        return EncodedRows.framed(np.array([row.number for _, row in rows], np.int64), messages)

    def _message(self, partition: int, row: HistoryRow) -> bytes:
        if self._entity.kind == HUB:
            return encode_message(event_of(row))
        return message_of(row, self._naming.message_id(partition, row))

    async def flush(self) -> dict[str, int]:
        """They are staged then."""
        if self._stage is not None:
            with self._told():
                self._staged = self._stage.finish()
        return {}

    async def decide(self) -> bool:
        stage, staged, self._stage, self._staged = self._stage, self._staged, None, None
        if stage is None or staged is None:
            return True
        stage.end(drops=False)
        with self._told():
            decide(self._bus, [staged])
        self._step += 1
        return not staged.is_known

    async def end(self) -> None:
        """A favour: what is not given up is forgotten in time."""
        if self._step:
            with suppress(ClientError):
                name = WriteName(self._write, self._step + 1, JOB)
                StagingRoutes(self._bus).decide(name, {}, self._entity.name)

    async def close(self) -> None:
        """What was staged and not decided is dropped; it comes again."""
        if self._stage is not None:
            self._stage.end(drops=True)
            self._stage = None

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except RowsRefused as error:
            raise JobFailed(
                f"'{self._entity.name}' does not take message {error.row}: {error.reason}"
            ) from error
        except BusFailure as error:
            cause = error.__cause__
            is_over = isinstance(cause, WriteRefused) and cause.code in _OVER
            way = "Say --again to begin anew." if is_over else "Start the same replay again to go on."
            raise JobFailed(f"{error} {way}") from error
