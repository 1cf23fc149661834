"""What no event tells, looked at once a minute: last uses that no other write carries to the store, sizes, entities
that nobody uses, copies of the catalogue that are behind. And after each opening, entities that must be loaded: their
messages expire or move on by themselves."""

import asyncio
from collections.abc import Callable
from typing import Final

from busway.broker.namespace.auto_delete import LOOK_AROUND_EVERY_S
from busway.broker.namespace.contents import NamespaceContents
from busway.store.contract import CommitBatch, Counters, FragmentKey

#: Queues loaded in one go by background work, before others get their turn.
_SLICE_QUEUES: Final = 50


class Upkeep:
    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents

    def start(self) -> None:
        """The namespace is open."""
        self._look_around()
        self._contents.background.spawn(self.watch_heads())

    def _look_around(self) -> None:
        """The next time is set first: it comes whatever happens now."""
        contents = self._contents
        next_time = contents.clock.monotonic() + LOOK_AROUND_EVERY_S
        contents.runtime.timers.at(next_time, self._look_around)
        self.write_uses()
        contents.runtime.namespace_size.recount()
        contents.auto_delete.look_around()
        contents.copy_catalogue()

    def write_uses(self) -> None:
        """E-41: last uses that no other write has carried to the store."""
        contents = self._contents
        for _, entity in contents.entities.loaded():
            for fragment in [each for outlet in entity.outlets() for each in outlet.fragments()]:
                keeper = contents.keepers[fragment.store.name]
                if keeper.notice_access(fragment.key):
                    keeper.join(_counting(fragment.key, fragment.counters))

    async def watch_heads(self) -> None:
        """Entities whose messages expire at the head, or move on, are loaded, a slice at a time: their fragments
        then see to it (M-44, F-1)."""
        entities = self._contents.entities
        for index, key in enumerate(entities.counts.needing_care()):
            if index % _SLICE_QUEUES == _SLICE_QUEUES - 1:
                await asyncio.sleep(0)
            row = entities.rows.get(key)
            if row is not None:
                entities.load(row)


def _counting(key: FragmentKey, counters: Counters) -> Callable[[CommitBatch], None]:
    return lambda batch: batch.counters.update({key: counters})
