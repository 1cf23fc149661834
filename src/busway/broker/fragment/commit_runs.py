"""Sends that several commits or several fragments take: one callback for each commit, one report for each part."""

from __future__ import annotations

from busway.broker.errors import BrokerError
from busway.broker.fragment.sent_run import SentRun
from busway.broker.fragment.settlement import PartDone
from busway.broker.fragment.write import broker_error
from busway.message.message import Message
from busway.store.contract import StoreError


class RunPart(SentRun):
    """A part of a send. Places are those in the whole."""

    __slots__ = ()

    def fail(self, error: BrokerError) -> None:
        self.done(self.refused + [(index, error) for index in self.message_places()])


class PartedRun:
    """A send that takes several commits, since its messages make too many copies for one. Told when all are over."""

    __slots__ = ("_done", "_dropped", "_failure", "_fragment", "_left", "_refused", "rest")

    def __init__(self, run: SentRun) -> None:
        self._fragment = run.fragment
        self._done = run.done
        #: Duplicates among the messages, which stand or fall with the others.
        self._dropped = run.dropped_places()
        self._refused = run.refused
        self._failure: BrokerError | None = None
        self._left = 1
        #: What no part has taken yet; in the end the last one.
        self.rest = self._part(run, run.messages, run.message_places(), [])
        self.rest.dropped = run.dropped
        self.rest.ids = run.ids

    def _part(
        self, run: SentRun, messages: list[Message], places: list[int], refused: list[tuple[int, BrokerError]]
    ) -> RunPart:
        size = sum([message.size() for message in messages])
        count = len(messages) + len(refused)
        part = RunPart(run.fragment, messages, size, count, refused, self._part_over, False, run.origin)
        part.places = places
        part.admitted_at = run.admitted_at
        return part

    def cut(self, count: int) -> SentRun:
        """The first of the messages, which the rest is without from now on."""
        rest = self.rest
        assert rest.places is not None
        assert 0 < count < len(rest.messages)
        part = self._part(rest, rest.messages[:count], rest.places[:count], rest.refused)
        self.rest = self._part(rest, rest.messages[count:], rest.places[count:], [])
        part.dropped = rest.dropped  # it is told of them
        if rest.ids is not None:
            named = len([message for message in part.messages if message.message_id is not None])
            part.ids, self.rest.ids = rest.ids[:named] or None, rest.ids[named:] or None
        self._left += 1
        return part

    def _part_over(self, refused: list[tuple[int, BrokerError]]) -> None:
        self._refused = self._refused + refused
        if refused:
            self._failure = refused[0][1]
        self._left -= 1
        if self._left > 0:
            return
        if self._failure is not None:  # one of them may repeat a message that was refused
            self._refused = self._refused + [(place, self._failure) for place in self._dropped]
        elif self._dropped:
            self._fragment.flow.taken_in(len(self._dropped), 0, 0.0)
        self._done(sorted(self._refused, key=_place_of))


class DealtRun:
    """The slices of one send that went to fragments of one store: one callback and one report for all of them."""

    __slots__ = ("_bytes", "_done", "_places", "_refused", "_slices")

    def __init__(self, done: PartDone) -> None:
        self._done = done
        self._slices: list[SentRun] = []
        #: Of all its messages, and of the refused ones, in the send.
        self._places: list[int] = []
        self._refused: list[tuple[int, BrokerError]] = []
        self._bytes = 0

    def add(self, run: SentRun, places: list[int]) -> None:
        """A slice with these places in the send has joined, but for what it refuses."""
        self._slices.append(run)
        self._places += places
        self._bytes += run.bytes
        if run.refused:
            self._refused += [(places[index], error) for index, error in run.refused]

    def join(self) -> None:
        """All of its slices have been added."""
        if len(self._refused) == len(self._places):
            self._done(self._places, self._refused)
        else:
            self._slices[0].fragment.batch().callbacks.append(self.committed)

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self._fail(error)
            return
        for run in self._slices:
            run.landed()
        first = self._slices[0]
        waited_s = first.fragment.runtime.clock.monotonic() - first.admitted_at
        first.fragment.flow.taken_in(len(self._places) - len(self._refused), self._bytes, waited_s)
        self._done(self._places, self._refused)

    def _fail(self, error: StoreError) -> None:
        refused = dict(self._refused)
        failure = broker_error(error)
        self._done(self._places, [(place, refused.get(place, failure)) for place in self._places])
        for run in self._slices:
            run.fragment.commit_failed(error)


def _place_of(refused: tuple[int, BrokerError]) -> int:
    return refused[0]
