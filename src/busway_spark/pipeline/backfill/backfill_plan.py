"""What a backfill has to do: which rules, up to which captured message each, out of which files, and what is missing.

A rule has seen everything behind its *cut*, the number that the captured subscription had reached when the rule began
(`broker.namespace.rule_beginnings`). That subscription numbers its messages without gaps, so what has a number up to
the cut and is in no file is missing, and how much that is can be told before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.parquet as pq

from busway.client.errors import ClientError, Unreachable
from busway.rules.rule import Rule
from busway_spark.pipeline.backfill.backfill_client import BackfillClient
from busway_spark.pipeline.captured.captured_files import SpannedFile, listed_files, spanned
from busway_spark.pipeline.job import JobFailed, Place
from busway_spark.pipeline.places.capture_root import CaptureRoot
from busway_spark.rules.rule_columns import not_captured
from busway_spark.wire.bus import BUSWAY, administration

FRAGMENT_SHIFT: Final = 48
#: No message has it: a rule that has seen nothing of a history.
EVERYTHING: Final = (1 << 63) - 1


@dataclass(frozen=True)
class BackfillOptions:
    #: A directory or a URI.
    root: str
    topic: str
    subscription: str
    #: The subscription that the topic is captured through.
    through: str = "busway-capture"
    #: A queue that gets the history instead of the subscription.
    into: str | None = None
    #: History before this moment (microseconds since 1970), instead of before the rules began.
    before_us: int | None = None
    #: Although some of it is missing.
    partial: bool = False
    dry_run: bool = False

    @property
    def path(self) -> str:
        return f"{self.topic}/Subscriptions/{self.subscription}"


@dataclass(frozen=True)
class BackfillPlan:
    """`cuts`: for each rule, by fragment, the last number that the rule has not seen."""

    rules: tuple[Rule, ...]
    cuts: tuple[tuple[int, ...], ...]
    files: tuple[SpannedFile, ...]
    #: Messages before the cuts: wanted, and of these captured. Without cuts (`before`) both are what is captured.
    wanted: int
    captured: int
    #: Why the history is not whole, in sentences.
    faults: tuple[str, ...]


def plan(place: Place, root: CaptureRoot, options: BackfillOptions) -> BackfillPlan:
    """Raises JobFailed."""
    rules = _rules(place, options)
    files = spanned(root, listed_files(root, options.topic))
    if not files:
        raise JobFailed(
            f"{root.location} holds no messages of '{options.topic}': capture them first"
            f" (busway pipeline capture {options.topic} --to {root.location})."
        )
    faults = [
        f"sys.{name}, which a rule reads, is not captured: it counts as null." for name in not_captured(rules)
    ]
    if options.before_us is not None:
        cuts: Sequence[tuple[int, ...]] = [() for _ in rules]
        counted = sum(each.span.rows for each in files if each.span.first_time_us < options.before_us)
        wanted = captured = counted
        files = [each for each in files if each.span.first_time_us < options.before_us]
    else:
        cuts = _cuts(place, options, rules, files)
        reach = [max(numbers) for numbers in zip(*cuts, strict=True)]
        files = [each for each in files if each.span.first_number <= _at(reach, each.file.partition)]
        captured = sum(_rows_up_to(root, each, _at(reach, each.file.partition)) for each in files)
        wanted = sum(number - (index << FRAGMENT_SHIFT) for index, number in enumerate(reach))
        faults += _missing(options, root, wanted, captured)
    return BackfillPlan(tuple(rules), tuple(cuts), tuple(_in_order(files)), wanted, captured, tuple(faults))


def _rules(place: Place, options: BackfillOptions) -> list[Rule]:
    try:
        with administration(place.bus) as client:
            rules = client.list_rules(options.topic, options.subscription)
    except ClientError as error:
        raise JobFailed(f"The rules of '{options.path}' cannot be read: {error}") from error
    if not rules:
        raise JobFailed(f"'{options.path}' has no rules, so it gets nothing: create one first.")
    return rules


def _cuts(
    place: Place, options: BackfillOptions, rules: Sequence[Rule], files: Sequence[SpannedFile]
) -> list[tuple[int, ...]]:
    try:
        kind = place.bus.kind()
    except Unreachable as error:
        raise JobFailed(str(error)) from error
    if kind != BUSWAY:
        raise JobFailed("This server does not tell when rules began: say --before TIME, and --into QUEUE.")
    told = BackfillClient(place.bus, options.path).beginnings()
    captured = {name.lower(): facts for name, facts in told["captured"].items()}
    facts = captured.get(options.through.lower())
    if facts is None:
        known = ", ".join(f"'{name}'" for name in told["captured"]) or "none"
        raise JobFailed(
            f"'{options.topic}' is not captured through a subscription '{options.through}' ({known}):"
            " --through names it."
        )
    first_us = min(each.span.first_time_us for each in files)
    if first_us < int(facts["createdAtMs"]) * 1000:
        raise JobFailed(
            f"The files hold messages of a time before the subscription '{options.through}' was created: its"
            " numbers are not theirs. Capture into an empty directory, or say --before TIME."
        )
    began = {str(rule["name"]).lower(): rule["began"] for rule in told["rules"]}
    return [_cut(rule, began.get(rule.name.lower()), options, int(told["fragments"])) for rule in rules]


def _cut(
    rule: Rule, began: Mapping[str, Any] | None, options: BackfillOptions, fragments: int
) -> tuple[int, ...]:
    if began is None:
        raise JobFailed(
            f"When the rule '{rule.name}' of '{options.path}' began is not known: a failure came between."
            " Delete and create it again, or say --before TIME."
        )
    numbers = {name.lower(): numbers for name, numbers in began.items()}.get(options.through.lower())
    if numbers is None:  # it was there before the capture began: it has seen all of it
        return tuple(index << FRAGMENT_SHIFT for index in range(fragments))
    return tuple(int(number) for number in numbers)


def _at(numbers: Sequence[int], partition: int) -> int:
    return numbers[partition] if partition < len(numbers) else -1


def _rows_up_to(root: CaptureRoot, each: SpannedFile, cut: int) -> int:
    if each.span.last_number <= cut:
        return each.span.rows
    with root.filesystem.open_input_file(root.full(each.path)) as source:
        numbers: Any = pq.ParquetFile(source).read(["sequenceNumber"]).column(0).to_numpy()
    return int((numbers <= cut).sum())


def _missing(options: BackfillOptions, root: CaptureRoot, wanted: int, captured: int) -> list[str]:
    if captured >= wanted:
        return []
    return [
        f"Of {wanted:,} messages before the rules began {wanted - captured:,} are not captured yet, or were never:"
        f" run busway pipeline capture {options.topic} --to {root.location} first."
    ]


def _in_order(files: Sequence[SpannedFile]) -> list[SpannedFile]:
    return sorted(files, key=lambda each: (each.span.first_number & ((1 << FRAGMENT_SHIFT) - 1), each.file))
