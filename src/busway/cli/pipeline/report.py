"""`busway pipeline report`."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from busway.cli.output import parse_duration_ms, parse_instant_ms, print_json
from busway.cli.pipeline.running import SparkOptions, require_spark
from busway.cli.verbs import JsonOption, WrongCall, verb

_HELP: Final = """Tell what the bus did, as a page with charts and as figures.

From captured data (busway pipeline capture) and from the operation journal (busway serve --journal DIR), or either:
throughput by entity and fragment, how evenly fragments are used, latency from enqueued to completed, lost locks and
deliveries, reasons of dead letters over time, duplicates, hot keys and sessions. What is remarkable stands on top.
It reads files alone and needs no server. DIR/report.html is one file that needs no network; DIR/figures has the
same as Parquet, DIR/figures.json as JSON."""


def register(family: typer.Typer) -> None:
    verb(
        family, "report", "busway pipeline report --journal journal --since PT24H --out report", about=_HELP
    )(report)


def report(
    captured: Annotated[
        str | None,
        typer.Option("--captured", metavar="DIR", help="Captured data: the folder above entity=…."),
    ] = None,
    journal: Annotated[
        str | None, typer.Option("--journal", metavar="DIR", help="The journal: the folder above date=….")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="2030-01-01T08:00Z, or PT24H for the last day."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Likewise; not included.")
    ] = None,
    entities: Annotated[
        list[str] | None,
        typer.Option("--entity", metavar="NAME", help="Only this and what is below it; repeatable."),
    ] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Count bytes of captured bodies too, which is slower.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the page and the figures go.")
    ] = Path("report"),
    *,
    spark: SparkOptions,
    as_json: JsonOption = False,
) -> None:
    """See `_HELP`."""
    if captured is None and journal is None:
        raise WrongCall("Nothing to report on: give --captured DIR or --journal DIR.")
    first, last = _instant(since, "--since"), _instant(until, "--until")
    require_spark()
    from busway_spark.pipeline.job import JobFailed, job_session
    from busway_spark.pipeline.report.report import ReportJob, run

    options = ReportJob(captured, journal, first, last, tuple(entities or ()), sizes, out)
    with spark.progress(as_json=as_json) as told:
        try:
            done = run(job_session("report", spark.master, spark.settings()), options, told)
        except JobFailed as error:
            if str(error).startswith("--"):
                raise WrongCall(str(error)) from error
            raise
    if as_json:
        print_json(done.as_json())
        return
    for sentence in done.remarkable:
        typer.echo(sentence)
    typer.echo(f"Report: {done.page}")


def _instant(text: str | None, option: str) -> datetime | None:
    """A duration means: that long ago."""
    if text is None:
        return None
    now_ms = round(time.time() * 1000)
    is_span = text[:1] in ("P", "p")
    at_ms = now_ms - parse_duration_ms(text, option) if is_span else parse_instant_ms(text, option, now_ms)
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise WrongCall(f"{option}: '{text}' is too far away.") from error
