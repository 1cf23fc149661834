"""Where replayed messages go: the partitions of a hub, or a queue or topic; by a bus that stages them, or by AMQP.

Theory of operation. Into a bus that stages, each message goes once, whatever ends the replay (`ReplayStage`). A
replay is one write of many steps, known by a random name that its note keeps (`replay`). Rows of a step are
staged, and nobody sees them. Then the step is noted, its number and how far it reaches, and then the bus decides
about it (`writing.two_phase`). A replay that is started again carries the step of its note out once more, the same
rows under the same number: if it was decided the bus knows it, and nothing is sent. Nothing else is asked of the
bus, so a decision that is still on its way from a process that is dead does no harm either. A step is not seen
before it is decided. With a speed that is right for the pace all the same: what is due together is one step. At
full speed a step is what goes in a second. The bus remembers a write for 90 days after its last step, and refuses
what comes later. At its end a replay gives that up, so that nothing of it is left behind.

By AMQP alone go messages to other services, and replays that an earlier version has begun. In a hub of Busway a
producer for each partition counts what the server has stored (`busway.client.events`): a replay that goes
on behind its last note leaves out what the count says is there. Into a queue or topic that detects duplicates, ids
that are made of where a message stands in the history do the same. Elsewhere a replay that was killed may repeat
what it sent after its last note.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np
import pyarrow as pa

from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.amqp.types import Symbol
from busway.client.errors import ClientError
from busway.client.events import EventProducer, ProducerClaim
from busway.client.messages import PARTITION_KEY, ServiceBusMessage
from busway.client.sender import ServiceBusSender
from busway.client.service_bus_client import ServiceBusClient
from busway.streams.key_hash import partition_of_key
from busway_spark.amqp_arrays.encoding import EncodedRows
from busway_spark.pipeline.captured.captured_files import HistoryRow
from busway_spark.pipeline.job import HUB, EntityFacts, JobFailed
from busway_spark.property_types import UnknownProperties, properties_of
from busway_spark.wire.bus import Bus, BusFailure
from busway_spark.writing.two_phase import (
    RowsRefused,
    RowsStaged,
    StagingRoutes,
    TaskStage,
    WriteRefused,
    decide,
)
from busway_spark.writing.write_names import JOB, STREAM, SinkWrite

_ID_BITS: Final = 62
_MESSAGE_ID_CHARACTERS_MAX: Final = 128
_KEY_SYMBOL: Final = Symbol(PARTITION_KEY)
_LIFE_MS_MAX: Final = (1 << 32) - 1

#: A row and the partition that it comes from.
Sourced = tuple[int, HistoryRow]
#: Codes of refusals after which the write cannot go on: the note went back, or is too old.
_OVER: Final = ("behind", "forgotten")


class ReplayTarget(ABC):
    @property
    def is_staged(self) -> bool:
        """Nothing is seen before `decide`, and that is called when it is noted what it is about."""
        return False

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def put(self, rows: Sequence[Sourced]) -> None:
        """In order. They are stored when `flush` has returned."""

    @abstractmethod
    async def flush(self) -> dict[str, int]:
        """What each producer has stored in all, for the note."""

    async def decide(self) -> bool:
        """About what was staged since the last call. False when that was done before."""
        return True

    async def end(self) -> None:  # noqa: B027 - by AMQP there is nothing to end
        """The replay is done, and it is noted."""

    @abstractmethod
    async def close(self) -> None: ...


def target_of(
    client: ServiceBusClient,
    bus: Bus,
    entity: EntityFacts,
    naming: MessageNaming,
    counts: Mapping[str, int],
) -> ReplayTarget:
    if entity.kind == HUB:
        return ReplayHubTarget(client, bus, entity, naming, counts)
    return ReplayQueue(client, entity, naming)


class MessageNaming:
    """What the messages of a replay are known by."""

    def __init__(self, source: str, replay: str, run: int, *, keeps_ids: bool) -> None:
        self._source = source
        self._replay = replay
        self._run = run
        self._keeps_ids = keeps_ids

    def message_id(self, partition: int, row: HistoryRow) -> str:
        if self._keeps_ids and row.message_id:
            return row.message_id
        again = "" if self._run == 1 else f"-{self._run}"
        name = f"{self._source}-{partition}-{row.number}{again}"
        if len(name) <= _MESSAGE_ID_CHARACTERS_MAX:
            return name
        return hashlib.sha256(name.encode()).hexdigest()

    def producer(self, partition: str, last_number: int) -> ProducerClaim:
        digest = hashlib.sha256(f"replay {self._replay} {self._run} {partition}".encode()).digest()
        return ProducerClaim(int.from_bytes(digest[:8], "big") >> (64 - _ID_BITS), 0, last_number)


# -- hubs


def hub_partition(source: int, row: HistoryRow, count: int) -> str:
    """A key goes where keys go; a row without one to the partition of the same number, as far as there is one."""
    at = source if row.partition_key is None else partition_of_key(row.partition_key, count)
    return str(at % count)


class ReplayHubTarget(ReplayTarget):
    def __init__(
        self,
        client: ServiceBusClient,
        bus: Bus,
        hub: EntityFacts,
        naming: MessageNaming,
        counts: Mapping[str, int],
    ) -> None:
        self._client = client
        self._is_azure = bus.is_azure_host()
        self._hub = hub
        self._naming = naming
        #: By partition: stored before the last note.
        self._counts = dict(counts)
        self._producers: dict[str, EventProducer] = {}
        #: Stored behind the last note, and not yet seen among the rows.
        self._skips: dict[str, int] = {}

    async def open(self) -> None:
        """Producers open with their first row."""

    async def put(self, rows: Sequence[Sourced]) -> None:
        routed: dict[str, list[HistoryRow]] = {}
        for partition, row in rows:
            target = hub_partition(partition, row, self._hub.partition_count)
            routed.setdefault(target, []).append(row)
        for target, found in routed.items():
            producer = self._producers.get(target) or await self._open(target)
            skipped = min(self._skips[target], len(found))
            self._skips[target] -= skipped
            if skipped < len(found):
                await producer.send([event_of(row) for row in found[skipped:]])

    async def flush(self) -> dict[str, int]:
        for target, producer in self._producers.items():
            await producer.flush()
            self._counts[target] = producer.last_number - self._skips[target]
        return dict(self._counts)

    async def close(self) -> None:
        for producer in self._producers.values():
            await producer.close()

    async def _open(self, target: str) -> EventProducer:
        known = self._counts.get(target, 0)
        claim = None if self._is_azure else self._naming.producer(target, known)
        producer = self._client.get_event_producer(self._hub.name, target, claim)
        await producer.open()
        skips = producer.last_number - known if producer.is_idempotent else 0
        if skips < 0:
            raise JobFailed(
                f"The hub '{self._hub.name}' has fewer of the replayed events than were sent: it was made again."
                " Say --again to begin anew."
            )
        self._producers[target], self._skips[target] = producer, skips
        return producer


def event_of(row: HistoryRow) -> AmqpMessage:
    return AmqpMessage(
        [row.body or b""],
        DATA,
        properties=_section(row),
        application_properties=_properties(row) or None,
        message_annotations=None if row.partition_key is None else {_KEY_SYMBOL: row.partition_key},
    )


def _section(row: HistoryRow) -> Properties | None:
    """None where the event had none of it."""
    if row[3:5] == (None, None) and row[6:12] == (None, None, None, None, None, None):
        return None
    return Properties(
        message_id=row.message_id,
        group_id=row.session_id,
        subject=row.subject,
        content_type=None if row.content_type is None else Symbol(row.content_type),
        correlation_id=row.correlation_id,
        to=row.to,
        reply_to=row.reply_to,
        reply_to_group_id=row.reply_to_session_id,
    )


def _properties(row: HistoryRow) -> dict[str, object]:
    try:
        return properties_of(row.properties, row.property_types)
    except UnknownProperties as error:
        raise JobFailed(f"Message {row.number} cannot be sent again: {error}.") from error


# -- queues and topics


class ReplayQueue(ReplayTarget):
    def __init__(self, client: ServiceBusClient, entity: EntityFacts, naming: MessageNaming) -> None:
        self._entity = entity
        self._naming = naming
        self._sender: ServiceBusSender = client.get_queue_sender(entity.name)

    async def open(self) -> None:
        await self._sender.open()

    async def put(self, rows: Sequence[Sourced]) -> None:
        for group in self._groups(rows):
            payloads = [message_of(row, self._naming.message_id(at, row)) for at, row in group]
            for (_, row), error in zip(group, await self._sender.send_each(payloads), strict=True):
                if error is not None:
                    raise JobFailed(f"'{self._entity.name}' does not take message {row.number}: {error}")

    def _groups(self, rows: Sequence[Sourced]) -> list[list[Sourced]]:
        """S-23: a partitioned entity takes messages together that have one key. Those of a key keep their order."""
        if not self._entity.is_partitioned:
            return [list(rows)]
        groups: dict[str | None, list[Sourced]] = {}
        for each in rows:
            groups.setdefault(each[1].session_id or each[1].partition_key, []).append(each)
        return list(groups.values())

    async def flush(self) -> dict[str, int]:
        """Each `put` waits for its answer."""
        return {}

    async def close(self) -> None:
        await self._sender.close()


def message_of(row: HistoryRow, message_id: str) -> bytes:
    life_ms = None if row.expires_us is None else (row.expires_us - row.time_us) // 1000
    return ServiceBusMessage(
        row.body or b"",
        _properties(row),
        message_id=message_id,
        session_id=row.session_id,
        partition_key=row.partition_key,
        subject=row.subject,
        content_type=row.content_type,
        correlation_id=row.correlation_id,
        to=row.to,
        reply_to=row.reply_to,
        reply_to_session_id=row.reply_to_session_id,
        time_to_live_ms=life_ms if life_ms is not None and 0 < life_ms <= _LIFE_MS_MAX else None,
    ).encode()


def new_write(replay: str) -> str:
    return f"replay-{replay}-{secrets.token_hex(8)}"


class ReplayStage(ReplayTarget):
    def __init__(
        self, bus: Bus, entity: EntityFacts, naming: MessageNaming, write: str, last_step: int
    ) -> None:
        self._bus = bus
        self._entity = entity
        self._naming = naming
        self._write = write
        #: The last step that was decided.
        self._step = last_step
        self._stage: TaskStage | None = None
        self._staged: RowsStaged | None = None

    @property
    def is_staged(self) -> bool:
        return True

    async def open(self) -> None:
        """A stage opens with its first row."""

    async def put(self, rows: Sequence[Sourced]) -> None:
        with self._told():
            if self._stage is None:
                self._stage = TaskStage(self._bus, SinkWrite(self._write, self._step + 1, STREAM))
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
                name = SinkWrite(self._write, self._step + 1, JOB)
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
