"""`busway pipeline backfill`."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.output import parse_instant_ms, print_json
from busway.cli.pipeline.running import SparkOptions
from busway.cli.verbs import JsonOption, ServerOptions, verb

if TYPE_CHECKING:
    from busway_spark.pipeline.backfill.backfill import BackfillResult
    from busway_spark.pipeline.backfill.backfill_plan import BackfillOptions

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that was captured.")]
SubscriptionArgument = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Whose rules choose.")]
FromOption = Annotated[
    str, typer.Option("--from", metavar="DIR", help="Where captured files lie: a directory or a URI.")
]
ThroughOption = Annotated[
    str,
    typer.Option("--through", metavar="NAME", help="The subscription that the topic is captured through."),
]
IntoOption = Annotated[
    str | None,
    typer.Option(
        "--into", metavar="QUEUE", help="A queue that gets the history, instead of the subscription."
    ),
]
BeforeOption = Annotated[
    str | None,
    typer.Option(
        "--before",
        metavar="TIME",
        help="What was published before this moment (UTC), instead of before the rules began.",
    ),
]
PartialOption = Annotated[bool, typer.Option("--partial", help="Although some of the history is missing.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count and tell; send nothing.")]


def register(family: typer.Typer) -> None:
    verb(family, "backfill", "busway pipeline backfill orders audit --from lake --dry-run")(backfill)


def backfill(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    directory: FromOption,
    through: ThroughOption = "busway-capture",
    into: IntoOption = None,
    before: BeforeOption = None,
    partial: PartialOption = False,
    dry_run: DryRunOption = False,
    *,
    spark: SparkOptions,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Give a subscription its history: its rules run over what was captured before they began.

    Each message arrives once: the same call again sends what is left, and nothing twice.
    """
    before_us = _instant_us(before)
    there = spark.place(server)
    from busway_spark.pipeline.backfill.backfill import backfill as run
    from busway_spark.pipeline.backfill.backfill_plan import BackfillOptions

    options = BackfillOptions(
        directory, topic.strip("/"), subscription, through, into, before_us, partial=partial, dry_run=dry_run
    )
    with spark.progress(as_json=as_json) as told:
        result = run(there, options, told)
    if as_json:
        print_json({**vars(result), "seconds": round(result.seconds, 3)})
    else:
        _show(result, options)


def _instant_us(text: str | None) -> int | None:
    if text is None:
        return None
    return 1000 * parse_instant_ms(text, "--before", time.time_ns() // 1_000_000)


def _show(result: "BackfillResult", options: "BackfillOptions") -> None:
    if options.dry_run:
        for line in result.ways:
            typer.echo(line)
        for counted in result.rules:
            typer.echo(
                f"{counted['rule']}: {counted['selected']:,} selected, {counted['to_be_asked']:,} to be asked"
            )
        return
    rest = "" if result.is_done else " Stopped; the same call goes on."
    failed = f" {result.failed:,} times a rule failed." if result.failed else ""
    typer.echo(f"{options.path}: {result.sent:,} sent, {result.known:,} were there before.{failed}{rest}")
