"""Whether what is written can arrive twice: on services that cannot stage rows.

Spark repeats tasks and batches. There, rows that bring ids of their own are kept once by an entity that detects
duplicates; all others arrive at least once, and whoever writes them should know. Asking needs the right Manage and
an HTTP door; where nobody tells, the worse is said.
"""

from functools import lru_cache

from pyspark.sql.types import StructType

from busway.client.errors import ClientError
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.wire.bus import BUSWAY, Bus, administration
from busway_spark.writing.two_phase import say_loudly


def warn_if_rows_can_repeat(schema: StructType, options: ServiceBusOptions) -> None:
    """When a writer is made that sends its rows at once."""
    if "messageId" in schema.names and detects_duplicates(options):
        return
    target = "the entities that rows name" if options.address is None else f"'{options.address}'"
    say_loudly(
        f"Rows are sent to {target} at least once: this service cannot stage them as Busway does, and those of a task"
        " or a batch that Spark repeats are sent again. Each is kept once where the entity has"
        " RequiresDuplicateDetection, with a window longer than the longest pause between a crash and the next start,"
        " and each row brings a messageId made of where it comes from (such as partition and sequenceNumber)."
    )


def detects_duplicates(options: ServiceBusOptions) -> bool | None:
    """None where nobody tells."""
    if options.address is None:
        return None
    return _ask(options.bus, options.address)


@lru_cache(maxsize=64)
def _ask(bus: Bus, address: str) -> bool | None:
    """Once in a process: Spark makes the writer of a stream anew for its batches."""
    try:
        if not (bus.kind() == BUSWAY or bus.is_azure_host()):
            return None
        with administration(bus) as client:
            entity = client.get_queue_or_topic(address)
    except (ClientError, OSError, ValueError):
        return None
    found = entity.properties.get("RequiresDuplicateDetection")
    return found if isinstance(found, bool) else None
