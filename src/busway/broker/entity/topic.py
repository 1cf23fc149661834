"""A topic: what takes messages in, the rules of its subscriptions, and the links that hold it open.

Nobody receives from a topic (E-9). What it stores itself is only what waits for its time (S-30); everything else
becomes copies in its subscriptions in the same commit (`distribution`).
"""

from __future__ import annotations

from busway.broker.entity.distribution import Distribution
from busway.broker.entity.queue import Entity
from busway.broker.fragment.locks import Attachment
from busway.broker.fragment.outlet import Outlet
from busway.broker.fragment.settings import FragmentSettings
from busway.model.descriptions import TopicDescription
from busway.model.errors import BrokerError, EntityDisabled
from busway.rules.selection import Selection


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
