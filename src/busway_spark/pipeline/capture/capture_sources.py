"""What `capture` reads from: the formats "eventhubs" and "servicebus" under names of their own.

The job registers them by itself, as it does its sink, so that it can say how their processes are started
(`shared_python`). What Spark finds by itself cannot be registered once more under its name.
"""

from __future__ import annotations

from typing import Final

from busway_spark.eventhubs.source import EventHubsSource
from pyspark_servicebus import DefaultSource as ServiceBusSource

CAPTURED_HUB: Final = "busway-captured-hub"
CAPTURED_QUEUE: Final = "busway-captured-queue"


class CapturedHub(EventHubsSource):
    @classmethod
    def name(cls) -> str:
        return CAPTURED_HUB


class CapturedQueue(ServiceBusSource):
    """Also of topics, by their subscriptions."""

    @classmethod
    def name(cls) -> str:
        return CAPTURED_QUEUE
