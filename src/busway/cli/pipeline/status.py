"""`busway pipeline list|status|forget`: streams that read the bus, as they report themselves. No Spark is needed."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from busway.cli.output import print_json, print_table, shown
from busway.cli.verbs import JsonOption, ServerOptions, verb

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `busway pipeline list` shows it.")]

_COLUMNS: Final = ("NAME", "STATE", "READS", "EVENTS", "BYTES", "SECONDS", "ROWS/S", "FAILURES", "REPORT")
_PARTITION_COLUMNS: Final = ("ENTITY", "GROUP", "PARTITION", "NEXT", "EVENTS", "BYTES", "SECONDS", "LOST")


def register(family: typer.Typer) -> None:
    verb(family, "list", "busway pipeline list --json")(list_pipelines)
    verb(family, "status", "busway pipeline status capture-clicks")(status)
    verb(family, "forget", "busway pipeline forget capture-clicks")(forget)


def list_pipelines(
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """List the streams that read the bus: what each reads, and how many events, bytes and seconds it is behind.

    Streams of Spark report themselves every few seconds, those of busway pipeline and those of programs that call
    busway_spark.watch. One that has said nothing for three times as long is silent; after an hour it is forgotten."""
    with server.administration() as client:
        found = client.pipelines.list()
    if as_json:
        print_json(found)
    else:
        print_table(_COLUMNS, [_row(each) for each in found])


def status(
    name: NameArgument,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Show one stream: each partition that it reads, its last batch, its last failure."""
    with server.administration() as client:
        found = client.pipelines.get(name)
    if as_json:
        print_json(found)
        return
    for label, value in _lines(found):
        typer.echo(f"{label + ':':<10} {shown(value)}")
    typer.echo("")
    print_table(_PARTITION_COLUMNS, _partition_rows(found))


def forget(
    name: NameArgument,
    *,
    server: ServerOptions,
) -> None:
    """Take a stream off the list. The stream itself is not concerned: when it reports again it is back."""
    with server.administration() as client:
        client.pipelines.forget(name)
    typer.echo(f"Pipeline {name} is forgotten until it reports again.")


def _row(pipeline: Mapping[str, object]) -> list[object]:
    reads = ", ".join(str(source.get("entity")) for source in _objects(pipeline.get("sources")))
    return [
        pipeline.get("name"),
        _state(pipeline),
        reads or None,
        pipeline.get("lagEvents"),
        pipeline.get("lagBytes"),
        _seconds(pipeline.get("lagSeconds")),
        _rounded(pipeline.get("rowsPerSecond")),
        pipeline.get("failures"),
        _ago(pipeline),
    ]


def _lines(pipeline: Mapping[str, object]) -> list[tuple[str, object]]:
    batch = (
        f"{pipeline.get('batch')}, {_number(pipeline.get('batchMs')):g} ms"
        if pipeline.get("batches")
        else None
    )
    seconds = _seconds(pipeline.get("lagSeconds"))
    behind = f"{pipeline.get('lagEvents')} events, {pipeline.get('lagBytes')} bytes"
    lines: list[tuple[str, object]] = [
        ("Name", pipeline.get("name")),
        ("State", f"{_state(pipeline)}, reported {_ago(pipeline)}"),
        ("Query", pipeline.get("query")),
        ("Behind", behind if seconds is None else f"{behind}, {seconds} seconds"),
        ("Rows", f"{pipeline.get('rows')}, {_rounded(pipeline.get('rowsPerSecond'))} per second"),
        ("Batch", batch),
        ("Failures", pipeline.get("failures")),
    ]
    if pipeline.get("sentence"):
        lines.append(("Last", pipeline.get("sentence")))
    problems = [
        f"{source.get('entity')}: {source.get('problem')}"
        for source in _objects(pipeline.get("sources"))
        if source.get("problem")
    ]
    return [*lines, *(("Problem", problem) for problem in problems)]


def _partition_rows(pipeline: Mapping[str, object]) -> list[list[object]]:
    rows: list[list[object]] = []
    for source in _objects(pipeline.get("sources")):
        for each in _objects(source.get("partitions")):
            number = each.get("next")
            rows.append(
                [
                    source.get("entity"),
                    source.get("consumerGroup") or None,
                    each.get("partition") or None,
                    None if number == -1 else number,
                    each.get("lagEvents"),
                    each.get("lagBytes"),
                    _seconds(each.get("lagSeconds")),
                    each.get("lost"),
                ]
            )
    return rows


def _state(pipeline: Mapping[str, object]) -> str:
    return "silent" if pipeline.get("stale") is True else str(pipeline.get("state"))


def _ago(pipeline: Mapping[str, object]) -> str:
    return f"{_number(pipeline.get('reportAgeSeconds')):.0f} s ago"


def _seconds(value: object) -> str | None:
    return None if value is None else f"{_number(value):.1f}"


def _rounded(value: object) -> str:
    return f"{_number(value):.0f}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _objects(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
