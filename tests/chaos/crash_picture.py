"""Everything that a client of a namespace can see and that outlives a process, as a value that can be compared.

Which fragment takes a message without a key, and in which order several fragments move their rows on, is decided in
memory and may differ from life to life. A *loose* picture leaves out what follows from that, and nothing else:
numbers, times, sizes, and the order among messages that have no key.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from busway.broker.entity.entity import Queue
from busway.broker.forward.send_via import is_transfer_key
from busway.broker.fragment.locks import Receiver
from busway.broker.fragment.outlet import Outlet
from busway.broker.namespace.namespace import Namespace
from busway.message.message import Message
from busway.model.descriptions import SubscriptionDescription, TopicDescription, routes
from tests.store_contract.scenario import fields_of

_PEEK_MAX: Final = 250
_LOOSE_FIELDS: Final = (
    "state",
    "delivery_count",
    "session_id",
    "partition_key",
    "message_id",
    "changes",
    "bare",
)


@dataclass(frozen=True)
class Picture:
    shown: list[object]
    #: How often each body lies where.
    bodies: Counter[tuple[str, bytes]]

    def is_between(self, before: Picture, after: Picture) -> bool:
        """A step that consists of parts was cut off: some are done."""
        return before.bodies & after.bodies <= self.bodies <= before.bodies | after.bodies

    def holds(self, promised: set[bytes], gone: set[bytes]) -> bool:
        there = {body for _, body in self.bodies}
        return promised <= there and there.isdisjoint(gone)


async def picture_of(namespace: Namespace, taker: Receiver, *, loosely: bool) -> Picture:
    """`taker`: whoever holds a session for the time in which its state is read."""
    painter = _Painter(namespace, taker, loosely)
    painter.shown.append([replace(rule, modified_at_ms=0) for rule in namespace.access.rules()])
    for key in sorted(namespace.contents.entities.rows):
        await painter.add(key)
    painter.add_fragments()
    return Picture(painter.shown, painter.bodies)


class _Painter:
    def __init__(self, namespace: Namespace, taker: Receiver, loosely: bool) -> None:
        self._namespace = namespace
        self._taker = taker
        self._loosely = loosely
        self.shown: list[object] = []
        self.bodies: Counter[tuple[str, bytes]] = Counter()

    async def add(self, key: str) -> None:
        namespace = self._namespace
        row = namespace.contents.entities.rows[key]
        counts = replace(namespace.contents.entities.counts.of(row), accessed_at_ms=0)
        self.shown += [row.description, replace(counts, size_bytes=0) if self._loosely else counts]
        if isinstance(row.description, TopicDescription):
            return
        queue = namespace.contents.entities.queue(row)
        if isinstance(row.description, SubscriptionDescription):
            self.shown.append(namespace.rules.of(row.description.path))
        for dead_letter in (False, True):
            await self._add_messages(queue, dead_letter)
        if queue.settings.requires_session:
            self.shown.append(await self._states(queue.inlet))

    async def _add_messages(self, queue: Queue, dead_letter: bool) -> None:
        found = await queue.outlet(dead_letter).peek(1, _PEEK_MAX)
        assert len({each.sequence_number for each in found}) == len(found), "a number was given out twice"
        self.bodies.update((f"{queue.path} {dead_letter}", each.bare) for each in found)
        self.shown.append(_loose(found) if self._loosely else [fields_of(each) for each in found])

    async def _states(self, outlet: Outlet) -> dict[str, bytes | None]:
        """A state can be read only by whoever holds the session."""
        states: dict[str, bytes | None] = {}
        for session_id in await outlet.list_sessions(None, 0, 100):
            held = await outlet.accept_session(self._taker, session_id, 1.0)
            states[session_id] = await outlet.session_state(session_id)
            held.close()
        return states

    def add_fragments(self) -> None:
        """No store holds a fragment that belongs to nobody, and none is missing. In which store a plain entity lies
        depends on which were there when it was made."""
        namespace = self._namespace
        for name, keeper in namespace.contents.keepers.items():
            difference = namespace.contents.entities.index.keys_in(name) ^ keeper.counters.keys()
            self.shown.append((name, sorted(difference)))


def _loose(messages: list[Message]) -> dict[str | None, list[tuple[object, ...]]]:
    """By key, in order; those without one in any."""
    found: dict[str | None, list[tuple[object, ...]]] = {}
    for each in messages:
        fields = tuple(getattr(each, name) for name in _LOOSE_FIELDS)
        found.setdefault(each.session_id or each.partition_key, []).append(fields)
    if None in found:
        found[None].sort(key=repr)
    return found


def is_at_rest(namespace: Namespace) -> bool:
    """All stores are there, and nothing lies where it does not stay."""
    if any(row["state"] != "open" for row in namespace.stores.shown()):
        return False
    for row in namespace.contents.entities.rows.values():
        forward_to, forward_dead_letters_to = routes(row.description)
        for share in row.shares:
            counters = namespace.contents.keepers[share.store_name].counters
            if (forward_to is not None or is_transfer_key(row.key)) and counters[share.main].active:
                return False
            if forward_dead_letters_to is not None and counters[share.dead_letter].active:
                return False
    return True
