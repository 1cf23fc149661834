"""`busway pipeline triage`: dead letters by policy, once or as a stream, each once.

What becomes of dead letters by themselves is a policy, read from a TOML file:

    create = true                      # make quarantine queues that are missing

    [[rule]]                           # the first rule that fits decides; what fits none is left alone
    reason = "Timeout"                 # of these, those that are given must hold
    fingerprint = "no answer within <n> s"
    entity = "orders"
    where = "deliveryCount > 3"        # SQL, as `--where` of `busway pipeline deadletters`
    budget = 5                         # so often it may be resubmitted
    backoff = "30s"                    # not at once: 30 s, 60 s, 120 s, …
    backoff_max = "1h"
    quarantine = "orders-quarantine"   # where it goes when its budget is used up; without it, it is left

How often a message was resubmitted is counted with the message itself, by the application properties COUNT and
FIRST, which are written in the step that resubmits it: whoever looks next, on whatever machine, sees it.

Theory of operation. A round browses the dead letters, which touches nothing, and reads them once: the rule that
fits each, how often it was resubmitted, and so what becomes of it. That is the plan, and the figures by group are
counted from the same rows. Then tasks move what is planned (`tasks`): one step of the server's takes the dead
letter away, stores the message where it goes, and writes the new count into it. So a kill at any moment, of tasks,
driver or bus, leaves each message in one place with the count that is true, and the next round, by whomever, goes
on from there. Nothing is remembered between rounds.

A stream is rounds, one after the other, with a pause. One that fails is told and made again, less and less often.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from busway.client.atom_entries import BadAnswer
from busway.client.errors import ClientError, EntityExists, EntityMissing
from busway.message.changed_payload import MESSAGE_ID, PROPERTY_MARK
from busway_spark.pipeline.deadletters import columns
from busway_spark.pipeline.deadletters.plan import (
    LOCKED,
    PLANNED,
    REFUSED,
    TRANSACTION,
    LetterRoute,
    Plan,
    find_route,
    source_of,
)
from busway_spark.pipeline.deadletters.plan import Row as PlanRow
from busway_spark.pipeline.deadletters.tasks import TaskMover
from busway_spark.pipeline.job import JobFailed, JobPlace, JobProgress, failing
from busway_spark.wire.bus import administration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Application properties: how often it was resubmitted, and when first (milliseconds since 1970).
COUNT: Final = "busway-resubmitted"
FIRST: Final = "busway-resubmitted-first"
#: Of what lies in quarantine: since when, and what its last dead letter was.
QUARANTINED: Final = "busway-quarantined"
LAST_REASON: Final = "busway-dead-letter-reason"
LAST_DESCRIPTION: Final = "busway-dead-letter-description"
LAST_SOURCE: Final = "busway-dead-letter-source"
#: The server schedules it so many milliseconds from its own now on.
DELAY: Final = "delay"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,6})([smhd])")
_TEXTS: Final = ("reason", "fingerprint", "entity", "where", "quarantine", "backoff", "backoff_max")
_BACKOFF_S_MAX: Final = 366 * 86_400
_DOUBLINGS_MAX: Final = 40
_RULES_MAX: Final = 1_000


class WrongPolicy(ValueError):
    """The policy cannot be understood; a sentence."""


@dataclass(frozen=True)
class PolicyRule:
    budget: int
    reason: str | None = None
    fingerprint: str | None = None
    entity: str | None = None
    where: str | None = None
    backoff_s: int = 0
    backoff_max_s: int = 86_400
    quarantine: str | None = None

    def delay_ms(self, count: int, identity: str) -> int:
        """Before the next try of a message that was resubmitted so often. Up to half of it is taken off by who it is,
        so that those who failed together do not come back together, and the same at every look."""
        if not self.backoff_s:
            return 0
        whole_s = min(self.backoff_s << min(count, _DOUBLINGS_MAX), self.backoff_max_s)
        chance = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "big") / 2**32
        return int(whole_s * 1000 * (1 - chance / 2))


@dataclass(frozen=True)
class Policy:
    """What becomes of dead letters by themselves: a policy, read from a TOML file."""

    rules: tuple[PolicyRule, ...]
    creates: bool = False

    def quarantines(self) -> list[str]:
        return list(dict.fromkeys(rule.quarantine for rule in self.rules if rule.quarantine is not None))

    @classmethod
    def read(cls, path: Path) -> Policy:
        """Raises WrongPolicy."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WrongPolicy(f"{path} cannot be read: {error}") from error
        try:
            return cls.parse(text)
        except WrongPolicy as error:
            raise WrongPolicy(f"{path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Raises WrongPolicy."""
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise WrongPolicy(f"it is no TOML: {error}.") from error
        _check_names(found, ("create", "rule"), "A policy")
        creates, rules = found.get("create", False), found.get("rule", [])
        if not isinstance(creates, bool):
            raise WrongPolicy("create must be true or false.")
        if not isinstance(rules, list) or not rules:
            raise WrongPolicy("there is no [[rule]] in it.")
        if len(rules) > _RULES_MAX:
            raise WrongPolicy(f"it has {len(rules)} rules; at most {_RULES_MAX} are allowed.")
        return cls(tuple(_rule(at, each) for at, each in enumerate(rules, 1)), creates)


def _rule(at: int, found: object) -> PolicyRule:
    name = f"rule {at}"
    if not isinstance(found, dict):
        raise WrongPolicy(f"{name} must be a table, [[rule]].")
    _check_names(found, ("budget", *_TEXTS), name)
    for each in _TEXTS:
        if each in found and (not isinstance(found[each], str) or not found[each].strip()):
            raise WrongPolicy(f"{name}: {each} must be a text that is not empty.")
    budget = found.get("budget")
    if not isinstance(budget, int) or isinstance(budget, bool) or not 0 <= budget <= 1_000_000:
        raise WrongPolicy(f"{name}: budget must say how often a message may be resubmitted, 0 or more.")
    backoff_s = _seconds(name, "backoff", found.get("backoff", "0s"))
    backoff_max_s = _seconds(name, "backoff_max", found.get("backoff_max", "1d"))
    if backoff_max_s < backoff_s:
        raise WrongPolicy(f"{name}: backoff_max is shorter than backoff.")
    quarantine = found.get("quarantine")
    return PolicyRule(
        budget,
        found.get("reason"),
        found.get("fingerprint"),
        found.get("entity"),
        found.get("where"),
        backoff_s,
        backoff_max_s,
        None if quarantine is None else quarantine.strip("/"),
    )


def _check_names(found: Mapping[str, Any], known: tuple[str, ...], whose: str) -> None:
    wrong = next((name for name in found if name not in known), None)
    if wrong is not None:
        raise WrongPolicy(f"{whose} has no '{wrong[:80]}'; there are {', '.join(known)}.")


def _seconds(name: str, option: str, text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise WrongPolicy(f"{name}: {option} '{text[:40]}' is no time such as 30s, 5m, 2h or 1d.")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > _BACKOFF_S_MAX:
        raise WrongPolicy(f"{name}: {option} is longer than a year.")
    return seconds


# -- what is written into the message


def resubmission(
    rule: PolicyRule, count: int, first_ms: int | None, now_ms: int, identity: str
) -> dict[str, Any]:
    """Changes of a message that is resubmitted once more. `identity`: where it lies, and its number there."""
    changes: dict[str, Any] = {
        PROPERTY_MARK + COUNT: count + 1,
        PROPERTY_MARK + FIRST: now_ms if first_ms is None else first_ms,
    }
    delay_ms = rule.delay_ms(count, identity)
    return {**changes, DELAY: delay_ms} if delay_ms else changes


def quarantine(reason: str | None, description: str | None, source: str, now_ms: int) -> dict[str, Any]:
    """Changes of a message whose budget is used up: why it was dead-lettered, where, and since when it lies there."""
    return {
        PROPERTY_MARK + QUARANTINED: now_ms,
        PROPERTY_MARK + LAST_REASON: reason,
        PROPERTY_MARK + LAST_DESCRIPTION: description,
        PROPERTY_MARK + LAST_SOURCE: source,
    }


#: What becomes of a dead letter.
RESUBMIT: Final = "resubmit"
QUARANTINE: Final = "quarantine"
LEAVE: Final = "leave"
HELD: Final = "held by a stream"
#: Groups that are told apart; the rest are counted together.
GROUPS_MAX: Final = 200
_OTHERS: Final = "(others)"
_FAILURE_PAUSE_S_MAX: Final = 300.0


@dataclass(frozen=True)
class TriageOptions:
    entities: tuple[str, ...]
    policy: Policy
    #: False: what would be done is told.
    resubmits: bool = False
    #: Round after round.
    follows: bool = False
    every_s: float = 30.0
    #: How long to wait for dead letters that somebody holds locked.
    wait_s: float = 5.0


@dataclass(frozen=True)
class TriagedGroup:
    entity: str
    reason: str | None
    fingerprint: str
    #: RESUBMIT, QUARANTINE, LEAVE or HELD.
    action: str
    destination: str | None


@dataclass
class Round:
    """What was found, and what was done."""

    is_dry: bool
    groups: Counter[TriagedGroup] = field(default_factory=Counter)
    #: Outcome (`plan`) → how many; empty in a dry run.
    outcomes: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.groups.values())

    def of(self, action: str) -> int:
        return sum(count for group, count in self.groups.items() if group.action == action)

    @property
    def is_complete(self) -> bool:
        return not any(self.outcomes.get(each) for each in (REFUSED, LOCKED, PLANNED))


def triage(place: JobPlace, options: TriageOptions, progress: JobProgress | None = None) -> Round:
    """The last round. Raises JobFailed; a stream does so only when it cannot begin."""
    told = progress or JobProgress()
    work = _Triage(place, options, told)
    work.begin()
    if not options.follows:
        return work.round()
    return _followed(work, options, told)


def _followed(work: _Triage, options: TriageOptions, told: JobProgress) -> Round:
    last = Round(not options.resubmits)
    failures = 0
    while not told.is_stopping:
        try:
            last = work.round()
            failures = 0
        except JobFailed as error:
            failures += 1
            last.warnings = [str(error)]
            told.tell(f"A round failed and is made again: {error}", error=str(error))
        told.wait(min(options.every_s * 2 ** min(failures, 10), max(options.every_s, _FAILURE_PAUSE_S_MAX)))
    return last


class _Triage:
    def __init__(self, place: JobPlace, options: TriageOptions, progress: JobProgress) -> None:
        self._place = place
        self._options = options
        self._progress = progress
        self._sources = list(dict.fromkeys(source_of(entity) for entity in options.entities))
        #: A plan names its rows by these: from one source to one destination.
        self._routes: list[LetterRoute] = []
        #: (source, quarantine queue or None) → place in `_routes`.
        self._places: dict[tuple[int, str | None], int] = {}
        #: Columns that are browsed; None: all.
        self._names: Sequence[str] | None = None

    def begin(self) -> None:
        """Everything that can be wrong with what was asked for. Raises JobFailed."""
        if not self._sources or not all(self._sources):
            raise JobFailed("Name at least one queue, or TOPIC/Subscriptions/NAME.")
        quarantines = self._options.policy.quarantines()
        if self._options.policy.creates and self._options.resubmits:
            for name in quarantines:
                self._create(name)
        for at, source in enumerate(self._sources):
            for into in (None, *quarantines):
                self._places[at, into] = len(self._routes)
                self._routes.append(self._route(source, into))
        table = columns.described(columns.empty(self._session(), self._place), datetime.now(UTC))
        for at, rule in enumerate(self._options.policy.rules, 1):
            if rule.where is not None:
                columns.check_condition(f"rule {at}: where", table, rule.where)
        conditions = [rule.where for rule in self._options.policy.rules if rule.where is not None]
        self._names = columns.names_for(table, (*columns.COUNTED, "properties"), conditions)

    def _session(self) -> SparkSession:
        return self._place.session("triage")

    def _create(self, name: str) -> None:
        try:
            with administration(self._place.bus) as client:
                try:
                    client.get_queue_or_topic(name)
                except EntityMissing:
                    client.create_queue(name)
                    self._progress.tell(f"Made the queue {name}.", created=name)
        except EntityExists:
            return
        except (ClientError, BadAnswer, OSError) as error:
            raise JobFailed(f"The quarantine queue '{name}' cannot be made: {error}") from error

    def _route(self, source: str, into: str | None) -> LetterRoute:
        is_new = into is not None and self._options.policy.creates and not self._options.resubmits
        if is_new and into is not None:  # a dry run makes nothing
            return LetterRoute(source, into, TRANSACTION)
        route = find_route(self._place.bus, source, into)
        if route.guarantee != TRANSACTION:
            raise JobFailed("Triage by policy needs Busway, which counts and moves in one step.")
        return route

    # -- one round

    def round(self) -> Round:
        """Raises JobFailed."""
        done = Round(not self._options.resubmits)
        spark = self._session()
        with (
            tempfile.TemporaryDirectory(prefix="busway-triage-") as folder,
            Plan(Path(folder) / "plan") as plan,
        ):
            with failing():
                plan.add(self._planned(self._letters(spark), done))
            if self._options.resubmits:
                self._move(spark, plan, done)
                done.outcomes = {name: count for name, count in plan.counts().items() if count}
                done.warnings += plan.refusals(3)
        figures = {action: done.of(action) for action in (RESUBMIT, QUARANTINE, LEAVE)}
        self._progress.tell(_sentence(done), total=done.total, **figures)
        return done

    def _letters(self, spark: SparkSession) -> DataFrame:
        """What the plan needs of each dead letter, and nothing that is large."""
        letters = columns.browse(spark, self._place, self._sources, self._names)
        browsed = columns.described(letters, datetime.now(UTC))
        return browsed.select(
            "source",
            "sequenceNumber",
            "messageId",
            "deadLetterReason",
            "deadLetterErrorDescription",
            "fingerprint",
            (F.col("state") == "deferred").alias("isDeferred"),
            columns.is_held().alias("isHeld"),
            _number(COUNT, "int").alias("count"),
            _number(FIRST, "bigint").alias("first"),
            _fitting(self._options.policy.rules, self._sources).alias("rule"),
        )

    def _planned(self, letters: DataFrame, done: Round) -> Iterator[PlanRow]:
        now_ms = time.time_ns() // 1_000_000
        for row in letters.toLocalIterator():
            rule = None if row["rule"] is None else self._options.policy.rules[row["rule"]]
            count = max(0, row["count"] or 0)
            action = HELD if row["isHeld"] else action_of(rule, count)
            place = self._place_of(row["source"], rule, action)
            group = TriagedGroup(
                self._sources[row["source"]],
                row["deadLetterReason"],
                row["fingerprint"],
                action,
                None if place is None else self._routes[place].destination,
            )
            _count(done.groups, group)
            if place is not None and rule is not None and self._options.resubmits:
                changes = self._changes(row, rule, action, count, now_ms)
                new_id = self._routes[place].message_id(row["messageId"], row["sequenceNumber"])
                if new_id is not None:
                    changes[MESSAGE_ID] = new_id
                yield place, row["sequenceNumber"], row["isDeferred"], changes

    def _place_of(self, source: int, rule: PolicyRule | None, action: str) -> int | None:
        if rule is None or action not in (RESUBMIT, QUARANTINE):
            return None
        return self._places[source, rule.quarantine if action == QUARANTINE else None]

    def _changes(self, row: Any, rule: PolicyRule, action: str, count: int, now_ms: int) -> dict[str, Any]:
        source = self._sources[row["source"]]
        if action == QUARANTINE:
            return quarantine(row["deadLetterReason"], row["deadLetterErrorDescription"], source, now_ms)
        return resubmission(rule, count, row["first"], now_ms, f"{source}/{row['sequenceNumber']}")

    def _move(self, spark: SparkSession, plan: Plan, done: Round) -> None:
        for at, route in enumerate(self._routes):
            if not plan.has_left(at):
                continue
            mover = TaskMover(
                spark, self._place.bus, route, at, plan, self._progress, wait_s=self._options.wait_s
            )
            if not mover.is_possible():
                raise JobFailed("The server has no route for dead letters; is it an older Busway?")
            mover.run()
            if mover.ended_early is not None:
                done.warnings.append(f"Not all of {route.source} were tried: {mover.ended_early}.")


def action_of(rule: PolicyRule | None, count: int) -> str:
    """Of a message that was resubmitted so often."""
    if rule is None:
        return LEAVE
    if count < rule.budget:
        return RESUBMIT
    return LEAVE if rule.quarantine is None else QUARANTINE


def _fitting(rules: Sequence[PolicyRule], sources: Sequence[str]) -> Column:
    """The place of the first rule that fits; null when none does."""
    fitting = F.lit(None).cast("int")
    for at, rule in reversed(list(enumerate(rules))):
        fitting = F.when(_condition(rule, sources), F.lit(at)).otherwise(fitting)
    return fitting


def _condition(rule: PolicyRule, sources: Sequence[str]) -> Column:
    held: list[Column] = []
    if rule.reason is not None:
        held.append(F.col("deadLetterReason").eqNullSafe(rule.reason))
    if rule.fingerprint is not None:
        held.append(F.col("fingerprint").eqNullSafe(rule.fingerprint))
    if rule.entity is not None:
        wanted = source_of(rule.entity).lower()
        held.append(F.col("source").isin([at for at, each in enumerate(sources) if each.lower() == wanted]))
    if rule.where is not None:
        held.append(F.coalesce(F.expr(rule.where), F.lit(False)))
    return reduce(lambda one, other: one & other, held, F.lit(True))


def _number(name: str, kind: str) -> Column:
    """A property of the message, if it is a number."""
    return F.try_variant_get(F.col("properties").getItem(name), "$", kind)


def _count(groups: Counter[TriagedGroup], group: TriagedGroup) -> None:
    if group not in groups and len(groups) >= GROUPS_MAX:
        group = TriagedGroup(group.entity, _OTHERS, _OTHERS, group.action, group.destination)
    groups[group] += 1


def _sentence(done: Round) -> str:
    would = "would be " if done.is_dry else ""
    return (
        f"{done.total} dead letters: {done.of(RESUBMIT)} {would}resubmitted,"
        f" {done.of(QUARANTINE)} {would}put in quarantine, {done.total - done.of(RESUBMIT) - done.of(QUARANTINE)}"
        " left."
    )
