"""Every figure: the service's name for it (O-1), ours, and what it means; and the text that Prometheus reads.

The documentation's table is this one. `field` names the attribute of a `FlowCounts` or of `RuntimeCounts` that holds
the number; "" where it comes from elsewhere.

The text (exposition format 0.0.4) is written line by line. Hundreds of thousands of lines are asked for at a time,
and most of what a library does for each of them (an object, labels sorted, numbers dressed) is the same for all
lines of an entity. So an entity's labels are written once, and a line is three pieces put together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


@dataclass(frozen=True)
class Metric:
    """Every figure: the service's name for it (O-1), ours, and what it means. The documentation's table is this
    one."""

    service_name: str
    name: str
    kind: str
    meaning: str
    field: str = ""


#: Of an entity's flow; label `entity`. Only entities that were used have them.
FLOW_COUNTERS: Final = (
    Metric(
        "IncomingRequests",
        "busway_incoming_requests_total",
        COUNTER,
        "Requests that were answered: sends, settlements, attaches, management operations, HTTP.",
        "requests",
    ),
    Metric(
        "SuccessfulRequests",
        "busway_successful_requests_total",
        COUNTER,
        "Those that were done.",
        "successes",
    ),
    Metric(
        "UserErrors",
        "busway_user_errors_total",
        COUNTER,
        "Those that were refused because of the client, such as a lost lock.",
        "user_errors",
    ),
    Metric(
        "QuotaExceededErrors",
        "busway_quota_exceeded_errors_total",
        COUNTER,
        "Those of them that met a limit, such as a full entity.",
        "quota_errors",
    ),
    Metric(
        "ServerErrors",
        "busway_server_errors_total",
        COUNTER,
        "Those that failed because of the server.",
        "server_errors",
    ),
    Metric(
        "ThrottledRequests",
        "busway_throttled_requests_total",
        COUNTER,
        "Those that were told to come again later (server-busy).",
        "throttled",
    ),
    Metric(
        "IncomingMessages",
        "busway_incoming_messages_total",
        COUNTER,
        "Messages that arrived, duplicates and forwarded ones among them.",
        "messages_in",
    ),
    Metric(
        "OutgoingMessages",
        "busway_outgoing_messages_total",
        COUNTER,
        "Deliveries to receivers; neither forwarding nor dead-lettering counts.",
        "messages_out",
    ),
    Metric(
        "IncomingBytes", "busway_incoming_bytes_total", COUNTER, "Bytes of messages that arrived.", "bytes_in"
    ),
    Metric("OutgoingBytes", "busway_outgoing_bytes_total", COUNTER, "Bytes of deliveries.", "bytes_out"),
    Metric(
        "CompleteMessage",
        "busway_completed_messages_total",
        COUNTER,
        "Messages that receivers completed.",
        "completed",
    ),
    Metric(
        "AbandonMessage",
        "busway_abandoned_messages_total",
        COUNTER,
        "Messages that receivers abandoned.",
        "abandoned",
    ),
)
SEND_LATENCY: Final = Metric(
    "ServerSendLatency",
    "busway_server_send_latency_seconds",
    HISTOGRAM,
    "From the admission of a sent message until it is durable.",
)
#: Of every entity; label `entity`.
COUNT_GAUGES: Final = (
    Metric(
        "ActiveMessages",
        "busway_active_messages",
        GAUGE,
        "Messages ready to be received, locked ones among them.",
        "active",
    ),
    Metric(
        "DeadletteredMessages",
        "busway_deadlettered_messages",
        GAUGE,
        "Messages in the dead-letter queue.",
        "dead_letter",
    ),
    Metric(
        "ScheduledMessages",
        "busway_scheduled_messages",
        GAUGE,
        "Messages that wait for their time.",
        "scheduled",
    ),
    Metric(
        "Messages",
        "busway_messages",
        GAUGE,
        "Messages in all states, deferred and dead-lettered ones among them.",
        "total",
    ),
    Metric(
        "Size",
        "busway_size_bytes",
        GAUGE,
        "Bytes of all messages, dead-lettered ones among them.",
        "size_bytes",
    ),
)
#: Of the namespace; no label.
ACTIVE_CONNECTIONS: Final = Metric(
    "ActiveConnections",
    "busway_active_connections",
    GAUGE,
    "AMQP connections with a valid token or key.",
)
CONNECTIONS_OPENED: Final = Metric(
    "ConnectionsOpened", "busway_connections_opened_total", COUNTER, "Such connections since the start."
)
CONNECTIONS_CLOSED: Final = Metric(
    "ConnectionsClosed", "busway_connections_closed_total", COUNTER, "Those of them that have ended."
)
CPU_SECONDS: Final = Metric(
    "NamespaceCpuUsage",
    "busway_cpu_seconds_total",
    COUNTER,
    "Processor time of the server; its rate is the usage of one core.",
)
MEMORY_BYTES: Final = Metric(
    "NamespaceMemoryUsage", "busway_memory_bytes", GAUGE, "Resident memory of the server."
)
#: Ours alone; labels `clock` (wall, cpu), and `above` (seconds).
LONGEST_TURN: Final = Metric(
    "",
    "busway_loop_longest_turn_seconds",
    GAUGE,
    "The longest time within the last minute or two for which the event loop served nobody, and the CPU time in it.",
)
LONG_TURNS: Final = Metric(
    "",
    "busway_loop_long_turns_total",
    COUNTER,
    "How often it served nobody for longer than `above` says, in seconds.",
)
#: Ours alone; no label.
HELD_BYTES: Final = Metric(
    "",
    "busway_connections_held_bytes",
    GAUGE,
    "Memory that connections make the server hold: what is not stored yet, not complete, or not taken by the client.",
)
#: Ours alone; label `state`.
STORES: Final = Metric("", "busway_stores", GAUGE, "Stores by state: open, failed, disabled.")

#: Ours alone; label `store`.
STORE_EPOCH: Final = Metric(
    "",
    "busway_store_epoch",
    GAUGE,
    "How often a store in PostgreSQL was opened, by whomever; it leaps where its database was put back.",
)
STORE_LOST_COMMITS: Final = Metric(
    "",
    "busway_store_lost_commits_total",
    COUNTER,
    "Commits that a store had reported and did not have when it was opened: it was damaged, or put back.",
)
#: Ours alone, of each PostgreSQL database; label `database`, the name of its stores.
COMMIT_RESENDS: Final = Metric(
    "",
    "busway_commit_resends_total",
    COUNTER,
    "Commits that were sent again after their answer was lost.",
)
POSTGRES_COMMITS: Final = Metric(
    "",
    "busway_postgres_commit_seconds",
    HISTOGRAM,
    "How long commits to a PostgreSQL database take, with all that is tried.",
)
POSTGRES_CLOCK_SKEW: Final = Metric(
    "",
    "busway_postgres_clock_skew_seconds",
    GAUGE,
    "How far the database's clock is ahead of the server's.",
)
POSTGRES_OLDEST: Final = Metric(
    "",
    "busway_postgres_oldest_transaction_seconds",
    GAUGE,
    "The age of the oldest transaction there that keeps vacuum from removing dead rows.",
)
#: Label `table`, too.
POSTGRES_DEAD_ROWS: Final = Metric(
    "",
    "busway_postgres_dead_rows",
    GAUGE,
    "Rows of a table that wait for vacuum, as the database estimates them.",
)
DATABASE_METRICS: Final = (
    COMMIT_RESENDS,
    POSTGRES_COMMITS,
    POSTGRES_CLOCK_SKEW,
    POSTGRES_OLDEST,
    POSTGRES_DEAD_ROWS,
)

#: Ours alone (O-8), of each fragment of a partitioned entity; labels `entity`, `fragment` and `store`. One whose
#: store is away has the first only.
FRAGMENT_UP: Final = Metric(
    "",
    "busway_fragment_up",
    GAUGE,
    "1 for a fragment of a partitioned entity whose store is in service, else 0.",
)
FRAGMENT_GAUGES: Final = (
    Metric(
        "",
        "busway_fragment_messages",
        GAUGE,
        "Messages of one fragment in all states, dead-lettered ones among them.",
        "total",
    ),
    Metric("", "busway_fragment_size_bytes", GAUGE, "Bytes of one fragment.", "size_bytes"),
)

#: O-6, of each partition of an event hub; labels `entity`, `partition` and `store`. One whose store is away has the
#: first only.
PARTITION_UP: Final = Metric(
    "", "busway_partition_up", GAUGE, "1 for a partition of an event hub whose store is in service, else 0."
)
PARTITION_GAUGES: Final = (
    Metric("", "busway_partition_events", GAUGE, "Events that one partition holds."),
    Metric("", "busway_partition_size_bytes", GAUGE, "Bytes of one partition."),
    Metric(
        "",
        "busway_partition_last_sequence_number",
        GAUGE,
        "The number of its last event; -1 before the first.",
    ),
)
#: Of each event hub that captures; label `entity`.
CAPTURE_METRICS: Final = (
    Metric("CapturedMessages", "busway_captured_messages_total", COUNTER, "Events written to capture files."),
    Metric("CapturedBytes", "busway_captured_bytes_total", COUNTER, "Bytes of capture files."),
    Metric(
        "",
        "busway_capture_failures_total",
        COUNTER,
        "Attempts to write a capture file that failed and are repeated.",
    ),
    Metric(
        "CaptureBacklog", "busway_capture_backlog_messages", GAUGE, "Events that no capture file has yet."
    ),
)

#: Of a server that keeps an operation journal; no label.
JOURNAL_METRICS: Final = (
    Metric(
        "", "busway_journal_rows_total", COUNTER, "Rows of the operation journal that are in finished files."
    ),
    Metric(
        "",
        "busway_journal_rows_left_out_total",
        COUNTER,
        "Rows that it left out: its writer was behind or dead, or its disk full.",
    ),
)

#: Of a server whose stores others may take; the last with the label `reason`.
STORES_OWNED: Final = Metric(
    "", "busway_store_owned", GAUGE, "Stores in PostgreSQL that are this node's; 0 on a standby."
)
LEASE_LEFT: Final = Metric(
    "",
    "busway_lease_left_seconds",
    GAUGE,
    "For how long they are certainly its own; at 0 nothing is handed out until the lease is renewed.",
)
STORE_MOVES: Final = Metric(
    "", "busway_store_moves_total", COUNTER, "Stores that came to this node or left it, by reason."
)

#: Of writes in two phases.
STAGING_METRICS: Final = (
    Metric("", "busway_staging_stages", GAUGE, "Stages that are neither published nor dropped."),
    Metric(
        "",
        "busway_staging_undecided_bytes",
        GAUGE,
        "Bytes of rows in batches that are staged and not committed.",
    ),
    Metric("", "busway_staging_decisions", GAUGE, "Writes whose last batch is remembered."),
    Metric(
        "", "busway_staging_waiting_logs", GAUGE, "Pieces of committed batches that are not published yet."
    ),
    Metric(
        "", "busway_staging_published_rows_total", COUNTER, "Rows of committed batches that were published."
    ),
    Metric(
        "",
        "busway_staging_dropped_rows_total",
        COUNTER,
        "Rows of committed batches that were dropped: their entity was deleted, or their bytes damaged.",
    ),
    Metric(
        "",
        "busway_staging_abandoned_rows_total",
        COUNTER,
        "Staged rows that were dropped because nobody committed them.",
    ),
)

#: Of each pipeline that reports itself; label `pipeline`.
PIPELINE_METRICS: Final = (
    Metric(
        "",
        "busway_pipeline_up",
        GAUGE,
        "1 for a pipeline that runs and reports; 0 for one that has stopped, failed or become silent.",
    ),
    Metric("", "busway_pipeline_last_report_age_seconds", GAUGE, "Since the last report of a pipeline."),
    Metric("", "busway_pipeline_rows_total", COUNTER, "Rows that a pipeline has read since it was started."),
    Metric("", "busway_pipeline_rows_per_second", GAUGE, "Rows per second in its last batch."),
    Metric("", "busway_pipeline_batch_seconds", GAUGE, "How long its last batch took."),
    Metric("", "busway_pipeline_failures_total", COUNTER, "How often it has failed since it is watched."),
)
#: Of each partition that a pipeline reads; labels `pipeline`, `entity`, `consumer_group` and `partition`, of which
#: the last two are empty for queues and subscriptions.
PIPELINE_LAG_METRICS: Final = (
    Metric(
        "",
        "busway_pipeline_lag_events",
        GAUGE,
        "Events of a partition, or messages of a queue or subscription, that a pipeline has not read yet.",
    ),
    Metric(
        "", "busway_pipeline_lag_bytes", GAUGE, "Their bytes, by the mean size of what the partition holds."
    ),
    Metric("", "busway_pipeline_lag_seconds", GAUGE, "How long the oldest of them has waited."),
)

NAMESPACE_METRICS: Final = (
    ACTIVE_CONNECTIONS,
    CONNECTIONS_OPENED,
    CONNECTIONS_CLOSED,
    CPU_SECONDS,
    MEMORY_BYTES,
)
METRICS: Final = (
    *FLOW_COUNTERS,
    SEND_LATENCY,
    *COUNT_GAUGES,
    *NAMESPACE_METRICS,
    LONGEST_TURN,
    LONG_TURNS,
    HELD_BYTES,
    STORES,
    STORE_EPOCH,
    STORE_LOST_COMMITS,
    *DATABASE_METRICS,
    FRAGMENT_UP,
    *FRAGMENT_GAUGES,
    PARTITION_UP,
    *PARTITION_GAUGES,
    *CAPTURE_METRICS,
    STORES_OWNED,
    LEASE_LEFT,
    STORE_MOVES,
    *JOURNAL_METRICS,
    *STAGING_METRICS,
    *PIPELINE_METRICS,
    *PIPELINE_LAG_METRICS,
)

#: Names of the service that stand for nothing here.
ABSENT: Final = {
    "PendingCheckpointOperationCount": "there are no checkpoints",
    "ReplicationLagDuration": "nothing is replicated",
    "ReplicationLagCount": "nothing is replicated",
    "CPUXNS": "the old name of NamespaceCpuUsage",
    "WSXNS": "the old name of NamespaceMemoryUsage",
}


class ExpositionText:
    """Family after family; the lines of one must stand together."""

    def __init__(self) -> None:
        self._families: list[bytes] = []

    def add(self, metric: Metric, samples: Iterable[tuple[str, float]]) -> None:
        """`samples`: labels as text, and the value."""
        name = metric.name
        lines = [f"{name}{labels} {float(value)!r}\n" for labels, value in samples]
        self._families.append((_head(metric) + "".join(lines)).encode())

    def add_histogram(
        self, metric: Metric, limits: Sequence[str], rows: Iterable[tuple[str, Sequence[int], float]]
    ) -> None:
        """`rows`: labels as text, how many fell into each step, and their sum."""
        name = metric.name
        lines: list[str] = []
        for labels, steps, total in rows:
            begin = f"{name}_bucket{labels[:-1]},le="
            count = 0
            for limit, count in zip(limits, accumulate(steps), strict=True):
                lines.append(f'{begin}"{limit}"}} {float(count)!r}\n')
            lines.append(f"{name}_count{labels} {float(count)!r}\n{name}_sum{labels} {float(total)!r}\n")
        self._families.append((_head(metric) + "".join(lines)).encode())

    def text(self) -> bytes:
        return b"".join(self._families)


def labels_text(names: Sequence[str], values: Sequence[str]) -> str:
    """The labels of a sample in braces; nothing where there are none."""
    if not names:
        return ""
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _head(metric: Metric) -> str:
    meaning = metric.meaning.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {meaning}\n# TYPE {metric.name} {metric.kind}\n"
