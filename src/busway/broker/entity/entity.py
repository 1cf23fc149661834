"""Entities: what clients send to and receive from, and the links that hold them open.

A `Queue`, which may be a subscription, is what its messages lie in, what its dead letters lie in, and its links.
Whether each of the two is one fragment or several, only the namespace knows (P-4). Nobody receives from a `Topic`
(E-9): what it stores itself is only what waits for its time (S-30); everything else becomes copies in its
subscriptions in the same commit (`distribution`). What both have is an `Entity`; `Attachments` are the links that
want to know when it changes under them (E-84, E-86).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from busway.broker.entity.distribution import Distribution
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.locks import Attachment
from busway.broker.fragment.outlet import Outlet
from busway.broker.fragment.settings import FragmentSettings
from busway.message.message import Message
from busway.model.descriptions import Receivable, RuntimeCounts, SubscriptionDescription, TopicDescription
from busway.model.errors import BrokerError, EntityDisabled, InvalidOperation
from busway.model.flow import FlowCounts
from busway.model.settlement import RunDone, SendReport
from busway.rules.selection import Selection
from busway.store.contract import Counters


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


class Entity:
    """What clients send to, and the links that hold it open: a queue, a subscription or a topic."""

    def __init__(self, path: str, main: Outlet) -> None:
        self.path = path
        #: Where messages go in; a dead-letter queue takes none by itself.
        self.inlet = main
        self._attachments = Attachments()

    @property
    def settings(self) -> FragmentSettings:
        return self.inlet.settings

    @property
    def flow(self) -> FlowCounts:
        return self.inlet.flow

    @property
    def main(self) -> Fragment:
        """The one fragment of a plain entity."""
        assert isinstance(self.inlet, Fragment), "it has several"
        return self.inlet

    # -- sending

    def send(self, messages: list[Message], done: RunDone) -> None:
        """Takes each message for itself, in order (S-4); refused ones are reported by index."""
        self.inlet.append(messages, done)

    def send_in_parts(self, messages: list[Message], report: SendReport) -> None:
        """The same for whoever can be told part by part."""
        self.inlet.append_in_parts(messages, report)

    def send_atomically(self, messages: list[Message], done: RunDone) -> None:
        """A batch: all or nothing (S-20); an error is reported for index 0."""
        self.inlet.append(messages, done, atomically=True)

    async def schedule(self, messages: list[Message]) -> list[int]:
        """S-30 b: all or nothing. The number of a duplicate, which is dropped (S-43), is 0. Those of a topic are its
        own (M-39): copies are made, and numbered, when the time has come."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(refused: list[tuple[int, BrokerError]]) -> None:
            if stored.done():  # the caller has gone
                return
            if refused:
                stored.set_exception(refused[0][1])
            else:
                stored.set_result(None)

        self.inlet.append(messages, done, atomically=True)
        await stored
        return [message.sequence_number for message in messages]

    async def cancel_scheduled(self, numbers: list[int]) -> None:
        """S-33: one missing number fails the whole request."""
        await self.inlet.cancel_scheduled(numbers)

    # -- links

    def detach(self, attachment: Attachment) -> None:
        self._attachments.discard(attachment)

    def hold(self, attachment: Attachment, released: Callable[[], None]) -> None:
        """It was made for this link, among others perhaps: see `Attachments`."""
        self._attachments.hold(attachment, released)

    def is_held(self) -> bool:
        return self._attachments.is_held()


class Queue(Entity):
    """What one receives from. `description` is frozen and replaced on update."""

    def __init__(self, path: str, description: Receivable, main: Outlet, dead_letter: Outlet) -> None:
        super().__init__(path, main)
        self.description = description
        self._dead_letters = dead_letter

    @property
    def dead_letter(self) -> Fragment:
        assert isinstance(self._dead_letters, Fragment), "it has several"
        return self._dead_letters

    # -- receiving

    def outlet(self, dead_letter: bool) -> Outlet:
        return self._dead_letters if dead_letter else self.inlet

    def outlets(self) -> tuple[Outlet, ...]:
        return self.inlet, self._dead_letters

    def is_received_from(self) -> bool:
        return any(outlet.receivers() for outlet in self.outlets())

    # -- links

    def attach(self, attachment: Attachment, *, sends: bool) -> None:
        """Registers a link so that it is evicted when the entity changes under it (E-84, E-86)."""
        if sends and isinstance(self.description, SubscriptionDescription):
            raise InvalidOperation(
                f"Nobody can send to the subscription '{self.path}': send to its topic"
                f" '{self.description.topic_path}' instead."
            )
        if not (self.settings.allows_send if sends else self.settings.allows_receive):
            raise EntityDisabled
        if not sends and self._attachments.is_ending():
            raise InvalidOperation(
                f"'{self.path}' is about to be deleted: those it was made for have gone, or unsubscribe."
            )
        self._attachments.add(attachment, sends=sends)

    def end_by(self, attachment: Attachment) -> None:
        """It is to be deleted for this one, which is detached when that has happened or failed: see `Attachments`."""
        self._attachments.end_by(attachment)

    def is_ending(self) -> bool:
        return self._attachments.is_ending()

    def is_ended_by(self, attachment: Attachment) -> bool:
        return self._attachments.is_ended_by(attachment)

    def evict(self, error: BrokerError) -> None:
        """The entity is gone or its store failed: every link is detached with this error, once."""
        self._evict_receivers(error)
        self._attachments.evict(error)

    def failed(self, error: BrokerError) -> None:
        """The store failed: all fragments drop their memory and everybody is evicted."""
        for outlet in self.outlets():
            self._attachments.discard_all(outlet.receivers())
        for outlet in self.outlets():
            outlet.failed(error)
        self._attachments.evict(error)

    def _evict_receivers(self, error: BrokerError) -> None:
        for outlet in self.outlets():
            self._attachments.discard_all(outlet.receivers())
            outlet.evict(error)

    # -- management

    def replace_description(
        self, description: Receivable, main: FragmentSettings, dead_letter: FragmentSettings
    ) -> None:
        """The entity was updated; links that are no longer allowed are detached (E-84)."""
        self.description = description
        self.inlet.replace_settings(main)
        self._dead_letters.replace_settings(dead_letter)
        if not main.allows_send:
            self._attachments.evict(EntityDisabled(), sends=True)
        if not main.allows_receive:
            self._evict_receivers(EntityDisabled())
            self._attachments.evict(EntityDisabled(), sends=False)

    def counts(self) -> RuntimeCounts:
        """From memory."""
        main, dead_letter = (
            total([fragment.counters for fragment in outlet.fragments()]) for outlet in self.outlets()
        )
        return runtime_counts(main, dead_letter)


class Topic(Entity):
    """What one only sends to: the intake of each of its fragments is a `Distribution`. `description` is frozen and
    replaced on update."""

    def __init__(self, path: str, description: TopicDescription, main: Outlet) -> None:
        super().__init__(path, main)
        self.description = description

    def outlets(self) -> tuple[Outlet, ...]:
        return (self.inlet,)

    # -- links

    def attach(self, attachment: Attachment, *, sends: bool) -> None:
        """Registers a link so that it is evicted when the topic changes under it (E-84, E-86)."""
        if sends and not self.settings.allows_send:
            raise EntityDisabled
        self._attachments.add(attachment, sends=sends)

    def failed(self, error: BrokerError) -> None:
        """The store failed, or the topic is gone: everybody is evicted."""
        self.inlet.failed(error)
        self._attachments.evict(error)

    # -- management

    def replace_description(self, description: TopicDescription, settings: FragmentSettings) -> None:
        """The topic was updated; senders that are no longer allowed are detached (E-84)."""
        self.description = description
        self.inlet.replace_settings(settings)
        for distribution in self._distributions():
            distribution.prefilters = description.filtering_messages_before_publishing
        if not settings.allows_send:
            self._attachments.evict(EntityDisabled(), sends=True)

    def replace_selection(self, selection: Selection) -> None:
        """The rules of all subscriptions were read anew; all fragments work by the same ones."""
        for distribution in self._distributions():
            distribution.selection = selection

    def _distributions(self) -> list[Distribution]:
        intakes = [fragment.intake for fragment in self.inlet.fragments()]
        return [intake for intake in intakes if isinstance(intake, Distribution)]


def total(parts: Iterable[Counters]) -> Counters:
    """E-103: sums over fragments, and the latest use."""
    found = Counters()
    for part in parts:
        found.active += part.active
        found.deferred += part.deferred
        found.scheduled += part.scheduled
        found.bytes += part.bytes
        found.accessed_at_ms = max(found.accessed_at_ms, part.accessed_at_ms)
    return found


def runtime_counts(main: Counters, dead_letter: Counters) -> RuntimeCounts:
    """The numbers of a queue out of those of its messages and of its dead letters (E-40, E-100…E-102)."""
    return RuntimeCounts(
        active=main.active,
        dead_letter=dead_letter.active + dead_letter.deferred,
        scheduled=main.scheduled,
        deferred=main.deferred,
        size_bytes=main.bytes + dead_letter.bytes,
        accessed_at_ms=max(main.accessed_at_ms, dead_letter.accessed_at_ms),
    )
