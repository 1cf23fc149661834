"""Sending to one entity by way of another (TX-3, TX-18, D-22).

Theory of operation. Beside the via entity lies a queue of its own, made when it is first needed and deleted with it:
its *transfer queue*, in the same stores, so that what is sent via the entity joins the same commit as what is settled
there. Nobody can attach to it (no address leads to its key), and nobody sees its messages in the via entity. A
forwarder moves them on like automatic forwarding, each to the destination that its head names. What cannot be moved
goes to the transfer queue's own dead-letter queue, which has an address: `V/$Transfer/$DeadLetterQueue`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Final

from busway.amqp.decode import decode_value
from busway.amqp.encode import append_value
from busway.amqp.types import Symbol
from busway.broker.forward.forwarding import Forwarder, ForwardRoute
from busway.broker.fragment.intake import fault_of
from busway.message.message import Head, Message, read_head
from busway.model.descriptions import Description, QueueDescription, SubscriptionDescription
from busway.model.entity_path import TRANSFER_KEYWORD
from busway.model.errors import BrokerError
from busway.model.settlement import RunDone, SendReport

if TYPE_CHECKING:
    from busway.broker.entity.entity import Queue, Topic
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.locks import Attachment
    from busway.broker.fragment.outlet import Outlet
    from busway.broker.fragment.settings import FragmentSettings
    from busway.broker.transaction.transactions import Transaction
    from busway.model.flow import FlowCounts
    from busway.model.limits import Limits

#: Keys of entities are in lower case; the capital keeps every address of a client from leading here.
_KEY_ENDING: Final = f"/{TRANSFER_KEYWORD}"
_DESTINATION: Final = Symbol("x-opt-transfer-destination")
_VIA_PARTITION_KEY: Final = Symbol("x-opt-via-partition-key")


def transfer_key(via_key: str) -> str:
    return via_key + _KEY_ENDING


def is_transfer_key(key: str) -> bool:
    return key.endswith(_KEY_ENDING)


def transfer_description(via: Description) -> QueueDescription:
    """As large as the via entity, and in as many fragments."""
    assert not isinstance(via, SubscriptionDescription), "what is sent via a subscription goes via its topic"
    return QueueDescription(
        via.path + _KEY_ENDING,
        max_size_in_megabytes=via.max_size_in_megabytes,
        max_message_size_in_kilobytes=via.max_message_size_in_kilobytes,
        enable_partitioning=via.enable_partitioning,
        fragment_count=via.fragment_count,
        created_at_ms=via.created_at_ms,
        updated_at_ms=via.updated_at_ms,
    )


# -- the destination, as the first delivery annotation


def address_to(message: Message, path: str) -> None:
    head = read_head(message.head)
    count, entries = head.delivery_annotations
    entry = bytearray()
    append_value(entry, _DESTINATION)
    append_value(entry, path)
    head.delivery_annotations = (count + 2, bytes(entry) + entries)
    message.head = head.encoded()


def take_destination(head: Head) -> str:
    """Takes it out of the head of a message that bears one."""
    count, entries = head.delivery_annotations
    _, at = decode_value(entries, 0, len(entries))
    path, at = decode_value(entries, at, len(entries))
    head.delivery_annotations = (count - 2, entries[at:])
    return str(path)


def via_partition_key(message: Message) -> str | None:
    """TX-18: the key that chooses the fragment of the via entity, if the sender gave one."""
    count, entries = read_head(message.head).message_annotations
    at = 0
    for _ in range(count // 2):
        name, at = decode_value(entries, at, len(entries))
        value, at = decode_value(entries, at, len(entries))
        if name == _VIA_PARTITION_KEY and isinstance(value, str):
            return str(value)
    return None


class SendVia:
    """What a sender to an entity by way of another sends to. It offers what a queue or topic offers to senders."""

    def __init__(
        self,
        via: Queue | Topic,
        transfers: Queue,
        destination_path: str,
        destination: Callable[[], Queue | Topic],
        limits: Limits,
    ) -> None:
        self._via = via
        self._transfers = transfers
        self._destination_path = destination_path
        #: Raises EntityNotFound when it is gone (D-22).
        self._destination = destination
        self._limits = limits

    @property
    def settings(self) -> FragmentSettings:
        """Messages must be fit for where they go."""
        return self._destination().settings

    @property
    def flow(self) -> FlowCounts:
        return self._via.flow

    @property
    def inlet(self) -> Outlet:
        return self._transfers.inlet

    def attach(self, attachment: Attachment, *, sends: bool) -> None:
        self._via.attach(attachment, sends=sends)

    def detach(self, attachment: Attachment) -> None:
        self._via.detach(attachment)

    def send(self, messages: list[Message], done: RunDone) -> None:
        """Outside a transaction: stored here, then moved on."""
        refused: list[tuple[int, BrokerError]] = []
        fit: list[Message] = []
        places: list[int] = []
        for place, message in enumerate(messages):
            try:
                self._prepare([message])
            except BrokerError as error:
                refused.append((place, error))
            else:
                fit.append(message)
                places.append(place)

        def stored(failed: list[tuple[int, BrokerError]]) -> None:
            done(sorted(refused + [(places[index], error) for index, error in failed], key=_place))

        if fit:
            self._transfers.send(fit, stored)
        else:
            done(refused)

    def send_in_parts(self, messages: list[Message], report: SendReport) -> None:
        """It ends in one."""
        self.send(messages, report.done)

    def send_atomically(self, messages: list[Message], done: RunDone) -> None:
        try:
            self._prepare(messages)
        except BrokerError as error:
            done([(0, error)])
            return
        self._transfers.send_atomically(messages, done)

    def send_in(self, transaction: Transaction, messages: list[Message]) -> None:
        """TX-3. Raises why they are refused."""
        via_key = via_partition_key(messages[0])
        self._prepare(messages)
        transaction.send_via(self._via.inlet, self._transfers.inlet, messages, via_key)

    def address(self, message: Message) -> None:
        """For whoever puts it into the transfer queue. Raises why it is not fit for where it goes."""
        self._prepare([message])

    def _prepare(self, messages: list[Message]) -> None:
        settings = self._destination().settings
        for message in messages:
            fault = fault_of(message, message.size(), settings, self._limits)
            if fault is not None:
                raise fault
        for message in messages:
            address_to(message, self._destination_path)


class TransferForwarder(Forwarder):
    """Of a transfer queue: each message goes where its head says."""

    __slots__ = ("_route_to",)

    def __init__(self, fragment: Fragment, route_to: Callable[[str], ForwardRoute]) -> None:
        super().__init__(fragment, route_to(""))
        self._route_to = route_to

    async def _send(self, rows: list[Message]) -> None:
        """In order for each destination; rows for one that follow one another travel together."""
        for path, some in groupby(rows, key=_destination_of):
            self._route = self._route_to(path)
            await super()._send(list(some))

    def _is_stuck(self) -> bool:
        """There may always be one for somebody else."""
        return False

    def _forwarded(self, row: Message, detects_duplicates: bool) -> Message:
        message = super()._forwarded(row, detects_duplicates)
        head = read_head(message.head)
        take_destination(head)
        message.head = head.encoded()
        return message


def _destination_of(row: Message) -> str:
    return take_destination(read_head(row.head))


def _place(failure: tuple[int, BrokerError]) -> int:
    return failure[0]
