"""What joined batches take away or change, so that reads can be corrected before they return.

Theory of operation. A read sees the rows of some commit. Batches that joined and are not yet (or only just)
committed lie over it like shadows: a row one of them deletes, moves away or drops may not be shown any more, and
its `Change`s must already show. A shadow is built from the batch's lists on demand and only as far as they have
grown since the last look, so a store without concurrent reads pays nothing for it.

Applying a shadow to rows that already contain its batch does no harm: deletes find nothing, changes are absolute.
A row that goes and comes back in joined batches stays hidden; the contract allows both.

A read may take as long as its disk does. So of a batch that was reported, and that some read still needs, only this
is kept, without the messages it put; and batches that the same reads need become one shadow.
"""

from __future__ import annotations

from collections.abc import Sequence

from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import COUNTER_BITS, COUNTER_MASK, Change, CommitBatch, FragmentKey, TransferMark


class Shadow:
    """The removals and changes of one batch."""

    __slots__ = (
        "_changes_seen",
        "_deletes_seen",
        "_moves_seen",
        "_states",
        "batch",
        "changed",
        "number",
        "removed",
    )

    def __init__(self, batch: CommitBatch, number: int) -> None:
        self.batch = batch
        #: The number of the batch's commit.
        self.number = number
        #: Row keys (fragment << COUNTER_BITS | number) that leave, by place.
        self.removed: tuple[set[int], set[int], set[int]] = (set(), set(), set())
        self.changed: dict[tuple[int, int], Change] = {}
        #: Session states of a batch that was let go, by fragment and session.
        self._states: dict[tuple[FragmentKey, str], tuple[FragmentKey, str, bytes | None, int]] = {}
        self._moves_seen = self._deletes_seen = self._changes_seen = 0

    def refresh(self) -> None:
        """Takes in what has joined the batch since the last look."""
        batch = self.batch
        if len(batch.deletes) > self._deletes_seen:
            for fragment, place, numbers in batch.deletes[self._deletes_seen :]:
                self.removed[place].update([row_key(fragment, number) for number in numbers])
            self._deletes_seen = len(batch.deletes)
        if len(batch.moves) > self._moves_seen:
            for move in batch.moves[self._moves_seen :]:
                self.removed[move.from_place].add(row_key(move.from_fragment, move.from_number))
            self._moves_seen = len(batch.moves)
        if len(batch.changes) > self._changes_seen:
            for change in batch.changes[self._changes_seen :]:
                self._change((change.place, row_key(change.fragment, change.number)), change)
            self._changes_seen = len(batch.changes)

    def _change(self, row: tuple[int, int], change: Change) -> None:
        """One that keeps the row's properties keeps those that a change before it has given to the row."""
        earlier = self.changed.get(row)
        if change.changes is None and earlier is not None and earlier.changes is not None:
            change = Change(
                change.fragment, change.place, change.number, change.delivery_count, earlier.changes
            )
        self.changed[row] = change

    def let_go(self) -> None:
        """The batch is durable: what it put is in the store now, and only what corrects reads stays here."""
        self.refresh()
        batch, kept = self.batch, CommitBatch()
        for row in batch.session_states:  # of each session the last one
            self._states[row[0], row[1]] = row
        kept.duplicate_ids.extend(batch.duplicate_ids)
        kept.duplicate_purges.extend(batch.duplicate_purges)
        kept.transfer_marks_removed.extend(batch.transfer_marks_removed)
        kept.fragments_dropped.extend(batch.fragments_dropped)
        self.batch = kept
        self._moves_seen = self._deletes_seen = self._changes_seen = 0

    def session_states(self) -> list[tuple[FragmentKey, str, bytes | None, int]]:
        """In order, as far as they concern one session."""
        return [*self._states.values(), *self.batch.session_states]

    def absorb(self, later: Shadow) -> None:
        """The next batch's, when both have let go and no read began between the two."""
        for place, removed in enumerate(later.removed):
            self.removed[place].update(removed)
        for row, change in later.changed.items():
            self._change(row, change)
        kept, added = self.batch, later.batch
        self._states.update(later._states)
        kept.duplicate_ids.extend(added.duplicate_ids)
        kept.duplicate_purges.extend(added.duplicate_purges)
        kept.transfer_marks_removed.extend(added.transfer_marks_removed)
        kept.fragments_dropped.extend(added.fragments_dropped)
        self.number = later.number


class Shadows:
    """Several batches' shadows as one, oldest first. Made for one read's correction and thrown away."""

    __slots__ = ("_shadows",)

    def __init__(self, shadows: Sequence[Shadow]) -> None:
        for shadow in shadows:
            shadow.refresh()
        self._shadows = shadows

    def is_dropped(self, fragment: FragmentKey) -> bool:
        return any(fragment in shadow.batch.fragments_dropped for shadow in self._shadows)

    def hides(self, fragment: FragmentKey, place: int, number: int) -> bool:
        key = row_key(fragment, number)
        return any(key in shadow.removed[place] for shadow in self._shadows)

    def hides_anywhere(self, fragment: FragmentKey, number: int) -> bool:
        """For entries that belong to a row whose place they do not name."""
        key = row_key(fragment, number)
        return self.is_dropped(fragment) or any(
            key in places for shadow in self._shadows for places in shadow.removed
        )

    def kept(self, fragment: FragmentKey, messages: list[Message]) -> list[Message]:
        """Those of the messages that no batch removes, with every batch's changes applied."""
        if self._leaves_alone(fragment, messages):
            return messages
        kept = []
        for message in messages:
            if self.hides(fragment, message.state, message.sequence_number):
                continue
            key = row_key(fragment, message.sequence_number)
            for shadow in self._shadows:
                change = shadow.changed.get((message.state, key))
                if change is not None:
                    message.delivery_count = change.delivery_count
                    if change.changes is not None:
                        message.changes = change.changes
            kept.append(message)
        return kept

    def _leaves_alone(self, fragment: FragmentKey, messages: list[Message]) -> bool:
        """The usual case, told by whole sets: readers are ahead of what is being settled."""
        if any(shadow.changed for shadow in self._shadows):
            return False
        touched = [removed for shadow in self._shadows for removed in shadow.removed if removed]
        if not touched:
            return True
        low = fragment << COUNTER_BITS
        keys = {low | message.sequence_number & COUNTER_MASK for message in messages}
        return all(removed.isdisjoint(keys) for removed in touched)

    def active_removed(self, fragment: FragmentKey) -> set[int]:
        """Numbers of the fragment's active rows that go, without the index in their upper bits."""
        return {
            key & COUNTER_MASK
            for shadow in self._shadows
            for key in shadow.removed[PLACE_ACTIVE]
            if key >> COUNTER_BITS == fragment
        }

    def session_states(self, fragment: FragmentKey) -> dict[str, tuple[bytes | None, int]]:
        """The latest joined state of each session that has one: (state, time)."""
        return {
            session_id: (state, set_at_ms)
            for shadow in self._shadows
            for key, session_id, state, set_at_ms in shadow.session_states()
            if key == fragment
        }

    def marks_removed(self) -> set[TransferMark]:
        """Transfer marks that go."""
        return {mark for shadow in self._shadows for mark in shadow.batch.transfer_marks_removed}

    def forgotten_before_ms(self, fragment: FragmentKey) -> int:
        """Duplicate ids accepted before this time are being forgotten."""
        return max(
            (
                before_ms
                for shadow in self._shadows
                for key, before_ms in shadow.batch.duplicate_purges
                if key == fragment
            ),
            default=0,
        )

    def joined_ids(self, fragment: FragmentKey) -> dict[str, int]:
        """Duplicate ids that joined: id → time of acceptance."""
        return {
            message_id: accepted_at_ms
            for shadow in self._shadows
            for key, message_id, accepted_at_ms in shadow.batch.duplicate_ids
            if key == fragment
        }


def row_key(fragment: FragmentKey, number: int) -> int:
    return fragment << COUNTER_BITS | number & COUNTER_MASK
