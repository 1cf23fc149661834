"""A topic: what takes messages in, the rules of its subscriptions, and the links that hold it open.

Nobody receives from a topic (E-9). What it stores itself is only what waits for its time (S-30); everything else
becomes copies in its subscriptions in the same commit (`distribution`).
"""

from __future__ import annotations

from collections.abc import Callable

from busway.broker.entity.distribution import Distribution
from busway.broker.entity.queue import Attachments, scheduled
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.locks import Attachment
from busway.broker.fragment.outlet import Outlet
from busway.broker.fragment.settings import FragmentSettings
from busway.message.message import Message
from busway.model.descriptions import TopicDescription
from busway.model.errors import BrokerError, EntityDisabled
from busway.model.flow import FlowCounts
from busway.model.settlement import RunDone, SendReport
from busway.rules.selection import Selection


class Topic:
    """An entity of the namespace. `description` is frozen and replaced on update."""

    def __init__(self, path: str, description: TopicDescription, main: Outlet) -> None:
        self.path = path
        self.description = description
        #: The intake of each of its fragments is a `Distribution`.
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
        """The one fragment of a plain topic."""
        assert isinstance(self.inlet, Fragment), "it has several"
        return self.inlet

    # -- sending

    def send(self, messages: list[Message], done: RunDone) -> None:
        """Publishes each message for itself, in order (S-4); refused ones are reported by index."""
        self.inlet.append(messages, done)

    def send_in_parts(self, messages: list[Message], report: SendReport) -> None:
        """The same for whoever can be told part by part."""
        self.inlet.append_in_parts(messages, report)

    def send_atomically(self, messages: list[Message], done: RunDone) -> None:
        """A batch: all or nothing (S-20); an error is reported for index 0."""
        self.inlet.append(messages, done, atomically=True)

    async def schedule(self, messages: list[Message]) -> list[int]:
        """The topic's own numbers (M-39): copies are made, and numbered, when the time has come."""
        return await scheduled(self.inlet, messages)

    async def cancel_scheduled(self, numbers: list[int]) -> None:
        """S-33: one missing number fails the whole request."""
        await self.inlet.cancel_scheduled(numbers)

    def outlets(self) -> tuple[Outlet, ...]:
        return (self.inlet,)

    # -- links

    def attach(self, attachment: Attachment, *, sends: bool) -> None:
        """Registers a link so that it is evicted when the topic changes under it (E-84, E-86)."""
        if sends and not self.settings.allows_send:
            raise EntityDisabled
        self._attachments.add(attachment, sends=sends)

    def detach(self, attachment: Attachment) -> None:
        self._attachments.discard(attachment)

    def hold(self, attachment: Attachment, released: Callable[[], None]) -> None:
        """It was made for this link, among others perhaps: see `Attachments`."""
        self._attachments.hold(attachment, released)

    def is_held(self) -> bool:
        return self._attachments.is_held()

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
