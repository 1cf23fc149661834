"""A link on which a client publishes events to a hub, to one of its partitions, or as a publisher (H-10…H-18).

Theory of operation. The engine reports runs of deliveries. A batch envelope is one publication: all or nothing, to
one partition. Single events that arrive together are put together: those without a key go to the next partition a
few at a time, so that a burst is spread and still stored in few writes; those with a key are sorted by partition,
in the order in which they came. Each part is answered when its fate is certain (`SenderEnd`).

A publication is one event or one batch envelope (H-10, H-17). A key in the envelope is the key of every event that
has none; the envelope itself is never stored. All events of a batch go to one partition, so they cannot have
different keys. A publication whose commit hangs is given up after a while without an outcome (`SendWatch`).

An idempotent producer numbers its events, and the log compares the numbers (H-18): its deliveries go one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.byte_writer import i64
from busway.amqp.decode import DecodeError, skip_value
from busway.amqp.performatives import TransactionalState
from busway.amqp.sections import BATCH_FORMAT, DATA, has_null_body, scan_in_order, section_at
from busway.gateway.amqp.links.send_link import MESSAGE_BYTES, SenderEnd, SendWatch
from busway.message.event_record import Event, event_in, event_of
from busway.model.errors import BadArgument, BrokerError, InvalidOperation, ServerBusy, StoreOutcomeUnknown
from busway.streams.event_hub import put_publisher
from busway.streams.key_hash import PartitionIndex

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery
    from busway.amqp.link import Link
    from busway.amqp.transfer_runs import ArrivedRun
    from busway.gateway.amqp.links.addresses import EventAddress, LinkNode
    from busway.gateway.amqp.links.link_host import LinkHost
    from busway.streams.event_hub import EventHub
    from busway.streams.partition_log import PartitionLog
    from busway.streams.producers import Producer

#: Single events without a key that go to one partition together.
KEYLESS_EVENTS_MAX: Final = 16
#: Single events of one run that are stored, and answered, together.
_RUN_EVENTS_MAX: Final = 512
_NO_PARTITION: Final = PartitionIndex(-1)


class PublishRun:
    """Deliveries that share one fate, waiting for it."""

    __slots__ = ("events", "ids", "owner", "size_bytes")

    def __init__(self, owner: EventSendLink) -> None:
        self.owner = owner
        #: Delivery ids, -1 where the client wants no outcome (S-3).
        self.ids: list[int] = []
        self.events: list[Event] = []
        self.size_bytes = 0

    def add(self, answer_id: int, size_bytes: int) -> None:
        self.ids.append(answer_id)
        self.size_bytes += size_bytes

    def done(self, error: BrokerError | None) -> None:
        self.owner.watch.ended(self)
        failures: list[tuple[int, BrokerError]] = []
        if error is not None:
            failures = [(index, error) for index in range(len(self.ids))]
        self.owner.run_ended(self.ids, self.size_bytes, failures)


class EventSendLink(SenderEnd):
    """The receiving end of a client's producer."""

    def __init__(
        self, host: LinkHost, link: Link, node: LinkNode, hub: EventHub, address: EventAddress, now: float
    ) -> None:
        super().__init__(host, link, node, hub.flow, now)
        self._hub = hub
        #: Where the link alone sends to; None: to the whole hub.
        self._partition = None if address.partition_id is None else hub.index_of(address.partition_id)
        self._publisher = address.publisher
        #: P-32: a publication that hangs may be stored, or not; another try may find another partition.
        self.watch = SendWatch(host, self._give_up)
        #: Of an idempotent producer, with the log that knows it.
        self._producer: Producer | None = None
        self._producer_log: PartitionLog | None = None
        link.takes_runs = True

    def produce_as(self, producer: Producer, log: PartitionLog) -> None:
        """H-18: from now on the log compares the numbers of this producer's events."""
        self._producer = producer
        self._producer_log = log

    # -- from the connection

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        self._credit -= len(deliveries)
        run = PublishRun(self)
        keyed: dict[PartitionIndex, PublishRun] = {}
        run_events_max = KEYLESS_EVENTS_MAX if self._partition is None else _RUN_EVENTS_MAX
        for delivery in deliveries:
            if delivery.message_format == BATCH_FORMAT or self._producer is not None:
                # What came before goes first: it may be for the same partition.
                run = self._send_gathered(run, keyed)
                self._publish_alone(delivery)
                continue
            partition = self._gather(delivery, run, keyed)
            if partition == _NO_PARTITION and len(run.ids) >= run_events_max:
                self._publish(run)
                run = PublishRun(self)
        self._send_gathered(run, keyed)
        self._top_up()

    def run_arrived(self, arrived: ArrivedRun) -> None:
        """The same for deliveries that are all usual: single events, outside of transactions."""
        if self._producer is not None or self._publisher is not None:
            self.deliveries_arrived([arrived.delivery(number) for number in range(arrived.count)])
            return
        self._credit -= arrived.count
        run = PublishRun(self)
        keyed: dict[PartitionIndex, PublishRun] = {}
        run_events_max = KEYLESS_EVENTS_MAX if self._partition is None else _RUN_EVENTS_MAX
        for number in range(arrived.count):
            partition = self._take(arrived, number, run, keyed)
            if partition == _NO_PARTITION and len(run.ids) >= run_events_max:
                self._publish(run)
                run = PublishRun(self)
        self._send_gathered(run, keyed)
        self._top_up()

    def gone(self) -> None:
        self._is_gone = True
        self._hub.detach(self)
        self.watch.stop()

    def _give_up(self) -> None:
        """P-31, S-1: nobody knows whether it is stored, so the link goes without an outcome."""
        self.evict(StoreOutcomeUnknown())

    def is_congested(self) -> bool:
        """The store of the link's own partition; of a hub, all of its stores: else there is one that takes more."""
        if self._partition is None:
            return all(log.store.is_congested() for log in self._hub.logs())
        try:
            return self._hub.partition_at(self._partition).store.is_congested()
        except BrokerError:
            return False  # every run is refused, and each refusal comes back here

    # -- single events

    def _take(
        self, arrived: ArrivedRun, number: int, run: PublishRun, keyed: dict[PartitionIndex, PublishRun]
    ) -> PartitionIndex:
        """As `_gather`, from where it lies; what is to be refused goes there."""
        limits = self.host.limits
        at, end = arrived.payload_at(number), arrived.payload_end(number)
        if end - at > limits.event_bytes_max:
            return self._gather(arrived.delivery(number), run, keyed)
        try:
            event = event_in(arrived.data, at, end)
            check_key(event.partition_key, limits.key_characters_max)
        except (DecodeError, BrokerError):
            return self._gather(arrived.delivery(number), run, keyed)
        return self._join(event, arrived.answer_id(number), end - at, run, keyed)

    def _gather(
        self, delivery: IncomingDelivery, run: PublishRun, keyed: dict[PartitionIndex, PublishRun]
    ) -> PartitionIndex:
        """The partition that an event's key chose; none when it has no key, or was refused."""
        try:
            event = self._event(delivery)
        except (DecodeError, BrokerError) as error:
            self.refuse(delivery, error)
            return _NO_PARTITION
        answer_id = -1 if delivery.settled else delivery.delivery_id
        return self._join(event, answer_id, len(delivery.payload), run, keyed)

    def _join(
        self,
        event: Event,
        answer_id: int,
        size_bytes: int,
        run: PublishRun,
        keyed: dict[PartitionIndex, PublishRun],
    ) -> PartitionIndex:
        key = event.partition_key
        partition = _NO_PARTITION
        if key is not None and self._partition is None:
            partition = self._hub.index_of_key(key)
            found = keyed.get(partition)
            if found is None:
                found = keyed[partition] = PublishRun(self)
            run = found
        run.events.append(event)
        run.add(answer_id, size_bytes)
        return partition

    def _event(self, delivery: IncomingDelivery) -> Event:
        _check_outside_transactions(delivery)
        self.check_size(delivery, self.host.limits.event_bytes_max)
        event = event_of(delivery.payload)
        check_key(event.partition_key, self.host.limits.key_characters_max)
        if self._publisher is not None:
            self._put_publisher([event], self._publisher)
        return event

    def _send_gathered(self, run: PublishRun, keyed: dict[PartitionIndex, PublishRun]) -> PublishRun:
        """Everything gathered goes; returns what gathers next."""
        if keyed:
            for partition, found in keyed.items():
                self._append(found, partition)
            keyed.clear()
        if not run.ids:
            return run
        self._publish(run)
        return PublishRun(self)

    # -- publications

    def _publish_alone(self, delivery: IncomingDelivery) -> None:
        """A batch, or what an idempotent producer sends."""
        run = PublishRun(self)
        run.add(-1 if delivery.settled else delivery.delivery_id, len(delivery.payload))
        try:
            if self.host.is_crowded():
                raise ServerBusy
            run.events = self._events(delivery)
            key = shared_key(run.events) if self._partition is None else None
        except (DecodeError, BrokerError) as error:
            self.refuse(delivery, error)
            return
        if key is not None:
            self._append(run, self._hub.index_of_key(key))
        elif self._producer is not None and self._partition is not None:
            self._produce(run, self._producer, self._partition)
        else:
            self._publish(run)

    def _events(self, delivery: IncomingDelivery) -> list[Event]:
        if delivery.message_format != BATCH_FORMAT:
            return [self._event(delivery)]
        _check_outside_transactions(delivery)
        self.check_size(delivery, self.host.limits.event_bytes_max)
        events = events_of_batch(delivery.payload)
        for event in events:
            check_key(event.partition_key, self.host.limits.key_characters_max)
        if self._publisher is not None:
            self._put_publisher(events, self._publisher)
        return events

    def _put_publisher(self, events: list[Event], publisher: str) -> None:
        self._hub.check_publisher(publisher)
        put_publisher(events, publisher)

    def _publish(self, run: PublishRun) -> None:
        """To the link's own partition, else to the next healthy one (H-11)."""
        if self._partition is not None:
            self._append(run, self._partition)
            return
        self._begin(run)
        self._hub.publish(run.events, run.done)

    def _append(self, run: PublishRun, partition: PartitionIndex) -> None:
        """To that partition or to none (H-10, H-12)."""
        self._begin(run)
        try:
            log = self._hub.partition_at(partition)
        except BrokerError as error:
            run.done(error)
            return
        log.append(run.events, run.done)

    def _produce(self, run: PublishRun, producer: Producer, partition: PartitionIndex) -> None:
        self._begin(run)
        try:
            log = self._hub.partition_at(partition)
        except BrokerError as error:
            run.done(error)
            return
        if log is self._producer_log:
            log.append_as(producer, run.events, run.done)
        else:
            # The partition's store was away: what the producer has had stored must be read again.
            run.done(StoreOutcomeUnknown("The partition was opened anew. Please attach again."))

    def _begin(self, run: PublishRun) -> None:
        self._unstored += len(run.ids)
        run.size_bytes += len(run.events) * MESSAGE_BYTES
        self.host.hold_input(run.size_bytes)
        self.watch.begun(run)


def _check_outside_transactions(delivery: IncomingDelivery) -> None:
    """H-1: hubs take no part in transactions."""
    if delivery.state is not None and isinstance(delivery.state, TransactionalState):
        raise InvalidOperation("An event hub takes no part in transactions.")


def events_of_batch(payload: bytes) -> list[Event]:
    """One or more. Raises DecodeError."""
    payload, found = scan_in_order(payload)
    if found.body_kind != DATA:
        raise DecodeError("A batch holds no data sections")
    if has_null_body(payload, found):
        raise DecodeError("A data section holds null, not bytes")
    events: list[Event] = []
    at: i64 = found.body_start
    end: i64 = found.body_end
    while at < end:
        _, value_at = section_at(payload, at, end)
        at = skip_value(payload, value_at, end)
        events.append(event_in(payload, value_at + (2 if payload[value_at] == 0xA0 else 5), at))
    if found.message_annotations_at >= 0:
        # What stands before the body is a message without one.
        key = event_of(payload[: found.message_annotations_end]).partition_key
        if key is not None:
            for event in events:
                if event.partition_key is None:
                    event.set_partition_key(key)
    return events


def shared_key(events: list[Event]) -> str | None:
    """The key of those events that have one. Raises InvalidOperation when they differ."""
    shared: str | None = None
    for event in events:
        key = event.partition_key
        if key is None or key == shared:
            continue
        if shared is not None:
            raise InvalidOperation(
                "The events of a batch go to one partition, so they cannot have different partition keys."
            )
        shared = key
    return shared


def check_key(key: str | None, characters_max: int) -> None:
    """Raises BadArgument."""
    if key is not None and len(key) > characters_max:
        raise BadArgument(
            f"PartitionKey is {len(key)} characters long; at most {characters_max} are allowed."
        )
