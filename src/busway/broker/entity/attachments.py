"""The links that hold an entity open and want to know when it changes under them (E-84, E-86)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from busway.broker.fragment.receiver import Attachment
from busway.model.errors import BrokerError


class Attachments:
    """Each link, and whether it sends. Some links *hold* an entity that was made for them: it is to go when the last
    of them has gone, unless it was the entity that turned them away. Others are there to *end* the entity: as long as
    one of them stands nobody new may receive, so that nobody receives from what goes."""

    def __init__(self) -> None:
        self._links: dict[Attachment, bool] = {}
        #: With what to call when none is left.
        self._holders: dict[Attachment, Callable[[], None]] = {}
        self._ending: dict[Attachment, None] = {}

    def add(self, link: Attachment, *, sends: bool) -> None:
        self._links[link] = sends

    def hold(self, link: Attachment, released: Callable[[], None]) -> None:
        """The link is attached already."""
        self._holders[link] = released

    def is_held(self) -> bool:
        return bool(self._holders)

    def end_by(self, link: Attachment) -> None:
        self._ending[link] = None

    def is_ending(self) -> bool:
        return bool(self._ending)

    def is_ended_by(self, link: Attachment) -> bool:
        """Since it said so, nobody has come to receive and the entity has turned nobody away."""
        return link in self._ending

    def discard(self, link: Attachment) -> None:
        self._links.pop(link, None)
        self._ending.pop(link, None)
        released = self._holders.pop(link, None)
        if released is not None and not self._holders:
            released()

    def discard_all(self, links: Iterable[Attachment]) -> None:
        for link in links:
            self._links.pop(link, None)
            self._holders.pop(link, None)

    def evict(self, error: BrokerError, *, sends: bool | None = None) -> None:
        """Every link with this error, once; with `sends` only senders, or only others."""
        evicted = [link for link, is_sender in self._links.items() if sends in (None, is_sender)]
        self.discard_all(evicted)
        if sends is None:
            evicted.extend(self._ending)
            self._ending.clear()
        for link in evicted:
            link.evict(error)
