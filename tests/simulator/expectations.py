"""What must, may or must not be where, given what an operator did: a topic's rules at the time, entities that forward
now and then, that were deleted, that let messages expire. Without an operator it is all in `topology`.

Lenient only while something is being changed, or for what a change may have taken away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from busway.model.durations import FOREVER_MS
from tests.chaos.history import FAIL, OK
from tests.simulator.journal import NEVER, Seen, Sent
from tests.simulator.timeline import State, Timeline, routes
from tests.simulator.topology import TOPICS, TRANSFERS, WEEK_MS, Traits, group_of

_SEND_REFUSED: Final = ("Disabled", "SendDisabled")
_RECEIVE_REFUSED: Final = ("Disabled", "ReceiveDisabled")


class Expectations:
    """See the head of this file."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        paths = timeline.paths()
        #: Paths that were changed, or may have been.
        self._changed = {path for path in paths if timeline.of(path)}
        self._subscriptions = {
            topic: [path for path in paths if path.startswith(f"{topic}/")] for topic in TOPICS
        }
        self._usual: dict[tuple[str, Traits], bool] = {}
        self._group_of = self._merged()
        changes = [change for path in self._changed for change in timeline.of(path)]
        #: What dead letters were forwarded to.
        self._onward = {routes(each.description)[1] for each in changes if each.description is not None}

    # -- groups

    def _merged(self) -> dict[str, str]:
        """Whatever forwards for a while makes one group with its target, for the whole run."""
        roots: dict[str, str] = {}

        def root(group: str) -> str:
            while group in roots:
                group = roots[group]
            return group

        for path in sorted(self._changed):
            for change in self.timeline.of(path):
                if change.description is None:
                    continue
                for target in routes(change.description):
                    if target is not None and root(group_of(path)) != root(group_of(target)):
                        roots[root(group_of(path))] = root(group_of(target))
        return {group: root(group) for group in roots}

    def group(self, path: str) -> str:
        """Of a path, or of one of `topology`'s groups."""
        usual = group_of(path)
        return self._group_of.get(usual, usual)

    def is_merged(self, group: str) -> bool:
        return group in self._group_of.values()

    def reloads(self, group: str) -> list[tuple[float, float]]:
        """Times in which an entity of the group was loaded anew, and forgot its locks."""
        found: list[tuple[float, float]] = []
        for path in sorted(self._changed):
            if self.group(path) != group:
                continue
            for change in self.timeline.of(path):
                if change.verb in ("update", "look") and self._turns(path, change.invoked):
                    found.append((change.invoked, self.timeline.is_over(change)))
        return found

    def _turns(self, path: str, moment: float) -> bool:
        around = self.timeline.during(path, moment, moment)
        return len({None if state is None else routes(state.description) for state in around}) > 1

    # -- what is sent

    def destinations(self, sent: Sent) -> dict[str, bool]:
        """The groups in which it may turn up; True where it must."""
        if sent.path not in TOPICS:
            return {self.group(sent.path): not self._may_vanish(sent, sent.path)}
        found: dict[str, bool] = {}
        for path in self._subscriptions[sent.path]:
            selected = self._selected(path, sent)
            if True in selected:
                found[self.group(path)] = False not in selected and not self._may_vanish(sent, path)
        return found

    def _selected(self, path: str, sent: Sent) -> set[bool]:
        """Of one subscription. A scheduled message is judged by the rules of its time (S-34)."""
        if path not in self._changed and sent.path not in self._changed:
            usual = self._usual.get((path, sent.traits))
            if usual is None:
                (state,) = self.timeline.during(path, 0.0, 0.0)
                usual = state is not None and state.selects(sent.traits)
                self._usual[path, sent.traits] = usual
            return {usual}
        states = self.timeline.during(path, sent.made, _published(sent))
        return {state is not None and state.selects(sent.traits) for state in states}

    def _may_vanish(self, sent: Sent, path: str) -> bool:
        """With an entity that it was in, or by its time to live. `path`: where it comes to lie first."""
        way = {path, sent.path.removeprefix(TRANSFERS)}
        if way.isdisjoint(self._changed):
            return False
        for each in way & self._changed:
            if any(
                self.timeline.is_over(deletion) >= sent.made for deletion in self.timeline.deletions(each)
            ):
                return True
            states = self.timeline.during(each, sent.made, _published(sent))
            if any(state is not None and _expires(state) for state in states):
                return True
        return False

    def may_repeat(self, sent: Sent, first: float) -> bool:
        """Duplicates of it may not be noticed: it was sent while their window was another, or the entity went since
        it was sent for the first time."""
        path = sent.path
        if path not in self._changed or sent.result == FAIL:
            return False
        for gone in self.timeline.deletions(path):
            if gone.result != FAIL and first <= gone.done and gone.invoked <= sent.done:
                return True
        states = self.timeline.during(path, sent.made, sent.done)
        return {0 if state is None else state.window_ms for state in states} != {WEEK_MS}

    def wrongly_accepted(self, sent: Sent) -> bool:
        """The entity was disabled, or not there, all the while."""
        if sent.path not in self._changed or sent.result != OK:
            return False
        states = self.timeline.during(sent.path, sent.made, sent.done)
        return all(state is None or state.description.status in _SEND_REFUSED for state in states)

    # -- what is seen

    def wrongly_shown(self, seen: Seen) -> str:
        """Why it cannot have been shown at this moment; empty when it can."""
        if seen.path not in self._changed or seen.how not in ("receive", "delete"):
            return ""
        states = self.timeline.during(seen.path, seen.at, seen.at)
        if all(state is None for state in states):
            return "shown by what is not there"
        if all(state is not None and state.description.status in _RECEIVE_REFUSED for state in states):
            return "shown while disabled"
        if not seen.is_dead and all(state is not None and state.forwards_to for state in states):
            return "shown though it forwards"
        return ""

    def is_ghost(self, seen: Seen, sends: Iterable[Sent]) -> bool:
        """All of it was sent to an entity that was deleted afterwards, and another of the same name shows it."""
        if seen.path not in self._changed or any(sent.due_ms and sent.path in TOPICS for sent in sends):
            return False
        gone = [
            each.invoked
            for each in self.timeline.deletions(seen.path)
            if each.result == OK and each.done < seen.invoked
        ]
        return bool(gone) and all(sent.done < gone[-1] for sent in sends if sent.result != FAIL)

    def was_moved(self, path: str, moment: float) -> bool:
        """It forwarded, perhaps, before: what may have arrived elsewhere is held back, and its order with it."""
        return path in self._changed and any(
            change.invoked <= moment and change.description is not None and any(routes(change.description))
            for change in self.timeline.of(path)
        )

    def takes_dead_letters(self, path: str) -> bool:
        """Of another entity: they tell why they died."""
        return path == "graves" or path in self._onward

    def was_deleted(self, path: str) -> bool:
        return path in self._changed and bool(self.timeline.deletions(path))

    def incarnation(self, path: str, moment: float) -> int:
        return self.timeline.incarnation(path, moment) if path in self._changed else 0


def _published(sent: Sent) -> float:
    return NEVER if sent.due_ms else sent.done


def _expires(state: State) -> bool:
    return state.description.default_message_time_to_live_ms < FOREVER_MS
