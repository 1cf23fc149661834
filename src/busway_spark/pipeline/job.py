"""What all jobs of the pipeline share: the bus they talk to and what its entities are, the session they run in, and
how they tell progress.

A job can be stopped at any moment and started again with the same options: what is done is not done twice, and what
was half done is done again or taken back. It asks `JobProgress.is_stopping` between steps and ends in good
order then.

Jobs reach stores of objects by Arrow, Spark itself by Hadoop's drivers: what they must be told, and how to get one
(`driver_sentence`). PySpark brings none; they are some hundred megabytes, and must be of Hadoop's own version.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from busway.client.atom_entries import QUEUE
from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Unreachable
from busway_spark.eventhubs.offsets import read_hub
from busway_spark.start.session import NoSession, spark_session
from busway_spark.watching.watch import watch_job
from busway_spark.wire.bus import Bus, administration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: As Hadoop says that there is none: by the scheme, or by the package of a driver that it knows by name.
_NO_DRIVER: Final = re.compile(
    r'No FileSystem for scheme:? "?(\w+)"?|Class org\.apache\.hadoop\.fs\.(s3a|azurebfs)\.\S+ not found'
)
_SCHEMES: Final = {"s3": "s3a", "azurebfs": "abfs"}
#: Under this name at Maven Central.
_DRIVERS: Final = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}


def driver_sentence(text: str) -> str | None:
    """How to get the driver that Spark says it lacks; None when it says something else."""
    found = _NO_DRIVER.search(text)
    if found is None:
        return None
    said = (found[1] or found[2]).lower()
    scheme = _SCHEMES.get(said, said)
    name = _DRIVERS.get(scheme)
    if name is None:
        return f"Spark has no driver for {scheme}://."
    return (
        f"Spark has no driver for {scheme}://. Say --conf"
        f" spark.jars.packages=org.apache.hadoop:{name}:{hadoop_version()} and it is fetched from Maven Central, or"
        " put the jars into the folder 'jars' of Spark."
    )


def hadoop_settings() -> dict[str, str]:
    """For Spark: where a store is that is not Amazon's own. Keys its driver finds in the environment by itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {}
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": os.environ.get("AWS_REGION", "us-east-1"),
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not endpoint.startswith("http://")).lower(),
    }


@cache
def _spark_jars() -> tuple[str, ...]:
    """Empty where there is no Spark here: then it is another machine's matter."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    return tuple(path.name for path in folder.glob("*.jar")) if folder is not None else ()


def hadoop_version() -> str:
    """Of the Hadoop that comes with Spark: a driver must be of the same."""
    start, end = "hadoop-client-api-", ".jar"
    found = [name[len(start) : -len(end)] for name in _spark_jars() if name.startswith(start)]
    return found[0] if found else "VERSION"


class JobFailed(Exception):
    """The job cannot go on; the text is a sentence for people and holds no secret."""


@dataclass(frozen=True)
class JobPlace:
    """Where a job runs and which bus it talks to."""

    bus: Bus
    #: Of Spark: `local[*]`, `spark://…`, `local-cluster[…]`, `yarn`, `k8s://…`.
    master: str = "local[*]"
    #: Settings of Spark; they win over ours.
    config: Mapping[str, str] = field(default_factory=dict)

    def session(self, job_name: str) -> SparkSession:
        """The session of this process, or a new one, whose streams the bus hears of. Raises JobFailed."""
        session = job_session(job_name, self.master, self.config)
        watch_job(session, self.bus, self.config)
        return session

    def eventhubs_options(self, hub: str) -> dict[str, str]:
        return self._with_authority(
            {"eventhubs.connectionString": self.bus.connection_string, "eventhubs.name": hub},
            "eventhubs.caFile",
        )

    def servicebus_options(self, **more: str) -> dict[str, str]:
        """`more`: `queue`, or `topic` and `subscription`, and whatever else the format knows."""
        return self._with_authority({"connectionString": self.bus.connection_string, **more}, "caFile")

    def _with_authority(self, options: dict[str, str], name: str) -> dict[str, str]:
        return options if self.bus.ca_file is None else {**options, name: self.bus.ca_file}


def job_session(job_name: str, master: str, config: Mapping[str, str]) -> SparkSession:
    """Raises JobFailed."""
    try:
        return spark_session(f"busway {job_name}", master=master, config={**hadoop_settings(), **config})
    except NoSession as error:
        raise JobFailed(str(error)) from error


@contextmanager
def failing(before: str = "") -> Iterator[None]:
    """Turns what Spark raises into JobFailed, with these words before it."""
    from busway_spark.watching.watched import SPARK_ERRORS, sentence_of

    try:
        yield
    except SPARK_ERRORS as error:
        raise JobFailed(before + sentence_of(error)) from error


class JobProgress:
    """Told by the job, shown by whoever runs it. `stop` may be called from a signal handler."""

    def __init__(self, tell: Callable[[str, Mapping[str, object]], None] | None = None) -> None:
        self._tell = tell
        self._stopping = Event()

    def tell(self, sentence: str, **figures: object) -> None:
        """A step is done: a sentence for people, and the same in figures for programs."""
        if self._tell is not None:
            self._tell(sentence, figures)

    def stop(self) -> None:
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        """True when somebody asked to stop meanwhile."""
        return self._stopping.wait(seconds)


HUB: Final = "hub"
QUEUE_KIND: Final = "queue"
TOPIC_KIND: Final = "topic"
SUBSCRIPTION_KIND: Final = "subscription"
_SUBSCRIPTIONS: Final = "/subscriptions/"


@dataclass(frozen=True)
class EntityFacts:
    name: str
    kind: str
    #: Of a hub; else 0.
    created_at_ms: int = 0
    partition_count: int = 0
    #: Of a queue or topic: whether a message that is sent twice is kept once.
    detects_duplicates: bool = False
    is_partitioned: bool = False


def find_entity(bus: Bus, name: str) -> EntityFacts:
    """Raises JobFailed when there is none, or the key may not know."""
    try:
        if _SUBSCRIPTIONS in name.lower():
            return _subscription(bus, name)
        return _hub(bus, name) or _queue_or_topic(bus, name)
    except EntityMissing:
        raise JobFailed(f"There is no hub, queue or topic '{name}'.") from None
    except ClientError as error:
        raise JobFailed(f"The server does not tell what '{name}' is: {error}") from error


def _hub(bus: Bus, name: str) -> EntityFacts | None:
    try:
        facts = read_hub(bus, name, ())
    except (Unreachable, NotAuthorised):
        raise
    except ClientError:
        return None
    return EntityFacts(name, HUB, facts.created_at_ms, facts.partition_count)


def _queue_or_topic(bus: Bus, name: str) -> EntityFacts:
    with administration(bus) as client:
        entry = client.get_queue_or_topic(name)
    return EntityFacts(
        name,
        QUEUE_KIND if entry.kind == QUEUE else TOPIC_KIND,
        detects_duplicates=_is_true(entry.properties.get("RequiresDuplicateDetection")),
        is_partitioned=_is_true(entry.properties.get("EnablePartitioning")),
    )


def _subscription(bus: Bus, name: str) -> EntityFacts:
    at = name.lower().index(_SUBSCRIPTIONS)
    with administration(bus) as client:
        client.get_subscription(name[:at], name[at + len(_SUBSCRIPTIONS) :])
    return EntityFacts(name, SUBSCRIPTION_KIND)


def _is_true(value: object) -> bool:
    return value is True or str(value).lower() == "true"
