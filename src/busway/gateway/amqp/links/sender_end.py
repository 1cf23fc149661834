"""The receiving end of a client's sender: credit and outcomes, whatever it sends to.

Theory of operation. Whoever derives from it hands runs of deliveries to an entity, which reports each part once,
when its fate is certain: all that were not refused are accepted as ranges of delivery ids, refused ones are rejected
singly, each with its reason (S-2). When the store cannot tell what happened the link is detached without an outcome,
and the client sends again (S-1).

Credit is the brake: it is topped up while less than half is left and what was sent before is nearly all stored.
Some clients send before any credit arrives; that is taken as well, and reading from the socket
pauses when too many bytes wait for the store.

Where a send may go to several stores, it waits for one of them only so long (P-32, `SendWatch`). A send that no
fragment has begun to store goes to another one at once; one whose commit hangs cannot, because nobody knows whether
it is stored (P-31). So that the client still has time for a second try, its link is dropped without an outcome, and
what it sends again goes to another store. One alarm watches all runs of a link: what it finds open at two looks in a
row has waited for too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from busway.amqp.decode import DecodeError
from busway.amqp.errors import AmqpError
from busway.amqp.performatives import ACCEPTED, Rejected
from busway.broker.fragment.outlet import Attachment
from busway.gateway.amqp.wire.error_conditions import amqp_error, undecodable
from busway.model.errors import BrokerError, MessageTooLarge, StoreOutcomeUnknown
from busway.model.flow import Flow

if TYPE_CHECKING:
    from busway.amqp.link import IncomingDelivery, Link, OutgoingDelivery
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.links.link_host import Alarm, LinkHost

CREDIT_MAX: Final = 1_000
_CREDIT_LOW: Final = CREDIT_MAX // 2
#: Messages handed to the store and not yet stored, above which no further credit is given.
_UNSTORED_HIGH: Final = 2 * CREDIT_MAX
_ID_MASK: Final = 0xFFFFFFFF
#: What a message weighs in memory beside its bytes, roughly, until it is stored.
MESSAGE_BYTES: Final = 512
#: Clients wait for more than this, 60 seconds by default.
ATTEMPT_S_MAX: Final = 15.0
_LOOK_S: Final = ATTEMPT_S_MAX / 2


@mypyc_attr(allow_interpreted_subclasses=True)
class SenderEnd(Attachment):
    def __init__(self, host: LinkHost, link: Link, node: LinkNode, flow: Flow, now: float) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right: str | None = "Send"
        self.used_at = now
        self._flow = flow
        self._is_gone = False
        #: Credit that the client still has, as far as we know; negative when it sends without.
        self._credit = 0
        #: Runs under way: messages not yet stored.
        self._unstored = 0

    def start(self) -> None:
        """After the attach was answered."""
        self._top_up()

    # -- from the connection

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        raise NotImplementedError

    def gone(self) -> None:
        raise NotImplementedError

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """A client has nothing to say about what it sent itself."""

    def credit_arrived(self) -> None:
        """Python's clients send a flow for their own sender; it changes nothing."""

    def room_grew(self) -> None: ...

    def is_idle(self) -> bool:
        """A sender that has credit may use it at any time (R-22)."""
        return self._credit <= 0 and self._unstored == 0

    # -- from the entity

    def evict(self, error: BrokerError) -> None:
        """The entity no longer takes messages (E-84), or is gone (E-86): the link is detached with the
        reason."""
        if not self._is_gone:
            self.host.end_link(self, amqp_error(error, self.host.tracking, self.node.path))

    # -- refusals

    def check_size(self, delivery: IncomingDelivery, bytes_max: int) -> None:
        """L-5, S-8, H-14: the whole transfer counts."""
        size = len(delivery.payload)
        if size > bytes_max:
            raise MessageTooLarge(
                f"The received message (delivery-id:{delivery.delivery_id}, size:{size} bytes) exceeds the limit"
                f" ({bytes_max} bytes) currently allowed on the link."
            )

    def refuse(self, delivery: IncomingDelivery, problem: DecodeError | BrokerError) -> None:
        if isinstance(problem, BrokerError):
            self._flow.refused(problem)
        else:
            self._flow.mistaken()
        if delivery.settled:
            return
        self._reject(delivery.delivery_id, problem)

    def _reject(self, delivery_id: int, problem: DecodeError | BrokerError) -> None:
        self.link.settle(delivery_id, delivery_id, Rejected(self._error_of(problem)))

    def _error_of(self, problem: DecodeError | BrokerError) -> AmqpError:
        if isinstance(problem, BrokerError):
            return amqp_error(problem, self.host.tracking, self.node.path)
        return undecodable(problem, self.host.tracking, self.node.path)

    # -- outcomes

    def run_ended(self, ids: list[int], size_bytes: int, failures: list[tuple[int, BrokerError]]) -> None:
        """The fate of a run is certain, or certainly unknown. -1 stands for a delivery that wants no outcome."""
        self.host.release_input(size_bytes)
        self._unstored -= len(ids)
        self._flow.answered(len(ids), failures)
        if self._is_gone:
            return
        unknown = next((error for _, error in failures if isinstance(error, StoreOutcomeUnknown)), None)
        if unknown is not None:
            self.host.end_link(self, amqp_error(unknown, self.host.tracking, self.node.path))
            return
        if failures:
            ids = self._reject_failed(ids, failures)
        self._accept(ids)
        self._top_up()
        self.host.output_waits()

    def _reject_failed(self, ids: list[int], failures: list[tuple[int, BrokerError]]) -> list[int]:
        """Rejects the refused ones and returns the others."""
        left = list(ids)
        for index, error in failures:
            if left[index] >= 0:
                self._reject(left[index], error)
                left[index] = -1
        return left

    def _accept(self, ids: list[int]) -> None:
        """One disposition for each unbroken range of ids."""
        first = -1
        last = -1
        for delivery_id in ids:
            if delivery_id < 0:
                continue
            if first >= 0 and delivery_id == (last + 1) & _ID_MASK:
                last = delivery_id
                continue
            if first >= 0:
                self.link.settle(first, last, ACCEPTED)
            first = last = delivery_id
        if first >= 0:
            self.link.settle(first, last, ACCEPTED)

    # -- credit

    def _top_up(self) -> None:
        if self._credit < _CREDIT_LOW and not self._is_gone and not self._is_behind():
            self._credit = CREDIT_MAX
            self.link.grant_credit(CREDIT_MAX)

    def _is_behind(self) -> bool:
        """The store does not keep up. Some run of ours is then under way, and its end tops the credit up."""
        if self._unstored == 0:
            return False
        return self._unstored >= _UNSTORED_HIGH or self.is_congested()

    def is_congested(self) -> bool:
        """More waits at the store of the entity than it should."""
        raise NotImplementedError


class SendWatch:
    """Of one link."""

    __slots__ = ("_alarm", "_host", "_open", "_overdue", "_seen")

    def __init__(self, host: LinkHost, overdue: Callable[[], None]) -> None:
        self._host = host
        self._overdue = overdue
        #: Runs that wait for their outcome.
        self._open: set[object] = set()
        #: Those of them that the last look has seen.
        self._seen: set[object] = set()
        self._alarm: Alarm | None = None

    def begun(self, run: object) -> None:
        self._open.add(run)
        if self._alarm is None:
            self._alarm = self._host.call_later(_LOOK_S, self._look)

    def ended(self, run: object) -> None:
        self._open.discard(run)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._open.clear()

    def _look(self) -> None:
        self._alarm = None
        if not self._seen.isdisjoint(self._open):
            self._overdue()
            return
        self._seen = set(self._open)
        if self._open:
            self._alarm = self._host.call_later(_LOOK_S, self._look)
