"""`busway pipeline replay`."""

import re
import time
from typing import Annotated, Final

import typer

from busway.cli.output import parse_instant_ms, print_json
from busway.cli.pipeline.running import SparkOptions
from busway.cli.verbs import JsonOption, ServerOptions, WrongCall, verb

_SPEED: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)x?", re.IGNORECASE | re.ASCII)
_FASTEST: Final = "max"


def register(family: typer.Typer) -> None:
    verb(family, "replay", "busway pipeline replay lake --entity clicks --into clicks-test --speed 10x")(
        replay
    )


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
    from busway_spark.pipeline.replay.replay import ReplayOptions
    from busway_spark.pipeline.replay.replay import replay as run

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
