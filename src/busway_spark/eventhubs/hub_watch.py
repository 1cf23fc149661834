"""How far a hub is, for a stream that asks again and again.

Theory of operation. Spark asks a source without end, a hundred times a second where there is nothing new. So a
question about a hub of which nothing is new is put to the server with what is known, and the server waits for news
before it answers (`gateway.http.hubs.partitions_route`): one request a second on a connection that is kept. Servers
that cannot wait (Azure) are asked, and once more after as long a pause.

Spark asks the sources of a query one after the other, so each that waits holds up the others. Therefore only a
source of a query that did nothing since its last question waits: while others bring batches, `commit` comes between.
"""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

from busway.client.errors import Refused
from busway_spark.eventhubs.facts import HubFacts, PartitionFacts, read_hub
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.wire.bus import BUSWAY
from busway_spark.wire.http_client import HttpDoor


class HubWatch:
    """Of one stream, on the driver."""

    def __init__(self, options: EventHubsOptions) -> None:
        self._options = options
        self._door = HttpDoor(options.bus, options.hub, options.operation_s)
        self._target = "/" + "/".join(quote(part, safe="") for part in options.hub.split("/")) + "/partitions"

    def look(self) -> HubFacts:
        """As it is now. Raises ClientError."""
        if self._options.bus.kind(self._options.operation_s) != BUSWAY:
            return self._read()
        return self._facts(self._door.get(self._target))

    def wait(self, known: HubFacts) -> HubFacts:
        """As soon as something is new, or after a while. Raises ClientError."""
        wait_s = self._options.idle_wait_s
        if self._options.bus.kind(self._options.operation_s) == BUSWAY:
            numbers = ",".join(str(facts.next_number) for facts in known.partitions.values())
            return self._facts(
                self._door.get(f"{self._target}?known={numbers}&wait={wait_s:.3f}", wait_s=wait_s)
            )
        found = self._read()
        if found.partitions == known.partitions and found.created_at_ms == known.created_at_ms:
            time.sleep(wait_s)
            found = self._read()
        return found

    def _read(self) -> HubFacts:
        return read_hub(self._options.bus, self._options.hub, operation_s=self._options.operation_s)

    def _facts(self, text: bytes) -> HubFacts:
        try:
            told: dict[str, Any] = json.loads(text)
            partitions = {
                str(index): PartitionFacts(
                    str(index),
                    int(each["first"]),
                    int(each["next"]),
                    each["lastOffset"],
                    int(each["lastAtMs"]),
                )
                for index, each in enumerate(told["partitions"])
            }
            return HubFacts(self._options.hub, int(told["createdAtMs"]), len(partitions), partitions)
        except (ValueError, KeyError, TypeError):
            raise Refused("The server's answer about a hub cannot be read.") from None
