"""Options of azure-event-hubs-spark that steer what there is none of here: threads, receivers, pools. Jobs that bring
them run unchanged; a value that could not have worked there is refused here too. How a user is told what each of them
means here is the second half of an entry, for the documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from busway_spark.given_options import seconds_of
from busway_spark.wire.connection_strings import ENTRA_REFUSED

#: A class of the JVM.
_CLASS: Final = re.compile(r"[\w$]+(\.[\w$]+)*")
_STRATEGIES: Final = ("hash", "balancedhash")

Check = Callable[[str], str | None]


def _is_duration(text: str) -> str | None:
    return "a duration like PT60S" if seconds_of(text) is None else None


def _is_flag(text: str) -> str | None:
    return None if text.lower() in ("true", "false") else "true or false"


def _is_class(text: str) -> str | None:
    return None if _CLASS.fullmatch(text) and len(text) <= 500 else "the name of a class"


def _is_strategy(text: str) -> str | None:
    return None if text.lower() in _STRATEGIES else "Hash or BalancedHash"


def _is_object(text: str) -> str | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return None if isinstance(found, dict) else "a JSON object"


def _from_to(least: int, most: int) -> Check:
    def check(text: str) -> str | None:
        is_whole = text.isascii() and text.isdigit() and len(text) <= 9
        return None if is_whole and least <= int(text) <= most else f"a whole number from {least} to {most}"

    return check


#: By name: the check, which tells what is expected instead, and what the option comes to here.
PORTED: Final[dict[str, tuple[Check, str]]] = {
    "prefetchCount": (_from_to(1, 4_000), "the bulk route fetches megabytes, AMQP grants its own credit"),
    "threadPoolSize": (_from_to(1, 100_000), "there is no pool: a task reads in its own process"),
    "useExclusiveReceiver": (_is_flag, "readers never push each other off, so queries may share a group"),
    "maxSilentTime": (_is_duration, "receiverTimeout tells when a silent partition fails a task"),
    "dynamicPartitionDiscovery": (_is_flag, "always: each micro-batch asks for the partitions"),
    "slowPartitionAdjustment": (_is_flag, "tasks are independent; minPartitions splits what is large"),
    "maxAcceptableBatchReceiveTime": (_is_duration, "belongs to slowPartitionAdjustment"),
    "throttlingStatusPlugin": (_is_class, "a StreamingQueryListener of Spark tells progress and lag"),
    "metricPlugin": (_is_class, "a StreamingQueryListener of Spark tells progress and lag"),
    "partitionPreferredLocationStrategy": (_is_strategy, "any executor may read any partition"),
    "maxRatePerPartition": (_from_to(1, 1 << 29), "of its DStreams; maxEventsPerTrigger limits streams"),
    "maxRatesPerPartition": (_is_object, "of its DStreams; maxEventsPerTrigger limits streams"),
    "useSimulatedClient": (_is_flag, "of its own tests"),
}
#: They would have to be used, and cannot be.
REFUSED: Final[dict[str, str]] = {
    name: ENTRA_REFUSED for name in ("useAadAuth", "aadAuthCallback", "aadAuthCallbackParams")
}


def is_switched_off(lower_name: str, value: str) -> bool:
    """A job may say that it does not want what is not there."""
    return lower_name == "useaadauth" and value.strip().lower() == "false"
