"""Moves between stores that a crash or a failed commit may have left half done.

Theory of operation. A message that moves to another store is written there together with a *mark* that names the
row it came from; then the row is deleted at its source; then the mark is removed. After a crash a mark without
its end says: this row has arrived already. So whenever a store is opened its marks are read, and rows they name
are deleted at their source instead of being moved again. The same is remembered in memory when only the source
fails to delete what has arrived. Inside one store no mark is needed: the copy and the
deletion are one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from busway.broker.fragment import Fragment
from busway.broker.journal import FORWARD, note_messages
from busway.broker.store_keeper import StoreKeeper
from busway.store.contract import PLACE_ACTIVE, FragmentKey, TransferMark

#: A fragment by the name of its store and its key.
Place = tuple[str, FragmentKey]


class Transfers:
    """Of one namespace."""

    def __init__(self, keeper_of: Callable[[str], StoreKeeper]) -> None:
        self._keeper_of = keeper_of
        #: Source → number → the store it has arrived in.
        self._arrived: dict[Place, dict[int, str]] = {}
        #: Sources with a run that waits for its destination.
        self._under_way: set[Place] = set()

    async def store_opened(self, keeper: StoreKeeper) -> None:
        """Reads the marks of a store that goes into service. Raises StoreError."""
        marks = await keeper.store.transfer_marks()
        for numbers in self._arrived.values():
            for number in [number for number, name in numbers.items() if name == keeper.name]:
                del numbers[number]
        for mark in marks:
            place = (mark.source_store, mark.source_fragment)
            self._arrived.setdefault(place, {})[mark.source_number] = keeper.name
        self._arrived = {place: numbers for place, numbers in self._arrived.items() if numbers}

    @contextmanager
    def moving(self, source: Fragment) -> Iterator[None]:
        """While a run waits for its destination. Should the source's store fail and come back meanwhile, nobody may
        send the same rows again before that run's fate is known."""
        place = (source.store.name, source.key)
        self._under_way.add(place)
        try:
            yield
        finally:
            self._under_way.discard(place)

    def is_under_way(self, source: Fragment) -> bool:
        return (source.store.name, source.key) in self._under_way

    def remember(self, place: Place, arrived: dict[int, str]) -> None:
        """The rows have arrived, but their source could not delete them: whoever opens it next must."""
        if arrived:
            self._arrived.setdefault(place, {}).update(arrived)

    def sources(self) -> list[Place]:
        """Fragments with rows that may have arrived elsewhere."""
        return list(self._arrived)

    def is_settled(self, source: Fragment) -> bool:
        return (source.store.name, source.key) not in self._arrived

    async def settle(self, source: Fragment) -> None:
        """Deletes rows that have arrived elsewhere, then removes their marks. Raises StoreError, ServerBusy."""
        place = (source.store.name, source.key)
        arrived = dict(
            self._arrived.get(place, {})
        )  # another store may be opened, and tell of more, while we read
        if not arrived:
            return
        page = await source.store.by_number(source.key, PLACE_ACTIVE, sorted(arrived))
        if page.messages:
            batch = source.batch()
            source.withdraw(page.messages)
            source.remove_rows(batch, page.messages)
            note_messages(source, batch, FORWARD, page.messages)
        await source.durable()
        self.forget(place, arrived)

    def forget(self, place: Place, arrived: dict[int, str]) -> None:
        """The rows are gone from their source, durably: the marks have done their work."""
        known = self._arrived.get(place)
        if known is not None:
            for number in arrived:
                known.pop(number, None)
            if not known:
                del self._arrived[place]
        by_store: dict[str, list[TransferMark]] = {}
        for number, name in arrived.items():
            by_store.setdefault(name, []).append(TransferMark(place[0], place[1], number))
        for name, marks in by_store.items():
            self._remove(name, marks)

    def _remove(self, store_name: str, marks: list[TransferMark]) -> None:
        # What cannot be removed now is found and removed when the store is opened next.
        self._keeper_of(store_name).join(lambda batch: batch.transfer_marks_removed.extend(marks))

    def source_is_gone(self, place: Place) -> None:
        """The entity was deleted: nobody will move its rows again."""
        arrived = self._arrived.get(place)
        if arrived:
            self.forget(place, dict(arrived))
