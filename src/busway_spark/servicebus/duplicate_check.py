"""Whether what is written can arrive twice.

Spark repeats tasks and batches; our message ids are the same then, so an entity that detects duplicates keeps each
row once. One that does not gets rows at least once, and whoever writes to it should know. Asking needs the right
Manage and an HTTP door; without them nothing is said.
"""

import warnings
from functools import lru_cache
from pathlib import Path

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.errors import ClientError
from busway_spark.bus import BUSWAY, Bus
from busway_spark.servicebus.options import ServiceBusOptions


class AtLeastOnce(UserWarning):
    """Rows can arrive more than once; the text says where and what helps."""


def warn_if_rows_can_repeat(options: ServiceBusOptions) -> None:
    """When a writer is made: Spark shows the warnings of that process in the output of the driver."""
    if options.address is None or detects_duplicates(options) is not False:
        return
    sentence = (
        f"'{options.address}' does not detect duplicates: rows are sent at least once, and those of a task that Spark"
        " repeats are sent again. For exactly once make the entity with RequiresDuplicateDetection, and with a window"
        " longer than the longest pause between a crash and the next start."
    )
    warnings.warn(AtLeastOnce(sentence), stacklevel=2)


def detects_duplicates(options: ServiceBusOptions) -> bool | None:
    """None where nobody tells."""
    if options.address is None:
        return None
    return _ask(options.connection_text, options.ca_file, options.address)


@lru_cache(maxsize=64)
def _ask(connection_text: str, ca_file: str | None, address: str) -> bool | None:
    """Once in a process: Spark makes the writer of a stream anew for its batches."""
    bus = Bus(connection_text, ca_file)
    authority = None if bus.ca_file is None else Path(bus.ca_file)
    try:
        if not (bus.kind() == BUSWAY or bus.is_azure_host()):
            return None
        with ServiceBusAdministrationClient(bus.target, authority) as administration:
            entity = administration.get_queue_or_topic(address)
    except (ClientError, OSError, ValueError):
        return None
    found = entity.properties.get("RequiresDuplicateDetection")
    return found if isinstance(found, bool) else None
