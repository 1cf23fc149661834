"""What all jobs of the pipeline share: the bus they talk to, the session they run in, and how they tell progress.

A job can be stopped at any moment and started again with the same options: what is done is not done twice, and what
was half done is done again or taken back. It asks `Progress.is_stopping` between steps and ends in good order then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from busway_spark.pipeline.places.hadoop_driver import hadoop_settings
from busway_spark.start.session import NoSession, spark_session
from busway_spark.watching.watch import watch_job
from busway_spark.wire.bus import Bus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JobFailed(Exception):
    """The job cannot go on; the text is a sentence for people and holds no secret."""


@dataclass(frozen=True)
class Place:
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


class Progress:
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
