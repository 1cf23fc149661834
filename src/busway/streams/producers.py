"""Idempotent producers of a partition: what each one has had stored (H-18, H-19).

Theory of operation. A producer has an id, an epoch and the sequence number of its last event. Its row is written with
its events in one commit, so the two never disagree; memory is ahead of the rows as it is with everything that has
joined a batch, and is dropped when a commit fails.

A group of events begins with a sequence number. The one behind the last is taken. An earlier one is a repeat only if
the same events were stored under it: a client that gives a group up takes its numbers for the next one, and what
is acknowledged and dropped would be lost. So a digest of each of the last groups lies beside the count. Groups that
were stored are acknowledged and dropped, and what follows them is stored; everything else under used numbers is
refused like a gap, also what is too old to be compared. Numbers go round: behind 2147483647 comes 0.

Attaching without an id makes a new producer, with the epoch and the number that are given, or with 0. Attaching with
an id and a higher epoch, or with an id and none (which gives the next epoch), takes the producer over; the one before
is refused from then on, and the count goes on where the log knows it to be: what a writer that crashed remembers may
be older (H-19). A takeover that says 0 begins a new count: a writer whose every round of work is an epoch of its own
finds by the answer how far an interrupted round came. A client that comes back after its link broke shows its own
epoch and goes on.
What attached and never sent is forgotten first.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from busway.message.event_record import Event
from busway.model.errors import (
    ArgumentOutOfRange,
    BadArgument,
    OutOfOrderSequence,
    ProducerStolen,
    QuotaExceeded,
)
from busway.store.contract import CommitBatch, LogChanges, ProducerRow

if TYPE_CHECKING:
    from busway.streams.partition_log import PartitionLog

#: Sequence numbers are 0 to 2147483647.
_SEQUENCES: Final = 1 << 31
#: A number at most so far back is a repeat, else it is ahead.
_REPEATS_MAX: Final = 1 << 30
_EPOCH_MAX: Final = (1 << 15) - 1
_ID_MAX: Final = (1 << 63) - 1
#: Ids that we give out stay whole in clients whose numbers are doubles.
_ID_BYTES: Final = 6
#: Groups of a producer that are known again. An SDK has one on its way; a client that sends ahead a few.
GROUPS_MAX: Final = 32
#: A group as it lies in the row: how many events, and their digest.
_COUNT_BYTES: Final = 4
_DIGEST_BYTES: Final = 8
_GROUP_BYTES: Final = _COUNT_BYTES + _DIGEST_BYTES
#: What a producer that has sent nothing has sent last. Clients that say where they stand cannot say less.
_FIRST_LAST: Final = 0


class Producer:
    """One of them, as its links hold it. Two links of one epoch share it."""

    __slots__ = ("epoch", "groups", "is_stored", "last_sequence", "producer_id", "used_at_ms")

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        used_at_ms: int,
        is_stored: bool,
        groups: bytes = b"",
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        #: Of the last event that has joined a batch.
        self.last_sequence = last_sequence
        self.used_at_ms = used_at_ms
        #: The log has a row of it, or will have with the next commit.
        self.is_stored = is_stored
        #: The last groups that have joined, the newest at the end: each a count and a digest. Together they end
        #: with `last_sequence`.
        self.groups = groups

    def repeats_among(self, events: list[Event], behind: int) -> int:
        """How many leading events are groups that were stored, where the first has the number that is so far
        behind the next one; -1 when they are not the same."""
        groups = self.groups
        at = len(groups)
        while behind > 0 and at > 0:
            at -= _GROUP_BYTES
            behind -= _count_at(groups, at)
        if behind != 0:
            return -1
        known = 0
        while at < len(groups) and known < len(events):
            count = _count_at(groups, at)
            if known + count > len(events):
                return -1
            if _group_of(events, known, known + count) != groups[at : at + _GROUP_BYTES]:
                return -1
            known += count
            at += _GROUP_BYTES
        return known

    def remember(self, events: list[Event]) -> None:
        """One more group has joined."""
        self.last_sequence = (self.last_sequence + len(events)) % _SEQUENCES
        kept = self.groups[-_GROUP_BYTES * (GROUPS_MAX - 1) :]
        self.groups = kept + _group_of(events, 0, len(events))


def _count_at(groups: bytes, at: int) -> int:
    return int.from_bytes(groups[at : at + _COUNT_BYTES], "big")


def _group_of(events: list[Event], start: int, end: int) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for place in range(start, end):
        event = events[place]
        digest.update(len(event.bare).to_bytes(4, "big"))
        digest.update(event.bare)
        digest.update(len(event.annotations).to_bytes(4, "big"))
        digest.update(event.annotations)
    return (end - start).to_bytes(_COUNT_BYTES, "big") + digest.digest()


class ProducerBook:
    """The producers of one log."""

    __slots__ = ("_is_read", "_log", "_producers")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._producers: dict[int, Producer] = {}
        self._is_read = False

    async def attach(
        self, producer_id: int | None = None, epoch: int | None = None, sequence: int | None = None
    ) -> Producer:
        """The producer with its id, epoch and last sequence number as they are from now on. Raises ProducerStolen,
        ArgumentOutOfRange, QuotaExceeded, and what the store raises as a BrokerError."""
        _check_values(producer_id, epoch, sequence)
        await self._read()
        known = None if producer_id is None else self._producers.get(producer_id)
        if known is None:
            own_id = self._new_id() if producer_id is None else producer_id
            last = _FIRST_LAST if sequence is None else sequence
            return self._enter(Producer(own_id, epoch or 0, last, self._now_ms(), False))
        wanted = _next_epoch(known) if epoch is None else epoch
        if wanted < known.epoch:
            raise _stolen(known, wanted)
        if wanted == known.epoch:
            return known
        return await self._take_over(known, wanted, counts_anew=sequence == 0)

    async def _take_over(self, known: Producer, epoch: int, *, counts_anew: bool) -> Producer:
        """Durably, so that the one before stays refused."""
        fresh = Producer(known.producer_id, epoch, _FIRST_LAST, self._now_ms(), known.is_stored)
        if not counts_anew:
            fresh.last_sequence, fresh.groups = known.last_sequence, known.groups
        self._producers[known.producer_id] = fresh
        if fresh.is_stored:
            self._join_row(self._log.batch(), fresh)
            await self._log.durable()
        return fresh

    async def _read(self) -> None:
        """Once, when the first producer comes."""
        if self._is_read:
            return
        for row in await self._log.read_producers():
            if row.producer_id not in self._producers:
                self._producers[row.producer_id] = Producer(
                    row.producer_id, row.epoch, row.last_sequence, row.used_at_ms, True, row.groups
                )
        self._is_read = True

    def _enter(self, producer: Producer) -> Producer:
        producers_max = self._log.runtime.limits.producers_per_log_max
        if len(self._producers) >= producers_max:
            self._forget_unused()
        if len(self._producers) >= producers_max:
            raise QuotaExceeded(
                f"{self._log.name} remembers {producers_max} idempotent producers already. The longest unused are"
                " forgotten after a day."
            )
        self._producers[producer.producer_id] = producer
        return producer

    def _forget_unused(self) -> None:
        for producer in [producer for producer in self._producers.values() if not producer.is_stored]:
            del self._producers[producer.producer_id]

    def _new_id(self) -> int:
        while True:
            found = int.from_bytes(self._log.runtime.entropy.bytes(_ID_BYTES), "big")
            if found > 0 and found not in self._producers:
                return found

    def _now_ms(self) -> int:
        return self._log.runtime.clock.wall_ms()

    # -- publishing

    def repeats_among(self, producer: Producer, events: list[Event]) -> int:
        """How many leading events of a group were stored before, by what they say of themselves. Raises
        ProducerStolen, OutOfOrderSequence, BadArgument."""
        first = events[0].producer_number
        if not 0 <= first < _SEQUENCES:
            raise BadArgument("An event of an idempotent producer must have a producer sequence number.")
        expected = first
        for event in events:
            if event.producer_number != expected:
                raise OutOfOrderSequence(
                    f"The sequence numbers of a group must follow one another: {event.producer_number} came where"
                    f" {expected} was due."
                )
            if event.producer_id >= 0 and event.producer_id != producer.producer_id:
                raise BadArgument("An event names another producer than its link.")
            if 0 <= event.producer_epoch < producer.epoch:
                raise _stolen(producer, event.producer_epoch)
            expected = (expected + 1) % _SEQUENCES
        return self._check(producer, first, events)

    def _check(self, producer: Producer, first_sequence: int, events: list[Event]) -> int:
        current = self._producers.get(producer.producer_id)
        if current is not None and current is not producer and current.epoch >= producer.epoch:
            raise _stolen(current, producer.epoch)
        behind = (producer.last_sequence + 1 - first_sequence) % _SEQUENCES
        if behind == 0:
            return 0
        if behind > _REPEATS_MAX:
            raise OutOfOrderSequence(
                f"The sequence number {first_sequence} does not follow {producer.last_sequence}, the last one of"
                f" producer {producer.producer_id}."
            )
        repeats = producer.repeats_among(events, behind)
        if repeats < 0:
            raise OutOfOrderSequence(
                f"This is an old sequence number: producer {producer.producer_id} has used {first_sequence} for other"
                f" events; its last one is {producer.last_sequence}."
            )
        return repeats

    def joined(self, batch: CommitBatch, producer: Producer, events: list[Event], now_ms: int) -> None:
        """One more group of its events is in the batch."""
        producer.remember(events)
        producer.used_at_ms = now_ms
        self._join_row(batch, producer)

    def _join_row(self, batch: CommitBatch, producer: Producer) -> None:
        producer.is_stored = True
        self._producers[producer.producer_id] = producer
        if batch.logs is None:
            batch.logs = LogChanges()
        row = ProducerRow(
            producer.producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.used_at_ms,
            producer.groups,
        )
        batch.logs.producers.append((self._log.key, row))

    def forget_before(self, before_ms: int) -> None:
        """H-19: rows of producers not used since then go, here and in the store."""
        for producer in [
            producer for producer in self._producers.values() if producer.used_at_ms < before_ms
        ]:
            del self._producers[producer.producer_id]
        batch = self._log.batch()
        if batch.logs is None:
            batch.logs = LogChanges()
        batch.logs.producers_purged.append((self._log.key, before_ms))
        self._log.watch(batch)

    def __len__(self) -> int:
        return len(self._producers)


def _check_values(producer_id: int | None, epoch: int | None, sequence: int | None) -> None:
    if any(value is not None and value < 0 for value in (producer_id, epoch, sequence)):
        raise ArgumentOutOfRange(
            "Invalid range for idempotent producer state. Producer Id, Epoch, and Sequence Number must be zero or"
            " positive."
        )
    if producer_id is not None and not 0 <= producer_id <= _ID_MAX:
        raise ArgumentOutOfRange("A producer's id must be between 0 and 9223372036854775807.")
    if epoch is not None and not 0 <= epoch <= _EPOCH_MAX:
        raise ArgumentOutOfRange(f"A producer's epoch must be between 0 and {_EPOCH_MAX}.")
    if sequence is not None and not 0 <= sequence < _SEQUENCES:
        raise ArgumentOutOfRange(f"A producer's sequence number must be between 0 and {_SEQUENCES - 1}.")


def _next_epoch(known: Producer) -> int:
    if known.epoch == _EPOCH_MAX:
        raise QuotaExceeded(f"The epochs of producer {known.producer_id} are used up. Please use another id.")
    return known.epoch + 1


def _stolen(current: Producer, epoch: int) -> ProducerStolen:
    return ProducerStolen(
        f"Producer {current.producer_id} was taken over with a higher epoch: this one may not send any more."
        f" Received:{epoch} Current:{current.epoch}"
    )
