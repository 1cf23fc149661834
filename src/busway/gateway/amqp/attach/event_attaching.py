"""What happens when a client attaches a link to an event hub: a producer, or a reader of one partition.

`attaching` has checked the form of the address and the right. A reader's attach is answered when its position is
found, an idempotent producer's when its log knows it; both may need the store. Who is refused gets an attach without
either terminus before the detach, as the service does it.

An idempotent producer asks for it by a desired capability (H-18). It brings back the id, epoch and last number it
had, or some of them; the answer says which ones count from now on. They have the narrow AMQP types that clients look
for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.amqp.performatives import SENDER_SETTLED, Attach, Fields, Source
from busway.amqp.types import Char, Described, Int, Long, Short, Symbol, Timestamp, ULong
from busway.gateway.amqp.error_conditions import amqp_error
from busway.gateway.amqp.links.addresses import EventAddress, event_address, hub_path_of
from busway.gateway.amqp.links.event_receive_link import RUNTIME_METRIC, EventReceiveLink
from busway.gateway.amqp.links.event_send_link import EventSendLink
from busway.model.entity_path import EntityAddress, not_found, path_key
from busway.model.errors import (
    ArgumentOutOfRange,
    BadArgument,
    BrokerError,
    InvalidOperation,
    NotImplementedByServer,
)
from busway.streams.cursor import (
    START,
    Position,
    position_of_number,
    position_of_offset,
    position_of_time,
)

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.gateway.amqp.carrier import Carrier
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.streams.event_hub import EventHub
    from busway.streams.event_hubs import EventHubs
    from busway.streams.producers import Producer

_EPOCH: Final = Symbol("com.microsoft:epoch")
_RECEIVER_NAME: Final = Symbol("com.microsoft:receiver-name")
_NAME_CHARACTERS_MAX: Final = 64
_LONG_MAX: Final = (1 << 63) - 1
#: A publication that is too large by no more than this is refused alone, and its sender goes on at once.
_OVERSIZE_BYTES_MAX: Final = 1024 * 1024
IDEMPOTENT_PRODUCER: Final = Symbol("com.microsoft:idempotent-producer")
_PRODUCER_ID: Final = Symbol("com.microsoft:producer-id")
_PRODUCER_EPOCH: Final = Symbol("com.microsoft:producer-epoch")
_PRODUCER_SEQUENCE: Final = Symbol("com.microsoft:producer-sequence-number")
SELECTOR_FILTER: Final = Symbol("apache.org:selector-filter:string")
_SELECTOR_CODE: Final = 0x0000_468C_0000_0004
_CHARACTERS_MAX: Final = 256
_SELECTOR: Final = re.compile(
    r"\s*amqp\.annotation\.(x-opt-offset|x-opt-sequence-number|x-opt-enqueued-time(?:-utc)?)\s*(>=?)\s*'([^']*)'\s*",
    re.ASCII,
)
_READERS: Final[dict[str, Callable[[str, bool], Position]]] = {
    "x-opt-offset": position_of_offset,
    "x-opt-sequence-number": position_of_number,
    "x-opt-enqueued-time": position_of_time,
    "x-opt-enqueued-time-utc": position_of_time,
}


class EventAttaching:
    """Answers the attaches of one connection to event hubs."""

    def __init__(self, carrier: Carrier, hubs: EventHubs) -> None:
        self._carrier = carrier
        self._hubs = hubs

    def knows(self, path: str) -> bool:
        """Whether an address lies in a hub. What none can be may be a queue's that is older than the hub."""
        if not self._hubs.exists(hub_path_of(path)):
            return False
        if event_address(path) is not None:
            return True
        return not self._carrier.namespace.exists(EntityAddress.parse(path).path)

    def owner_key(self, path: str) -> str | None:
        """Of the hub that a link to this address is attached to, whatever else has the same address (A-2)."""
        hub_path = hub_path_of(path)
        is_ours = self._hubs.exists(hub_path) and event_address(path) is not None
        return path_key(hub_path) if is_ours else None

    def attach(self, link: Link, node: LinkNode) -> None:
        """Raises BrokerError for a refusal that is known at once."""
        address = event_address(node.path)
        if address is None:
            raise not_found(self._carrier.namespace.name, node.path)
        hub = self._hubs.hub(address.hub_path)
        if link.is_sender:
            self._attach_reader(link, node, hub, address)
        else:
            self._attach_producer(link, node, hub, address)

    def refuse(self, link: Link, path: str, error: BrokerError) -> None:
        carrier = self._carrier
        carrier.namespace.flows.known(hub_path_of(path)).refused(error)
        link.refuse(amqp_error(error, carrier.tracking, path), names_terminus=False)

    # -- producers

    def _attach_producer(self, link: Link, node: LinkNode, hub: EventHub, address: EventAddress) -> None:
        if address.group is not None:
            raise InvalidOperation(
                f"Nobody can send to '{node.path}': events are sent to a hub, a partition or a publisher of it."
            )
        if address.partition_id is not None:
            hub.partition(address.partition_id)
        if address.publisher is not None:
            hub.check_publisher(address.publisher)
        carrier = self._carrier
        sender = EventSendLink(carrier, link, node, hub, address, carrier.now())
        if desires(link.peer, IDEMPOTENT_PRODUCER):
            self._attach_idempotent(sender, hub, address)
        else:
            hub.attach(sender, sends=True)
            self._accept_producer(sender, hub, None)

    def _attach_idempotent(self, sender: EventSendLink, hub: EventHub, address: EventAddress) -> None:
        """H-18: accepted when the log knows which producer it is."""
        if address.partition_id is None:
            raise InvalidOperation(
                "An idempotent producer sends to one partition: its address is"
                f" '{address.hub_path}/Partitions/<id>'."
            )
        producer_claim(sender.link.properties)  # so that a bad one is refused at once
        hub.attach(sender, sends=True)
        self._carrier.spawn(self._find_producer(sender, hub, address.partition_id))

    async def _find_producer(self, sender: EventSendLink, hub: EventHub, partition_id: str) -> None:
        claim = producer_claim(sender.link.properties)
        is_accepted = False
        try:
            log = hub.partition(partition_id)
            producer = await log.producers.attach(claim.producer_id, claim.epoch, claim.sequence)
            if sender.link.is_live():  # else it went meanwhile
                sender.produce_as(producer, log)
                self._accept_producer(sender, hub, producer)
                is_accepted = True
        except BrokerError as error:
            self.refuse(sender.link, sender.node.path, error)
        finally:
            if not is_accepted:
                hub.detach(sender)
        self._carrier.output_waits()

    def _accept_producer(self, sender: EventSendLink, hub: EventHub, producer: Producer | None) -> None:
        link = sender.link
        self._carrier.add_link(sender)
        hub.flow.answered(1, [])
        publication_bytes_max = self._carrier.limits.event_bytes_max
        link.accept(
            source=link.source,
            target=link.target,
            max_message_size=publication_bytes_max,
            delivery_bytes_max=publication_bytes_max + _OVERSIZE_BYTES_MAX,
            offered_capabilities=None if producer is None else [IDEMPOTENT_PRODUCER],
            properties=None if producer is None else producer_answer(producer),
        )
        sender.start()

    # -- readers

    def _attach_reader(self, link: Link, node: LinkNode, hub: EventHub, address: EventAddress) -> None:
        group, partition_id = address.group, address.partition_id
        if group is None or partition_id is None:
            raise InvalidOperation(
                f"Nobody can receive from '{node.path}': events are read from"
                f" '{address.hub_path}/ConsumerGroups/<group>/Partitions/<id>'."
            )
        if not hub.has_group(group):
            raise not_found(self._carrier.namespace.name, f"{address.hub_path}/ConsumerGroups/{group}")
        log = hub.partition(partition_id)
        position = position_of(link.source)
        carrier = self._carrier
        reader = EventReceiveLink(carrier, link, node, hub, log, group, carrier.shared.clock, carrier.now())
        reader.epoch = _epoch(link.properties)
        reader.name = _name(link.properties)
        reader.tells_metric = desires(link.peer, RUNTIME_METRIC)
        hub.attach(reader, sends=False)
        carrier.spawn(self._find_position(reader, hub, position))

    async def _find_position(self, reader: EventReceiveLink, hub: EventHub, position: Position) -> None:
        link = reader.link
        has_begun = False
        try:
            from_number = await reader.log.start_number(position)
            if link.is_live():  # else it went meanwhile
                reader.begin(from_number)
                has_begun = True
                self._accept_reader(reader, hub)
        except BrokerError as error:
            self.refuse(link, reader.node.path, error)
        finally:
            if not has_begun:
                hub.detach(reader)
        self._carrier.output_waits()

    def _accept_reader(self, reader: EventReceiveLink, hub: EventHub) -> None:
        """H-21: settled, whatever the client asked for."""
        link = reader.link
        self._carrier.add_link(reader)
        hub.flow.answered(1, [])
        link.accept(
            source=link.source,
            target=link.target,
            snd_settle_mode=SENDER_SETTLED,
            max_message_size=self._carrier.limits.event_bytes_max,
            offered_capabilities=[RUNTIME_METRIC] if reader.tells_metric else None,
        )
        reader.credit_arrived()


def _epoch(properties: Fields | None) -> int:
    """H-24; -1 without one."""
    value: object = None if properties is None else properties.get(_EPOCH)
    if value is None:
        return -1
    if not isinstance(value, int) or isinstance(value, bool | Timestamp):
        raise BadArgument(f"The link property '{_EPOCH}' must be a long.")
    if not 0 <= value <= _LONG_MAX:
        raise ArgumentOutOfRange(f"The link property '{_EPOCH}' must be 0 or more; it is {value}.")
    return int(value)


def _name(properties: Fields | None) -> str:
    value: object = None if properties is None else properties.get(_RECEIVER_NAME)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadArgument(f"The link property '{_RECEIVER_NAME}' must be a string.")
    if len(value) > _NAME_CHARACTERS_MAX:
        raise ArgumentOutOfRange(f"A receiver's name has at most {_NAME_CHARACTERS_MAX} characters.")
    return str(value)


class ClaimedProducer:
    """What a client says it was; None where it says nothing."""

    __slots__ = ("epoch", "producer_id", "sequence")

    def __init__(self, producer_id: int | None, epoch: int | None, sequence: int | None) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence


def desires(attach: Attach | None, capability: str) -> bool:
    """Whether the peer's attach asks for a capability."""
    wanted = None if attach is None else attach.desired_capabilities
    return wanted is not None and capability in wanted


def producer_claim(properties: Fields | None) -> ClaimedProducer:
    """Whether the numbers make sense is for the log to say. Raises BadArgument for what is none."""
    given: Fields = {} if properties is None else properties
    return ClaimedProducer(
        _whole(given, _PRODUCER_ID), _whole(given, _PRODUCER_EPOCH), _whole(given, _PRODUCER_SEQUENCE)
    )


def producer_answer(producer: Producer) -> Fields:
    """The link properties of the answering attach."""
    return {
        _PRODUCER_ID: Long(producer.producer_id),
        _PRODUCER_EPOCH: Short(producer.epoch),
        _PRODUCER_SEQUENCE: Int(producer.last_sequence),
    }


def _whole(properties: Fields, name: Symbol) -> int | None:
    value: object = properties.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool | Timestamp):
        raise BadArgument(f"The link property '{name}' must be a whole number.")
    return int(value)


def position_of(source: Source | None) -> Position:
    """Raises BadArgument for a position that cannot be read, NotImplementedByServer for a filter that is not one."""
    filters = None if source is None else source.filter
    if not filters:
        return Position(START)
    selector: str | None = None
    for name, value in filters.items():
        if value is None:
            continue
        if not _is_selector(name, value):
            raise NotImplementedByServer(
                f"The filter '{str(name)[:80]}' is not supported: readers of an event hub can have one that says"
                f" where to begin, '{SELECTOR_FILTER}'."
            )
        selector = _text(value)
    return Position(START) if selector is None else position_in(selector)


def position_in(selector: str) -> Position:
    """The position that a selector names."""
    found = _SELECTOR.fullmatch(selector) if len(selector) <= _CHARACTERS_MAX else None
    if found is None:
        raise BadArgument(
            "The selector filter cannot be read. It compares one of x-opt-offset, x-opt-sequence-number and"
            " x-opt-enqueued-time: amqp.annotation.x-opt-offset > '42'."
        )
    name, comparison, value = found.groups()
    return _READERS[name](value, comparison == ">=")


def _is_selector(name: object, value: object) -> bool:
    """By the filter's key, or by what describes it: some clients use keys of their own."""
    if isinstance(value, Described):
        descriptor = value.descriptor
        return descriptor == SELECTOR_FILTER or (
            isinstance(descriptor, ULong) and descriptor == _SELECTOR_CODE
        )
    return name == SELECTOR_FILTER


def _text(value: object) -> str:
    if isinstance(value, Described):
        value = value.value
    if not isinstance(value, str) or isinstance(value, Symbol | Char):
        raise BadArgument("The selector filter must be a string.")
    return value
