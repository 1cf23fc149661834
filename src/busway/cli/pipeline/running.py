"""What the jobs on Spark share: options, the place they run in, progress on standard error, and how they stop."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.verbs import CommandFailed, OptionGroup, ServerOptions, WrongCall

if TYPE_CHECKING:
    from busway_spark.pipeline.job import JobPlace, JobProgress

ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]


@dataclass(frozen=True)
class SparkOptions(OptionGroup):
    """Where a job runs, and what it tells meanwhile."""

    master: Annotated[
        str,
        typer.Option(
            "--master",
            metavar="URL",
            envvar="BUSWAY_SPARK_MASTER",
            help="Where Spark runs: local[*] is this machine, spark://HOST:7077, yarn, k8s://… a cluster.",
        ),
    ] = "local[*]"
    conf: ConfOption = None
    quiet: QuietOption = False

    def place(self, server: ServerOptions) -> "JobPlace":
        """The bus and the cluster. Fails with a sentence where the extra is not installed."""
        require_spark()
        from busway_spark.pipeline.job import JobPlace
        from busway_spark.wire.bus import Bus

        target = server.find()
        bus = Bus(target.text, None if target.ca_file is None else str(target.ca_file))
        return JobPlace(bus, self.master, self.settings())

    def settings(self) -> dict[str, str]:
        return settings(self.conf)

    def progress(self, *, as_json: bool) -> AbstractContextManager["JobProgress"]:
        return progress(quiet=self.quiet, as_json=as_json)


def require_spark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise CommandFailed(
            "This needs Spark: install the extra busway[spark] (in a checkout: make setup-spark)."
        ) from error


def settings(conf: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in conf or []]
    for name, mark, _ in pairs:
        if not mark or not name:
            raise WrongCall(f"--conf {name}: write it as NAME=VALUE.")
    return {name: value for name, _, value in pairs}


@contextmanager
def progress(*, quiet: bool, as_json: bool = False) -> Iterator["JobProgress"]:
    """Sentences on standard error, or a JSON object for each step. The first SIGINT or SIGTERM asks the job to
    end in good order, the second ends it. A job that fails is a command that fails."""
    from busway_spark.pipeline.job import JobFailed, JobProgress

    told = JobProgress(None if quiet else _teller(as_json))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        del frame
        signal.signal(number, before[signal.Signals(number)])
        told.stop()

    for number in before:
        signal.signal(number, stop)
    try:
        yield told
    except JobFailed as error:
        raise CommandFailed(str(error)) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _teller(as_json: bool) -> Callable[[str, Mapping[str, object]], None]:
    def tell(sentence: str, figures: Mapping[str, object]) -> None:
        typer.echo(json.dumps({"step": sentence, **figures}, default=str) if as_json else sentence, err=True)

    return tell
