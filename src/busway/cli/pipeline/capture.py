"""`busway pipeline capture`, and `busway pipeline compact`, which makes its small files larger ones."""

import re
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import format_instant, parse_instant_ms, print_json
from busway.cli.pipeline.running import (
    ConfOption,
    QuietOption,
    SparkOptions,
    progress,
    require_spark,
    settings,
)
from busway.cli.verbs import JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway_spark.pipeline.capture.capture import CaptureResult
    from busway_spark.pipeline.compaction import Merging

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
    verb(family, "compact", "busway pipeline compact lake --target-size 256M")(compact)


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


_SIZE: Final = re.compile(r"(\d{1,9})\s*([KMG]?)i?B?", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CONNECT: Final = "sc://"

MergingMasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        envvar="BUSWAY_SPARK_MASTER",
        help="Merge on Spark: spark://HOST:7077, yarn, k8s://…, or local[*] for all cores of this machine."
        " Left out, files are merged by this process, with no Spark to wait for.",
    ),
]


def compact(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Where captured files lie: a directory or a URI.")
    ],
    entity: Annotated[
        str | None, typer.Option("--entity", metavar="NAME", help="Only this one's files.")
    ] = None,
    target_size: Annotated[
        str, typer.Option("--target-size", metavar="SIZE", help="About how large files become: 64M, 1G.")
    ] = "128M",
    compression: CompressionOption = "zstd",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done.")] = False,
    master: MergingMasterOption = None,
    conf: ConfOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge the small captured files of each partition and hour into larger ones.

    Safe while captures and readers run: hours that are not over are left alone, and a folder changes in one step.
    It can be stopped at any moment: folders that are done stay done, and the next call finishes what was begun.
    """
    check_choice("--compression", compression, COMPRESSIONS)
    target_bytes = parse_size(target_size, "--target-size")
    require_spark()
    way = _merging(master, conf)
    from busway_spark.pipeline.compaction import CompactOptions
    from busway_spark.pipeline.compaction import compact as run

    options = CompactOptions(directory, entity, target_bytes, compression, dry_run)
    with progress(quiet=quiet, as_json=as_json) as told:
        result = run(options, told, merging=way)
    if as_json:
        print_json({**vars(result), "dry_run": dry_run})
        return
    verb = "would become" if dry_run else "became"
    rest = "" if result.is_done else " Stopped; the same call goes on."
    typer.echo(
        f"{result.files_before:,} files in {result.folders:,} folders {verb} {result.files_after:,}.{rest}"
    )


def _merging(master: str | None, conf: list[str] | None) -> "Merging":
    """On Spark where a master is given; an empty one is none, so that one of the environment can be left out."""
    if not master:
        if conf:
            raise WrongCall("--conf: settings of Spark need a --master.")
        from busway_spark.pipeline.compaction import merge_here

        return merge_here
    if master.startswith(_CONNECT):
        raise WrongCall(
            "--master: a compaction needs a driver of its own, so it cannot run on Spark Connect."
        )
    from busway_spark.pipeline.compaction import SparkMerging

    return SparkMerging(master, settings(conf))


def parse_size(text: str, option: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise WrongCall(f"{option}: a size like 128M is expected, not '{text[:40]}'.")
    return int(match[1]) * _UNITS[match[2].upper()]
