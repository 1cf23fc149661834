"""Which requests are about event hubs, and who answers them."""

from starlette.responses import Response

from busway.clock import Clock
from busway.gateway.http.bulk.admission import BulkAdmission
from busway.gateway.http.bulk.bulk_route import BulkRoute, is_bulk_path
from busway.gateway.http.call import Call, Handler
from busway.gateway.http.hubs.consumer_group_routes import GROUPS_KEYWORD, ConsumerGroupRoutes
from busway.gateway.http.hubs.hub_messages import HubMessages
from busway.gateway.http.hubs.hub_routes import HubRoutes
from busway.gateway.http.hubs.partitions_route import PARTITIONS_KEYWORD, PartitionsRoute
from busway.gateway.http.messages.message_address import MessageRoute, message_address
from busway.streams.event_hubs import EventHubs


class HubDoor:
    def __init__(self, hubs: EventHubs, clock: Clock, admission: BulkAdmission) -> None:
        self._hubs = hubs
        self._routes = HubRoutes(hubs)
        self._groups = ConsumerGroupRoutes(hubs, clock)
        self._messages = HubMessages(hubs, clock)
        self._bulk = BulkRoute(hubs, admission)
        self._partitions = PartitionsRoute(hubs)

    def close(self) -> None:
        """Whoever waits is answered."""
        self._partitions.close()

    def route(self, call: Call) -> Handler | None:
        """None when the request is about something else."""
        segments = call.segments
        if segments[0] == "$eventhubs":
            return self._routes.handle
        if not self._hubs.exists(segments[0]):
            return None
        if is_bulk_path(segments):
            return self._bulk.handle
        if len(segments) == 2 and segments[1] == PARTITIONS_KEYWORD and call.method in ("GET", "HEAD"):
            # As below.
            return None if self._hubs.namespace.exists(call.path) else self._partitions.handle
        if len(segments) in (2, 3) and segments[1] == GROUPS_KEYWORD:
            # Earlier versions let a queue have such a name.
            return None if self._hubs.namespace.exists(call.path) else self._groups.handle
        address = message_address(call.method, call.request.scope["raw_path"])
        if address is None or address.route is not MessageRoute.SEND:
            return None
        return self._publish if self._messages.is_meant(address.entity) else None

    async def _publish(self, call: Call) -> Response:
        return await self._messages.publish(call, call.path.rpartition("/")[0])
