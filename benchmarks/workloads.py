"""What is compared: for each workload the entity it needs and what the load generator does to it.

A workload leaves its entity as it found it: what is sent is received again, in the same burst or in the one that
follows. What stays, ids of duplicates and events, stays on both servers alike; of the hub, every burst reads the same
first events. `bulk` is not the load generator's but `benchmarks.bulk_read`'s.

`send` and `receive` are two workloads of one group: the second burst takes what the first has brought.
"""

from __future__ import annotations

from dataclasses import dataclass

Json = dict[str, object]

SESSIONS = 20
_KEYS = 64
_BULK_TIMES = 10
_OTHERS = 6
_MEGABYTES = 5_120
_TOPIC_PROPERTIES = ("-P", "n=7", "-P", "region=eu")
_EVENTS = "hub/ConsumerGroups/$Default/Partitions/0"


@dataclass(frozen=True)
class Order:
    """One run of the load generator."""

    mode: str
    address: str
    #: Further words of its command line.
    options: tuple[str, ...] = ()
    #: Of the burst's messages.
    share: float = 1.0

    def messages(self, count: int) -> int:
        return round(count * self.share)


@dataclass(frozen=True)
class Burst:
    """What is measured as one: stages follow each other, the orders of a stage run at once."""

    workload: str
    stages: tuple[tuple[Order, ...], ...]


@dataclass(frozen=True)
class Group:
    """Bursts that belong together and leave everything as it was."""

    bursts: tuple[Burst, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(burst.workload for burst in self.bursts)


def _at_once(workload: str, queue: str, *options: str) -> Group:
    """Sender and receiver at the same time."""
    return Group((Burst(workload, ((Order("recv", queue), Order("send", queue, options)),)),))


def _sent_and_received() -> Group:
    send = Burst("send", ((Order("send", "plain", ("-x",)),),))
    return Group((send, Burst("receive", ((Order("recv", "plain"),),))))


def _sessions() -> Group:
    """Eight connections take one session after another, whichever has messages."""
    spread = ("-g", str(SESSIONS))
    send = Order("send", "sessions", spread)
    return Group((Burst("sessions", ((send,), (Order("recv", "sessions", (*spread, "-c", "8")),))),))


def _topic() -> Group:
    """Three of ten subscriptions want a message, by SQL filters and by a correlation filter; all ten have one."""
    publish = Order("send", "topic", ("-x", *_TOPIC_PROPERTIES))
    outlets = tuple(Order("recv", f"topic/Subscriptions/{name}") for name in ("sql", "anchor", "correlation"))
    return Group((Burst("topic", ((publish,), outlets)),))


def _hub() -> Group:
    """Events come in batches of a hundred; as many are read by AMQP, then in bulk."""
    batches = Order("send", "hub", ("-x", "-B", "100", "-w", "4000"))
    read = Order("recv", _EVENTS, ("-w", "4000"))
    bulk = Order("bulk", "hub", ("--times", str(_BULK_TIMES)))
    named = {"hub-batches": batches, "hub-read": read, "hub-bulk": bulk}
    return Group(tuple(Burst(name, ((order,),)) for name, order in named.items()))


def _single_events() -> Group:
    return Group((Burst("hub-single", ((Order("send", "singles", ("-x",)),),)),))


GROUPS = (
    _sent_and_received(),
    _at_once("both", "both", "-x"),
    _at_once("partitioned", "partitioned", "-k", str(_KEYS)),
    _sessions(),
    _at_once("duplicates", "duplicates", "-k", str(_KEYS)),
    _topic(),
    _hub(),
    _single_events(),
)
TITLES = {
    "send": "1 KiB messages into a queue, until each is accepted",
    "receive": "the same messages received and completed",
    "both": "sent and received at once",
    "partitioned": f"both, on a partitioned queue, {_KEYS} keys",
    "sessions": f"sent to {SESSIONS} sessions, then received session by session",
    "duplicates": "both, on a queue that detects duplicates, every id new",
    "topic": "published to a topic with 10 filtered subscriptions and taken from the 3 that match",
    "hub-batches": "events published in batches of 100",
    "hub-read": "as many events read by AMQP",
    "hub-bulk": f"as many events read in bulk, {_BULK_TIMES} times over",
    "hub-single": "events published one by one",
}


def entities() -> Json:
    """The configuration file that both servers start with."""
    namespace = {
        "Name": "busway",
        "Queues": [
            _queue("plain"),
            _queue("both"),
            _queue("partitioned", EnablePartitioning=True),
            _queue("sessions", RequiresSession=True),
            _queue("duplicates", RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT6H"),
        ],
        "Topics": [{"Name": "topic", "Properties": {"MaxSizeInMegabytes": _MEGABYTES}, **_subscriptions()}],
        "EventHubs": [{"Name": name, "PartitionCount": 1} for name in ("hub", "singles")],
    }
    return {"Format": "busway/1", "UserConfig": {"Namespaces": [namespace]}}


def _queue(name: str, **properties: object) -> Json:
    return {"Name": name, "Properties": {"MaxSizeInMegabytes": _MEGABYTES, **properties}}


def _subscriptions() -> Json:
    rules = {
        "sql": _sql("n >= 0 AND color <> 'x'"),
        "anchor": _sql("region = 'eu' AND n > 0"),
        "correlation": {
            "FilterType": "Correlation",
            "CorrelationFilter": {"Properties": {"region": "eu"}},
        },
        "sql-other": _sql("n > 7 OR color LIKE 'g%'"),
        **{f"anchor-other-{number}": _sql(f"region = 'r{number}' AND n > 0") for number in range(_OTHERS)},
    }
    return {
        "Subscriptions": [
            {"Name": name, "Rules": [{"Name": "rule", "Properties": rule}]} for name, rule in rules.items()
        ]
    }


def _sql(expression: str) -> Json:
    return {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
