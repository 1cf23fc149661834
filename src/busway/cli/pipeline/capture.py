"""`busway pipeline capture`."""

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import format_instant, parse_instant_ms, print_json
from busway.cli.pipeline.running import SparkOptions
from busway.cli.verbs import JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway_spark.pipeline.capture.capture import CaptureResult

FORMATS: Final = ("parquet", "delta")
COMPRESSIONS: Final = ("zstd", "snappy", "none")


EntitiesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="ENTITY", help="Hubs and topics; queues and TOPIC/Subscriptions/NAME with --take."
    ),
]
ToOption = Annotated[
    str, typer.Option("--to", metavar="DIR", help="A directory, or a URI such as s3://bucket/lake.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Go on until stopped; else capture what is there now and end.")
]
EveryOption = Annotated[
    float, typer.Option("--every", min=0.1, metavar="SECONDS", help="With --follow: how often files appear.")
]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="parquet, or delta for a Delta table.")
]
SubscriptionOption = Annotated[
    str,
    typer.Option(
        "--subscription",
        metavar="NAME",
        help="Of topics: the subscription to capture through; made if absent.",
    ),
]
TakeOption = Annotated[
    bool,
    typer.Option("--take", help="Queues and subscriptions may be emptied: who receives there gets less."),
]
StartOption = Annotated[
    str,
    typer.Option("--from", metavar="START", help="Of hubs, the first time: first, latest, or a time (UTC)."),
]
GroupOption = Annotated[
    str, typer.Option("--group", metavar="NAME", help="Of hubs on Azure: the consumer group.")
]
BatchOption = Annotated[
    int | None, typer.Option("--batch", min=1, metavar="N", help="The most messages in one step.")
]
CompressionOption = Annotated[
    str, typer.Option("--compression", metavar="NAME", help="zstd, snappy or none.")
]
CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="DIR", help="Where progress is kept; else in _checkpoints of DIR."),
]
LossOption = Annotated[
    bool,
    typer.Option("--allow-loss", help="Go on although retention has removed what was not captured yet."),
]


def register(family: typer.Typer) -> None:
    verb(family, "capture", "busway pipeline capture clicks orders --to lake --follow")(capture)


def capture(
    entities: EntitiesArgument,
    to: ToOption,
    follow: FollowOption = False,
    every: EveryOption = 30.0,
    layout: FormatOption = "parquet",
    subscription: SubscriptionOption = "busway-capture",
    take: TakeOption = False,
    start: StartOption = "first",
    group: GroupOption = "$Default",
    batch: BatchOption = None,
    compression: CompressionOption = "zstd",
    checkpoint: CheckpointOption = None,
    allow_loss: LossOption = False,
    *,
    spark: SparkOptions,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Write every message of hubs and topics into Parquet files, each once, by entity, day, hour and partition.

    It can be stopped at any moment and goes on where it was when it is started again.
    """
    check_choice("--format", layout, FORMATS)
    check_choice("--compression", compression, COMPRESSIONS)
    beginning = _start(start)
    where = spark.place(server)
    from busway_spark.pipeline.capture.capture import CaptureOptions
    from busway_spark.pipeline.capture.capture import capture as run

    options = CaptureOptions(
        tuple(entities),
        to,
        follow,
        layout,
        compression,
        subscription,
        take,
        beginning,
        group,
        batch,
        every,
        checkpoint,
        allow_loss,
    )
    with spark.progress(as_json=as_json) as told:
        result = run(where, options, told)
    _print(result, to, as_json)


def check_choice(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise WrongCall(f"{option}: {' or '.join(allowed)} is expected, not '{value[:40]}'.")


def _start(text: str) -> str:
    if text in ("first", "latest"):
        return text
    return format_instant(parse_instant_ms(text, "--from", time.time_ns() // 1_000_000))


def _print(result: "CaptureResult", to: str, as_json: bool) -> None:
    if as_json:
        print_json({"captured": result.rows, "seconds": round(result.seconds, 3), "to": to})
        return
    for entity, rows in result.rows.items():
        typer.echo(f"{entity}: {rows:,} captured into {to}.")
