"""`busway pipeline replay|backfill`: what was captured is sent again, or given to a subscription that came later."""

import re
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import parse_instant_ms, print_json
from busway.cli.pipeline.running import SparkOptions
from busway.cli.verbs import JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway_spark.pipeline.backfill.backfill import BackfillResult
    from busway_spark.pipeline.backfill.backfill_plan import BackfillOptions

_SPEED: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)x?", re.IGNORECASE | re.ASCII)
_FASTEST: Final = "max"


def register(family: typer.Typer) -> None:
    verb(family, "replay", "busway pipeline replay lake --entity clicks --into clicks-test --speed 10x")(
        replay
    )
    verb(family, "backfill", "busway pipeline backfill orders audit --from lake --dry-run")(backfill)


def replay(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Where captured files lie: a directory or a URI.")
    ],
    entity: Annotated[str, typer.Option("--entity", metavar="NAME", help="Whose history to replay.")],
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="The hub, queue or topic to fill.")],
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="The first moment: 2030-01-01T08:00:00Z (UTC)."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="The moment to end before.")
    ] = None,
    speed: Annotated[
        str,
        typer.Option(
            "--speed", metavar="FACTOR", help="1x as it was, 10x ten times as fast, max without pauses."
        ),
    ] = "1x",
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="SQL",
            help="A condition of Spark SQL on the captured columns: subject = 'new'.",
        ),
    ] = None,
    keep_ids: Annotated[
        bool,
        typer.Option(
            "--keep-ids", help="Message ids as they were, instead of ids by which repeats are detected."
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="From the beginning, although it was begun or done before.")
    ] = False,
    *,
    spark: SparkOptions,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Send captured history again, in its order and at a chosen speed.

    The same call goes on where it was stopped; Spark is started for --where alone.
    """
    factor = parse_speed(speed)
    since_us, until_us = _instant_us(since, "--from"), _instant_us(until, "--until")
    if since_us is not None and until_us is not None and until_us <= since_us:
        raise WrongCall("--until: must be after --from.")
    there = spark.place(server)
    from busway_spark.pipeline.replay import ReplayOptions
    from busway_spark.pipeline.replay import replay as run

    options = ReplayOptions(
        directory, entity, into, since_us, until_us, factor, where, keeps_ids=keep_ids, again=again
    )
    with spark.progress(as_json=as_json) as told:
        result = run(there, options, told)
    if as_json:
        print_json({**vars(result), "seconds": round(result.seconds, 3)})
        return
    rest = "" if result.is_done else " Stopped; the same call goes on."
    typer.echo(f"{entity}: {result.rows:,} replayed into {into}.{rest}")


def parse_speed(text: str) -> float:
    """0 without pauses."""
    if text.lower() == _FASTEST:
        return 0.0
    match = _SPEED.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise WrongCall(f"--speed: 1x, 10x, 0.5x or max is expected, not '{text[:40]}'.")
    return float(match[1])


def _instant_us(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    return parse_instant_ms(text, option, time.time_ns() // 1_000_000) * 1000


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
    before_us = _instant_us(before, "--before")
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
