"""`busway pipeline triage`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json, print_table
from busway.cli.pipeline.running import SparkOptions, require_spark
from busway.cli.verbs import JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway_spark.pipeline.deadletters.triage import Round, TriageOptions

_HELP: Final = """Treat dead letters by a policy, once or as a stream, each exactly once.

The policy is a TOML file of rules: which dead letters (reason, fingerprint, entity, or SQL), how often they may be
resubmitted, after how long (twice as long each time), and the quarantine queue for those whose budget is used up.
What no rule fits is left alone. How often a message was resubmitted is counted with the message itself, so this may
be killed and started again, anywhere.

Without --resubmit nothing is changed: what would become of each group is told."""
_EXAMPLE: Final = "busway pipeline triage orders --policy orders.toml --resubmit --follow"
_TEXT_LETTERS: Final = 60


def register(family: typer.Typer) -> None:
    verb(family, "triage", _EXAMPLE, about=_HELP)(triage)


def triage(
    entities: Annotated[
        list[str], typer.Argument(metavar="ENTITY...", help="Queues, TOPIC/Subscriptions/NAME.")
    ],
    policy: Annotated[Path, typer.Option("--policy", metavar="FILE", help="The rules, in TOML.")],
    resubmit: Annotated[bool, typer.Option("--resubmit", help="Do it; else only tell.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Again and again, until it is stopped.")] = False,
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=1.0, max=86_400.0, help="Between rounds of --follow."),
    ] = 30.0,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0.0, max=600.0, help="For those that somebody holds locked."
        ),
    ] = 5.0,
    *,
    server: ServerOptions,
    spark: SparkOptions,
    as_json: JsonOption = False,
) -> None:
    """See `_HELP`."""
    require_spark()
    options = _options(entities, policy, resubmit, follow, every, wait)
    where_it_runs = spark.place(server)
    from busway_spark.pipeline.deadletters.triage import triage as run
    from busway_spark.pipeline.job import JobFailed

    with spark.progress(as_json=as_json) as told:
        try:
            done = run(where_it_runs, options, told)
        except JobFailed as error:
            if str(error).startswith("rule "):
                raise WrongCall(f"--policy {policy}: {error}") from error
            raise
    if as_json:
        print_json(_as_json(done))
    else:
        _print(done)
    if not done.is_dry and not done.is_complete:
        raise typer.Exit(1)


def _options(
    entities: list[str], policy: Path, resubmit: bool, follow: bool, every: float, wait: float
) -> "TriageOptions":
    from busway_spark.pipeline.deadletters.triage import Policy, TriageOptions, WrongPolicy

    try:
        rules = Policy.read(policy)
    except WrongPolicy as error:
        raise WrongCall(f"--policy {error}") from error
    return TriageOptions(tuple(entities), rules, resubmit, follow, every, wait)


def _print(done: "Round") -> None:
    rows = [
        [group.entity, group.reason, _cut(group.fingerprint), count, group.action, group.destination]
        for group, count in done.groups.most_common()
    ]
    if rows:
        print_table(["ENTITY", "REASON", "FINGERPRINT", "COUNT", "ACTION", "INTO"], rows)
        typer.echo("")
    if done.is_dry:
        typer.echo(f"{done.total} dead letters; nothing was changed. --resubmit does it.")
    else:
        told = ", ".join(f"{count} {name}" for name, count in sorted(done.outcomes.items()))
        typer.echo(f"{done.total} dead letters: {told or 'nothing to do'}.")
    for warning in done.warnings:
        typer.echo(f"Note: {warning}", err=True)


def _as_json(done: "Round") -> dict[str, object]:
    return {
        "total": done.total,
        "dry_run": done.is_dry,
        "outcomes": done.outcomes,
        "warnings": done.warnings,
        "groups": [
            {
                "entity": group.entity,
                "reason": group.reason,
                "fingerprint": group.fingerprint,
                "action": group.action,
                "into": group.destination,
                "count": count,
            }
            for group, count in done.groups.most_common()
        ],
    }


def _cut(value: str) -> str:
    return value if len(value) <= _TEXT_LETTERS else value[: _TEXT_LETTERS - 1] + "…"
