"""The node `$management` of the namespace: what an event hub and its partitions are like now (H-27).

It belongs to no entity, so each request brings a token of its own for the hub it asks about, `security_token`;
without one the tokens of the connection count. Any right on the hub will do. Whatever a client sends, there is an
answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.amqp.sections import AmqpMessage
from busway.amqp.types import Int, Long, Timestamp
from busway.gateway.amqp.links.addresses import path_of
from busway.gateway.amqp.nodes.management_request import symbol_or_text
from busway.gateway.amqp.nodes.node_response import DESCRIPTIONS, OK, refuse, respond, string_array
from busway.gateway.tracking import Tracking
from busway.message.dotnet_time import FIRST_INSTANT_MS
from busway.model.errors import (
    BadArgument,
    BrokerError,
    InternalError,
    NotImplementedByServer,
)

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace
    from busway.model.authorization import Grant
    from busway.streams.event_hub import EventHub
    from busway.streams.event_hubs import EventHubs

_log = logging.getLogger(__name__)
HUB_TYPE: Final = "com.microsoft:eventhub"
PARTITION_TYPE: Final = "com.microsoft:partition"
_READ: Final = "read"
#: Which copy in another region gave out a number: none did. Rust's client wants the field (H-26).
_NO_EPOCH: Final = -1


class EventManagementNode:
    def __init__(
        self,
        namespace: Namespace,
        hubs: EventHubs,
        grants: Callable[[str, AmqpMessage], list[Grant]],
        tracking: Tracking,
    ) -> None:
        self._namespace = namespace
        self._hubs = hubs
        #: What a request may at a path (`RequestRights.grants_for`).
        self._grants = grants
        self._tracking = tracking

    async def handle(self, request: AmqpMessage, _txn_id: bytes | None = None) -> AmqpMessage:
        """The answer to one request; whatever the request holds, there is one."""
        path = _hub_name(request)
        flow = self._namespace.flows.known(path)
        try:
            body = self._read(request)
        except BrokerError as error:
            flow.refused(error)
            return refuse(request, error, self._tracking, path or "$management")
        except Exception:
            _log.exception("A request on $management failed unexpectedly")
            flow.failed()
            return refuse(request, InternalError(), self._tracking, path or "$management")
        flow.answered(1, [])
        return respond(request, OK, DESCRIPTIONS[OK], None, body)

    def answers_at_length(self, _request: AmqpMessage) -> bool:
        return False

    def _read(self, request: AmqpMessage) -> dict[str, object]:
        properties = request.application_properties or {}
        operation = symbol_or_text(properties.get("operation"))
        if operation is None or operation.lower() != _READ:
            raise NotImplementedByServer("The node '$management' knows one operation: 'READ'.")
        kind = symbol_or_text(properties.get("type"))
        if kind not in (HUB_TYPE, PARTITION_TYPE):
            raise NotImplementedByServer(
                f"The node '$management' tells about the types '{HUB_TYPE}' and '{PARTITION_TYPE}'."
            )
        path = _hub_name(request)
        if path == "":
            raise BadArgument("The request lacks 'name', the name of the event hub.")
        self._namespace.authorizer.authorise_any(self._grants(path, request), path)
        hub = self._hubs.hub(path)
        if kind == HUB_TYPE:
            return hub_information(hub)
        partition_id = symbol_or_text(properties.get("partition"))
        if partition_id is None:
            raise BadArgument("The request lacks 'partition', the id of the partition.")
        return partition_information(hub, partition_id)


def hub_information(hub: EventHub) -> dict[str, object]:
    description = hub.description
    return {
        "name": description.path,
        "type": HUB_TYPE,
        "created_at": Timestamp(description.created_at_ms),
        "partition_count": Int(hub.partition_count),
        "partition_ids": string_array([str(index) for index in range(hub.partition_count)]),
        # Go's client wants it: copies in other regions, which there are none of.
        "georeplication_factor": Int(1),
    }


def partition_information(hub: EventHub, partition_id: str) -> dict[str, object]:
    """Raises ArgumentOutOfRange, ServerBusy."""
    info = hub.partition(partition_id).info()
    return {
        "name": hub.description.path,
        "type": PARTITION_TYPE,
        "partition": partition_id,
        "begin_sequence_number": Long(info.begin_number),
        "begin_sequence_number_epoch": Int(_NO_EPOCH),
        "last_enqueued_sequence_number": Long(info.last_number),
        "last_enqueued_sequence_number_epoch": Int(_NO_EPOCH),
        "last_enqueued_offset": info.last_offset,
        "last_enqueued_time_utc": Timestamp(FIRST_INSTANT_MS if info.last_number < 0 else info.last_at_ms),
        "is_partition_empty": info.is_empty,
    }


def _hub_name(request: AmqpMessage) -> str:
    name = symbol_or_text((request.application_properties or {}).get("name"))
    try:
        return "" if name is None else path_of(name)
    except BrokerError:
        return ""
