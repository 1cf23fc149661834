"""A link on which a client sends messages to a queue or a topic (S-1…S-20).

Theory of operation. The engine reports runs of deliveries; a run becomes messages and goes to the entity in one
call, cut only where a batch envelope (S-20) stands in between, so the order of arrival is the order of storage
(S-4). The entity reports each part once, when its fate is certain; a partitioned one reports store by store.

The envelope of a batch is never stored, and its message id is nobody's; but clients copy the keys of the first
message into it (S-26), and on a partitioned entity a key in it is the key of the batch, which every message must
have (S-23).

Credit and outcomes are the same whatever is sent to, a queue, a topic or an event hub (`SenderEnd`). Of a part
that is reported all that were not refused are accepted as ranges of delivery ids, refused ones are rejected
singly, each with its reason (S-2). When the store cannot tell what happened the link is detached without an
outcome, and the client sends again (S-1).

Credit is the brake: it is topped up while less than half is left and what was sent before is nearly all stored.
Some clients send before any credit arrives; that is taken as well, and reading from the socket pauses when too
many bytes wait for the store.

Where a send may go to several stores, it waits for one of them only so long (P-32, `SendWatch`). A send that no
fragment has begun to store goes to another one at once; one whose commit hangs cannot, because nobody knows
whether it is stored (P-31). So that the client still has time for a second try, its link is dropped without an
outcome, and what it sends again goes to another store. One alarm watches all runs of a link: what it finds open at
two looks in a row has waited for too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from busway.amqp.byte_writer import i64
from busway.amqp.decode import DecodeError
from busway.amqp.errors import AmqpError
from busway.amqp.performatives import ACCEPTED, Rejected, TransactionalState
from busway.amqp.sections import BATCH_FORMAT, split_batch
from busway.broker.fragment.outlet import Attachment
from busway.broker.namespace.namespace import SendVia, key_of
from busway.gateway.amqp.delivery_runs import UsualMessages
from busway.gateway.amqp.error_conditions import amqp_error, undecodable
from busway.gateway.amqp.message_mapping import message_of
from busway.message.bare import ensure_message_id
from busway.message.message import Message
from busway.model.errors import (
    BadArgument,
    BrokerError,
    EntityNotFound,
    InvalidOperation,
    MessageTooLarge,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.model.flow import FlowCounts
from busway.model.limits import Limits
from busway.model.settlement import SendReport

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
    from busway.amqp.link import Link
    from busway.amqp.transfer_runs import ArrivedRun
    from busway.broker.namespace.namespace import Queue, Topic
    from busway.broker.transaction.transactions import Transaction
    from busway.gateway.amqp.links.addresses import LinkNode, SessionUse
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
    """The receiving end of a client's sender: credit and outcomes, whatever it sends to."""

    def __init__(self, host: LinkHost, link: Link, node: LinkNode, flow: FlowCounts, now: float) -> None:
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


class SendRun(SendReport):
    """Deliveries handed to the entity in one call, waiting for their outcome."""

    __slots__ = ("ids", "left", "left_bytes", "messages", "owner", "size_bytes")

    def __init__(self, owner: SendLink) -> None:
        self.owner = owner
        #: Delivery id of each message, -1 where the client wants no outcome (S-3).
        self.ids: list[int] = []
        self.messages: list[Message] = []
        self.size_bytes = 0
        #: Of those that were handed over, without an outcome yet.
        self.left = 0
        self.left_bytes = 0

    def done(self, failures: list[tuple[int, BrokerError]]) -> None:
        if self.owner.watch is not None:
            self.owner.watch.ended(self)
        self.owner.run_ended(self.ids, self.size_bytes, failures)

    def part_done(self, places: list[int], failures: list[tuple[int, BrokerError]]) -> None:
        """A part of it has ended, and with it a share of the bytes: the last part's is what is left."""
        ids = self.ids
        if len(places) == len(ids):
            self.done(failures)
            return
        self.left -= len(places)
        if self.left == 0 and self.owner.watch is not None:
            self.owner.watch.ended(self)
        share_bytes = self.size_bytes * len(places) // len(ids) if self.left > 0 else self.left_bytes
        self.left_bytes -= share_bytes
        if failures:
            at = {place: index for index, place in enumerate(places)}
            failures = [(at[place], error) for place, error in failures]
        self.owner.run_ended([ids[place] for place in places], share_bytes, failures)


class BatchRun:
    """One batch envelope handed to the entity: all or nothing, one outcome."""

    __slots__ = ("delivery_id", "owner", "size_bytes")

    def __init__(self, owner: SendLink, delivery_id: int, size_bytes: int) -> None:
        self.owner = owner
        self.delivery_id = delivery_id
        self.size_bytes = size_bytes

    def done(self, failures: list[tuple[int, BrokerError]]) -> None:
        if self.owner.watch is not None:
            self.owner.watch.ended(self)
        only = [(0, failures[0][1])] if failures else []
        self.owner.run_ended([self.delivery_id], self.size_bytes, only)


class SendLink(SenderEnd):
    """The receiving end of a client's sender."""

    def __init__(
        self, host: LinkHost, link: Link, node: LinkNode, entity: Queue | Topic | SendVia, now: float
    ) -> None:
        super().__init__(host, link, node, entity.flow, now)
        self._entity = entity
        #: P-32: of a partitioned entity, where another try helps.
        self.watch = SendWatch(host, self._give_up) if entity.settings.is_partitioned else None
        link.takes_runs = not isinstance(entity, SendVia)  # its destination may be gone by any message
        #: TX-22: of a session that the first message may pin to this entity.
        self.session_use: SessionUse | None = None

    # -- from the connection

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        run = self._begin_run(len(deliveries))
        together: list[IncomingDelivery] = []
        for delivery in deliveries:
            if together and not _follows(delivery, together):
                self._transact(together)
                together = []
            if delivery.state is not None and isinstance(delivery.state, TransactionalState):
                together.append(delivery)
            elif delivery.message_format == BATCH_FORMAT:
                if run.messages:
                    self._send(run)
                    run = SendRun(self)
                self._send_batch(delivery)
            else:
                self._join(run, delivery)
        if together:
            self._transact(together)
        if run.messages:
            self._send(run)
        self._top_up()

    def run_arrived(self, arrived: ArrivedRun) -> None:
        """The same for deliveries that are all usual: single messages, outside of transactions."""
        run = self._begin_run(arrived.count)
        settings = self._entity.settings
        bytes_max: i64 = settings.message_bytes_max
        entropy = self.host.entropy
        usual = UsualMessages(arrived.data, settings.detects_duplicates, self.host.limits)
        for number in range(arrived.count):
            at, end = arrived.payload_at(number), arrived.payload_end(number)
            message = usual.message(at, end) if end - at <= bytes_max else None
            if message is None:
                self._join(run, arrived.delivery(number))
                continue
            ensure_message_id(message, entropy)
            run.messages.append(message)
            run.ids.append(arrived.answer_id(number))
            run.size_bytes += end - at
        if run.messages:
            self._send(run)
        self._top_up()

    def _begin_run(self, count: int) -> SendRun:
        self._credit -= count
        if self.session_use is not None:
            self.session_use.took_place_at(self.node.address.path)
            self.session_use = None
        return SendRun(self)

    def gone(self) -> None:
        self._is_gone = True
        self._entity.detach(self)
        if self.watch is not None:
            self.watch.stop()

    def _give_up(self) -> None:
        """P-31, S-1: nobody knows whether it is stored, so the link goes without an outcome."""
        self.evict(StoreOutcomeUnknown())

    def is_congested(self) -> bool:
        return self._entity.inlet.is_congested()

    # -- the way of a run

    def _join(self, run: SendRun, delivery: IncomingDelivery) -> None:
        try:
            message = self._message(delivery)
        except (DecodeError, BrokerError) as error:
            self.refuse(delivery, error)
            return
        run.messages.append(message)
        run.ids.append(-1 if delivery.settled else delivery.delivery_id)
        run.size_bytes += len(delivery.payload)

    def _message(self, delivery: IncomingDelivery) -> Message:
        settings = self._entity.settings
        self.check_size(delivery, settings.message_bytes_max)
        message = message_of(delivery.payload, settings.detects_duplicates, self.host.limits)
        ensure_message_id(message, self.host.entropy)
        return message

    def _send(self, run: SendRun) -> None:
        self._unstored += len(run.ids)
        run.size_bytes += len(run.ids) * MESSAGE_BYTES
        self.host.hold_input(run.size_bytes)
        if self.watch is not None:
            self.watch.begun(run)
        run.left, run.left_bytes = len(run.ids), run.size_bytes
        self._entity.send_in_parts(run.messages, run)

    def _send_batch(self, delivery: IncomingDelivery) -> None:
        try:
            if self.host.is_crowded():
                raise ServerBusy
            messages = self._batch(delivery)
        except (DecodeError, BrokerError) as error:
            self.refuse(delivery, error)
            return
        size_bytes = len(delivery.payload) + len(messages) * MESSAGE_BYTES
        run = BatchRun(self, -1 if delivery.settled else delivery.delivery_id, size_bytes)
        self._unstored += 1
        self.host.hold_input(run.size_bytes)
        if self.watch is not None:
            self.watch.begun(run)
        self._entity.send_atomically(messages, run.done)

    def _transact(self, deliveries: list[IncomingDelivery]) -> None:
        """TX-1: of one transaction, checked now, stored with the commit. A refusal is told bare and dooms the
        transaction: not every client looks at outcomes before it commits, and half of it must never be stored."""
        state = deliveries[0].state
        assert isinstance(state, TransactionalState)
        try:
            transaction = self.host.transactions.find(state.txn_id)
        except BrokerError as error:
            for delivery in deliveries:
                self.refuse(delivery, error)
            return
        entity = self._entity
        via_path = transaction.via_path(entity.inlet, self.link.session)
        if via_path is None and not isinstance(entity, SendVia) and len(deliveries) > 1:
            deliveries = self._send_together(transaction, deliveries, entity)
        for delivery in deliveries:
            if via_path is None or isinstance(entity, SendVia):
                self._send_in(transaction, delivery, entity)
            else:
                self._send_elsewhere(transaction, delivery, via_path)

    def _send_together(
        self, transaction: Transaction, deliveries: list[IncomingDelivery], entity: Queue | Topic
    ) -> list[IncomingDelivery]:
        """Takes them all, with one answer for all, or returns them: then each is tried and answered by itself."""
        try:
            transaction.send(entity.inlet, [self._message(delivery) for delivery in deliveries])
        except (DecodeError, BrokerError):
            return deliveries
        self._flow.answered(len(deliveries), [])
        outcome = TransactionalState(transaction.txn_id, ACCEPTED)
        self.link.settle(deliveries[0].delivery_id, deliveries[-1].delivery_id, outcome)
        return []

    def _send_elsewhere(self, transaction: Transaction, delivery: IncomingDelivery, via_path: str) -> None:
        """TX-22: to this entity by way of the one that the transaction takes place in."""
        try:
            via = self.host.send_via(via_path, self.node.address.path)
        except BrokerError as error:
            self._refuse_in(transaction, delivery, error)
            return
        if via is not None:
            self._send_in(transaction, delivery, via)
        else:
            transaction.hold()
            self.host.spawn(self._prepare_via(transaction, delivery, via_path))

    async def _prepare_via(self, transaction: Transaction, delivery: IncomingDelivery, via_path: str) -> None:
        """TX-22: the first message ever that is sent via that entity waits until it is prepared for it."""
        try:
            await self.host.prepare_to_send_via(via_path)
            via = self.host.send_via(via_path, self.node.address.path)
            if via is None:
                raise EntityNotFound
            self._send_in(transaction, delivery, via)
        except BrokerError as error:
            self._refuse_in(transaction, delivery, error)
        finally:
            transaction.unhold()
        self.host.output_waits()

    def _send_in(
        self, transaction: Transaction, delivery: IncomingDelivery, entity: Queue | Topic | SendVia
    ) -> None:
        is_batch = delivery.message_format == BATCH_FORMAT
        try:
            messages = self._batch(delivery) if is_batch else [self._message(delivery)]
            if isinstance(entity, SendVia):
                entity.send_in(transaction, messages)
            else:
                transaction.send(entity.inlet, messages)
        except (DecodeError, BrokerError) as error:
            self._refuse_in(transaction, delivery, error)
            return
        self._flow.answered(1, [])
        if not delivery.settled:
            outcome = TransactionalState(transaction.txn_id, ACCEPTED)
            self.link.settle(delivery.delivery_id, delivery.delivery_id, outcome)

    def _refuse_in(
        self, transaction: Transaction, delivery: IncomingDelivery, error: DecodeError | BrokerError
    ) -> None:
        transaction.doom(error if isinstance(error, BrokerError) else BadArgument(str(error)))
        self.refuse(delivery, error)

    def _batch(self, delivery: IncomingDelivery) -> list[Message]:
        """The inner messages; the envelope itself is never stored (S-26)."""
        settings = self._entity.settings
        self.check_size(delivery, settings.message_bytes_max)
        limits = self.host.limits
        usual = UsualMessages(b"", settings.detects_duplicates, limits)
        messages = [usual.of_payload(inner) for inner in split_batch(delivery.payload)]
        if not messages:
            raise BadArgument("The batch holds no message.")
        if settings.is_partitioned:
            check_envelope(delivery.payload, messages, limits)
        for message in messages:
            ensure_message_id(message, self.host.entropy)
        return messages


def _follows(delivery: IncomingDelivery, together: list[IncomingDelivery]) -> bool:
    """Whether a delivery can share the answer of those before it: single messages of one transaction, in a row."""
    state = delivery.state
    if (
        not isinstance(state, TransactionalState)
        or delivery.settled
        or delivery.message_format == BATCH_FORMAT
    ):
        return False
    last = together[-1]
    if last.settled or last.message_format == BATCH_FORMAT:
        return False
    if delivery.delivery_id != (last.delivery_id + 1) & _ID_MASK:
        return False
    return isinstance(last.state, TransactionalState) and last.state.txn_id == state.txn_id


def check_envelope(payload: bytes, messages: list[Message], limits: Limits) -> None:
    """Raises InvalidOperation when the envelope names another key than the first message has. That the others have
    the same as the first is seen to where the fragment is chosen."""
    key = key_of(message_of(payload, False, limits), False)
    if key is not None and key != key_of(messages[0], False):
        raise InvalidOperation(
            "The SessionId or PartitionKey of the batch is not the one of its messages: batching brokered messages"
            " with distinct keys is not supported for an entity with partitioning enabled."
        )
