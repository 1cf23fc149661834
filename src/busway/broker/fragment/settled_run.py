"""Settlements of one request, until they are durable: in one fragment, or in several of a partitioned entity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.errors import BrokerError
from busway.broker.fragment.flow import Flow
from busway.broker.fragment.settlement import RunDone, Verb
from busway.broker.fragment.write import FragmentWrite, broker_error
from busway.store.contract import CommitBatch, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment


class SettledRun(FragmentWrite):
    """Settlements of one call, until they are durable."""

    __slots__ = ("count", "done", "refused", "verb")

    def __init__(
        self,
        fragment: Fragment,
        batch: CommitBatch,
        verb: Verb,
        count: int,
        refused: list[tuple[int, BrokerError]],
        done: RunDone,
    ) -> None:
        super().__init__(fragment)
        self.batch = batch
        self.verb = verb
        self.count = count
        self.refused = refused
        self.done = done

    def committed(self, error: StoreError | None) -> None:
        if error is None:
            self.tell_journal()
            self.fragment.flow.settled(self.verb, self.count - len(self.refused))
            self.done(self.refused)
            return
        refused = dict(self.refused)
        failure = broker_error(error)
        self.done([(index, refused.get(index, failure)) for index in range(self.count)])
        self.fragment.commit_failed(error)


class CompletedRun:
    """Messages of several fragments, completed in one call, until the commits of all their stores are over."""

    __slots__ = ("_count", "_done", "_flow", "_left", "_parts", "refused")

    def __init__(self, count: int, flow: Flow, done: RunDone) -> None:
        self._count = count
        self._flow = flow
        self._done = done
        #: One for each store, by its batch, until all are there: it and its parts must not hold one another. How many
        #: of them are not over; 1 more until all are there.
        self._parts: dict[CommitBatch, CompletedPart] = {}
        self._left = 1
        self.refused: list[tuple[int, BrokerError]] = []

    def add(
        self,
        write: FragmentWrite,
        start: int,
        count: int,
        refused: list[tuple[int, BrokerError]],
    ) -> None:
        """So many from this place on are of the fragment that this writes."""
        if refused:
            self.refused += [(start + index, error) for index, error in refused]
            if len(refused) == count:
                return
        part = self._parts.get(write.batch)
        if part is None:
            part = self._parts[write.batch] = CompletedPart(self)
            self._left += 1
            write.batch.callbacks.append(part.committed)
        write.write_counters()
        part.spans.append((write, start, count))

    def all_added(self) -> None:
        self._parts.clear()
        self.part_over()

    def part_over(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._flow.settled(Verb.COMPLETE, self._count - len(self.refused))
            self._done(sorted(self.refused, key=_place_of))


class CompletedPart:
    """The share of one store."""

    __slots__ = ("_run", "spans")

    def __init__(self, run: CompletedRun) -> None:
        self._run = run
        #: (what was written, first place, count)
        self.spans: list[tuple[FragmentWrite, int, int]] = []

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self._fail(broker_error(error))
        else:
            for write, _, _ in self.spans:
                write.tell_journal()
        self._run.part_over()
        if error is not None:
            for write, _, _ in self.spans:
                write.fragment.commit_failed(error)

    def _fail(self, failure: BrokerError) -> None:
        refused = dict(self._run.refused)
        for _, start, count in self.spans:
            places = range(start, start + count)
            self._run.refused += [(place, failure) for place in places if place not in refused]


def _place_of(refused: tuple[int, BrokerError]) -> int:
    return refused[0]
