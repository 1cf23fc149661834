"""A topic: a fragment that takes messages in, the rules of its subscriptions, and the links that hold it open.

Nobody receives from a topic (E-9). What it stores itself is only what waits for its time (S-30); everything else
becomes copies in its subscriptions in the same commit (`distribution`).
"""

from __future__ import annotations

from busway.broker.attachments import Attachments
from busway.broker.descriptions import TopicDescription
from busway.broker.distribution import Distribution
from busway.broker.errors import BrokerError, EntityDisabled
from busway.broker.fragment import Fragment
from busway.broker.fragment_settings import FragmentSettings
from busway.broker.queue import scheduled
from busway.broker.receiver import Attachment
from busway.broker.settlement import RunDone
from busway.message import Message


class Topic:
    """An entity of the namespace. `description` is frozen and replaced on update."""

    def __init__(
        self, path: str, description: TopicDescription, main: Fragment, distribution: Distribution
    ) -> None:
        self.path = path
        self.description = description
        self.main = main
        self.distribution = distribution
        main.intake = distribution
        self._attachments = Attachments()

    # -- sending

    def send(self, messages: list[Message], done: RunDone) -> None:
        """Publishes each message for itself, in order (S-4); refused ones are reported by index."""
        self.main.append(messages, done)

    def send_atomically(self, messages: list[Message], done: RunDone) -> None:
        """A batch: all or nothing (S-20); an error is reported for index 0."""
        self.main.append(messages, done, atomically=True)

    async def schedule(self, messages: list[Message]) -> list[int]:
        """The topic's own numbers (M-39): copies are made, and numbered, when the time has come."""
        return await scheduled(self.main, messages)

    async def cancel_scheduled(self, numbers: list[int]) -> None:
        """S-33: one missing number fails the whole request."""
        await self.main.cancel_scheduled(numbers)

    def fragments(self) -> tuple[Fragment, ...]:
        return (self.main,)

    # -- links

    def attach(self, attachment: Attachment, *, sends: bool) -> None:
        """Registers a link so that it is evicted when the topic changes under it (E-84, E-86)."""
        if sends and not self.main.settings.allows_send:
            raise EntityDisabled
        self._attachments.add(attachment, sends=sends)

    def detach(self, attachment: Attachment) -> None:
        self._attachments.discard(attachment)

    def failed(self, error: BrokerError) -> None:
        """The store failed, or the topic is gone: everybody is evicted."""
        self.main.failed(error)
        self._attachments.evict(error)

    # -- management

    def replace_description(self, description: TopicDescription, settings: FragmentSettings) -> None:
        """The topic was updated; senders that are no longer allowed are detached (E-84)."""
        self.description = description
        self.main.replace_settings(settings)
        self.distribution.prefilters = description.filtering_messages_before_publishing
        if not settings.allows_send:
            self._attachments.evict(EntityDisabled(), sends=True)
