"""`busway pipeline deadletters`, and `busway pipeline triage`, which does it by a policy."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json, print_table
from busway.cli.pipeline.running import SparkOptions, require_spark
from busway.cli.verbs import JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway_spark.pipeline.deadletters.deadletters import DeadLetters, Triage
    from busway_spark.pipeline.deadletters.triage import Round, TriageOptions

_HELP: Final = """Look at dead-letter queues, and send what you choose again.

Dead letters are browsed, which touches nothing, and grouped by entity, reason and error fingerprint: the description
with numbers, ids and times masked. --where chooses by SQL over the columns of format "servicebus" (deadLetterReason,
deliveryCount, enqueuedTime, properties.NAME::string …), and fingerprint and age as the groups show them.
Without --resubmit nothing is changed: what would be done is told.

--resubmit sends the chosen ones again, each exactly once on Busway, however often this is killed and started again;
the others stay as they are. --set and --body change them on the way, by expressions of Spark SQL over the same
columns."""
_EXAMPLE: Final = (
    "busway pipeline deadletters orders --where \"deadLetterReason = 'BadTenant'\" \\\n"
    "      --set \"properties.tenant=concat('t-', sessionId)\" --resubmit --report triage"
)
_TRIAGE_HELP: Final = """Treat dead letters by a policy, once or as a stream, each exactly once.

The policy is a TOML file of rules: which dead letters (reason, fingerprint, entity, or SQL), how often they may be
resubmitted, after how long (twice as long each time), and the quarantine queue for those whose budget is used up.
What no rule fits is left alone. How often a message was resubmitted is counted with the message itself, so this may
be killed and started again, anywhere.

Without --resubmit nothing is changed: what would become of each group is told."""
_TRIAGE_EXAMPLE: Final = "busway pipeline triage orders --policy orders.toml --resubmit --follow"
_TEXT_LETTERS: Final = 60


def register(family: typer.Typer) -> None:
    verb(family, "deadletters", _EXAMPLE, about=_HELP)(deadletters)
    verb(family, "triage", _TRIAGE_EXAMPLE, about=_TRIAGE_HELP)(triage)


def deadletters(
    entities: Annotated[
        list[str], typer.Argument(metavar="ENTITY...", help="Queues, TOPIC/Subscriptions/NAME.")
    ],
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Which ones; without it all.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=SQL", help="A new value: subject, properties.NAME, sessionId, …"),
    ] = None,
    body: Annotated[str | None, typer.Option("--body", metavar="SQL", help="A new body.")] = None,
    resubmit: Annotated[bool, typer.Option("--resubmit", help="Do it; else only tell.")] = False,
    into: Annotated[
        str | None, typer.Option("--into", metavar="ENTITY", help="Another queue or topic to send them to.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="WORDS", help="Group by entity, reason, description, fingerprint, subject, age."
        ),
    ] = "entity,reason,fingerprint",
    samples: Annotated[int, typer.Option("--samples", min=0, max=20, help="Shown of each group.")] = 3,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0.0, max=600.0, help="For those that somebody holds locked."
        ),
    ] = 75.0,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="DIR", help="Parquet and a page with plots.")
    ] = None,
    *,
    server: ServerOptions,
    spark: SparkOptions,
    as_json: JsonOption = False,
) -> None:
    """See `_HELP`."""
    require_spark()
    options = _options(entities, where, sets, body, resubmit, into, by, samples, wait, report)
    where_it_runs = spark.place(server)
    from busway_spark.pipeline.deadletters.deadletters import run
    from busway_spark.pipeline.job import JobFailed

    with spark.progress(as_json=as_json) as told:
        try:
            triage = run(where_it_runs, options, told)
        except JobFailed as error:
            if str(error).startswith("--"):
                raise WrongCall(str(error)) from error
            raise
    if as_json:
        print_json(_as_json(triage))
    else:
        _print(triage)
    if not triage.is_dry and not triage.is_complete:
        raise typer.Exit(1)


def _options(
    entities: list[str],
    where: str | None,
    sets: list[str] | None,
    body: str | None,
    resubmit: bool,
    into: str | None,
    by: str,
    samples: int,
    wait: float,
    report: Path | None,
) -> "DeadLetters":
    from busway_spark.pipeline.deadletters.columns import BODY, Fix, WrongFix
    from busway_spark.pipeline.deadletters.deadletters import DeadLetters
    from busway_spark.pipeline.deadletters.report import KEYS

    words = tuple(word.strip().lower() for word in by.split(",") if word.strip())
    wrong = [word for word in words if word not in KEYS]
    if wrong or not words or len(set(words)) < len(words):
        raise WrongCall(f"--by {by}: name some of {', '.join(KEYS)}, each once.")
    try:
        fixes = [Fix.parse(text) for text in sets or []]
    except WrongFix as error:
        raise WrongCall(str(error)) from error
    if body is not None:
        fixes.append(Fix(BODY, body))
    twice = [fix.part for fix in fixes if sum(each.part == fix.part for each in fixes) > 1]
    if twice:
        raise WrongCall(f"--set {twice[0]}: it is given twice.")
    return DeadLetters(tuple(entities), where, tuple(fixes), resubmit, into, words, samples, wait, report)


def _print(triage: "Triage") -> None:
    found = triage.survey
    rows = [
        [
            *(_cut(value) for value in group.keys.values()),
            group.count,
            group.chosen,
            _minute(group.first),
            _minute(group.last),
        ]
        for group in found.groups
    ]
    if found.groups:
        print_table(
            [*(word.upper() for word in found.groups[0].keys), "COUNT", "CHOSEN", "FIRST", "LAST"], rows
        )
        typer.echo("")
    targets = ", ".join(f"{each.destination} ({each.guarantee})" for each in triage.routes)
    if triage.is_dry:
        typer.echo(f"{found.total} dead letters; --resubmit would send {found.chosen} to {targets}.")
    else:
        done = (
            ", ".join(f"{count} {name}" for name, count in sorted(triage.outcomes.items())) or "nothing to do"
        )
        typer.echo(f"{found.total} dead letters, {found.chosen} chosen for {targets}: {done}.")
    for warning in triage.warnings:
        typer.echo(f"Note: {warning}", err=True)
    if triage.page is not None:
        typer.echo(f"Report: {triage.page}")


def _as_json(triage: "Triage") -> dict[str, object]:
    from dataclasses import asdict

    found = triage.survey
    groups = [
        {
            **asdict(group),
            "first": _minute(group.first),
            "last": _minute(group.last),
            "samples": [{**asdict(each), "enqueued": _minute(each.enqueued)} for each in group.samples],
        }
        for group in found.groups
    ]
    return {
        "total": found.total,
        "chosen": found.chosen,
        "held": found.held,
        "dry_run": triage.is_dry,
        "routes": [
            {"entity": each.source, "into": each.destination, "guarantee": each.guarantee}
            for each in triage.routes
        ],
        "outcomes": triage.outcomes,
        "warnings": triage.warnings,
        "group_count": found.group_count,
        "groups": groups,
        "page": None if triage.page is None else str(triage.page),
    }


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= _TEXT_LETTERS else value[: _TEXT_LETTERS - 1] + "…"


def _minute(moment: datetime | None) -> str | None:
    return (
        None
        if moment is None
        else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )


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
    """See `_TRIAGE_HELP`."""
    require_spark()
    options = _triage_options(entities, policy, resubmit, follow, every, wait)
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
        print_json(_round_as_json(done))
    else:
        _print_round(done)
    if not done.is_dry and not done.is_complete:
        raise typer.Exit(1)


def _triage_options(
    entities: list[str], policy: Path, resubmit: bool, follow: bool, every: float, wait: float
) -> "TriageOptions":
    from busway_spark.pipeline.deadletters.triage import Policy, TriageOptions, WrongPolicy

    try:
        rules = Policy.read(policy)
    except WrongPolicy as error:
        raise WrongCall(f"--policy {error}") from error
    return TriageOptions(tuple(entities), rules, resubmit, follow, every, wait)


def _print_round(done: "Round") -> None:
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


def _round_as_json(done: "Round") -> dict[str, object]:
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
