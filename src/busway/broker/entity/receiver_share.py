"""A receiver of a partitioned entity as one of its fragments sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from busway.broker.fragment.receiver import Delivery, Receiver
from busway.model.errors import BrokerError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment


class ShareOwner(Protocol):
    """The group of fragments."""

    def shares_of(self, receiver: Receiver) -> list[ReceiverShare]: ...
    def is_fetching(self, receiver: Receiver) -> bool: ...
    def share_lost(self, share: ReceiverShare, error: BrokerError) -> None: ...


class ReceiverShare(Receiver):
    """Stands on a lane of its fragment in the receiver's place."""

    def __init__(
        self, owner: ShareOwner, member: Fragment, receiver: Receiver, *, holds_session: bool = False
    ) -> None:
        self._owner = owner
        self.member = member
        self.receiver = receiver
        self.deletes = receiver.deletes
        #: Without its fragment it has nothing to wait for.
        self.holds_session = holds_session

    def room(self) -> int:
        room = self.receiver.room()
        if not self.deletes:
            return room
        # What other fragments are deleting for it is not handed over yet, but will be.
        others = (share for share in self._owner.shares_of(self.receiver) if share is not self)
        return room - sum(share.promised() for share in others)

    def first_enqueued_ms(self) -> int:
        return self.member.lane.window.first_enqueued_ms()

    def take(self, limit: int) -> int:
        """Up to so many messages of its fragment that are in memory. How many it was."""
        return self.member.lane.offer(self, limit)

    def wake(self) -> None:
        """Unless it waits in line already, and there is nothing to hand out."""
        lane = self.member.lane
        if self.holds_session or self not in lane.waiting or not lane.window.is_drained():
            self.member.wake(self)

    def promised(self) -> int:
        return self.member.lane.promised.get(self, 0)

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        return self.receiver.deliver(deliveries)

    def caught_up(self) -> None:
        if not self._owner.is_fetching(self.receiver):
            self.receiver.caught_up()

    def evict(self, error: BrokerError) -> None:
        self._owner.share_lost(self, error)
