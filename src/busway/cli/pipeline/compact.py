"""`busway pipeline compact`."""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json
from busway.cli.pipeline.capture import COMPRESSIONS, CompressionOption, check_choice
from busway.cli.pipeline.running import ConfOption, QuietOption, progress, require_spark, settings
from busway.cli.verbs import JsonOption, WrongCall, verb

if TYPE_CHECKING:
    from busway_spark.pipeline.compaction import Merging

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


def register(family: typer.Typer) -> None:
    verb(family, "compact", "busway pipeline compact lake --target-size 256M")(compact)


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
