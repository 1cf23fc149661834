"""Rules as columns of captured files, and what they say of each row.

Theory of operation. Each rule becomes a verdict: selected, not selected, or *ask* (the broker's evaluator must say).
A rule that has no form in columns says *ask* of every row. A rule with an action also has a column with what its
statements set, in order, where it selects. Whoever reads the verdicts holds the rows that say *ask* against
`RowEvaluator`, which is the broker's own code; so the answer is always the broker's.

Rows that no rule can select are seen at their text, before any JSON is read (`prefilter`). A SQL filter with a part
`property = 'red'` or `property IN (…)` that nothing before it can keep from being evaluated (an *anchor*, as the
broker looks rules up by), and a correlation filter, select only messages whose properties hold that text. JSON writes
letters, digits and a few signs as they are, so the text must stand in it; a number must stand in it with its digits.
This is far cheaper than reading the JSON, and most rows of a selective rule end here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from busway.rules.anchors import AnchorKey, anchor_of
from busway.rules.compiled_rule import FixedFilter, compiled_filter, correlation_key
from busway.rules.evaluate import Compilation
from busway.rules.expression import And, Expression, Property, conjuncts_of, nodes_of
from busway.rules.parse import parse_action, parse_filter
from busway.rules.rule import CorrelationFilter, Rule, SqlAction
from busway_spark.rules import sql_values
from busway_spark.rules.captured_columns import NOT_CAPTURED, CapturedColumns
from busway_spark.rules.rule_sql import ActionSql, ConditionSql, correlation
from busway_spark.rules.sql_values import TEXT, OneKind, Unsupported, checked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: No writer of JSON has reason to write these in another way.
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,:-]+", re.ASCII)
#: A double as large as this has an exponent.
_DIGITS_BELOW: Final = 10**15
NOT_SELECTED: Final = 0
SELECTED: Final = 1
ASK: Final = 2
COLUMNS: Final = "columns"
EVALUATOR: Final = "evaluator"


def prefilter(rules: Sequence[Rule], columns: CapturedColumns) -> str | None:
    """True for every row that one of the rules may select or fail on; None when nothing is known of one of them."""
    parts: list[str] = []
    for rule in rules:
        part = _part(rule, columns)
        if part is None:
            return None
        parts.append(part)
    return sql_values.any_of(parts)


def _part(rule: Rule, columns: CapturedColumns) -> str | None:
    if isinstance(rule.filter, CorrelationFilter):
        return _correlation(rule.filter, columns)
    fixed = compiled_filter(rule.filter, _no_id)
    if isinstance(fixed, FixedFilter):
        return None if fixed.is_true else "false"
    compilation = Compilation(rule.filter.expression, rule.filter.parameters, _no_id)
    anchor = anchor_of(conjuncts_of(parse_filter(rule.filter.expression)), compilation)
    return None if anchor is None else _holds(anchor.is_system, anchor.name, anchor.keys, columns)


def _correlation(filter_: CorrelationFilter, columns: CapturedColumns) -> str | None:
    key = correlation_key(filter_)
    parts: list[str] = []
    for (is_system, name), wanted in zip(key.shape, key.keys, strict=True):
        keys = [wanted] if isinstance(wanted, str | int) else []
        part = _holds(is_system, name, keys, columns) if keys else None
        if part is not None:
            parts.append(part)
    return "(" + " AND ".join(parts) + ")" if parts else None


def _holds(is_system: bool, name: str, keys: Sequence[AnchorKey], columns: CapturedColumns) -> str | None:
    if is_system:
        form = columns.system(name)
        if not isinstance(form, OneKind) or form.kind != TEXT:
            return None
        texts = [sql_values.text(key) for key in keys if isinstance(key, str)]
        return f"coalesce({form.sql} IN ({', '.join(texts)}), false)" if texts else "false"
    words = [_word(key) for key in keys]
    if any(word is None for word in words):
        return None
    return sql_values.any_of(
        [f"contains(`properties`, {sql_values.text(word)})" for word in words if word is not None]
    )


def _word(key: AnchorKey) -> str | None:
    """What stands in the JSON of every message that has this value."""
    if isinstance(key, str):
        return key if _PLAIN.fullmatch(key) is not None else None
    return str(abs(key)) if abs(key) < _DIGITS_BELOW else None


def _no_id() -> UUID:
    return UUID(int=0)


@dataclass(frozen=True)
class RuleColumn:
    """One rule. `verdict` is SQL; `sets` too: a struct with a struct (`sql_values.AnyKind`) for each SET, and whether
    the evaluator must be asked. None where the rule has no action or the evaluator must carry it out."""

    rule: Rule
    verdict: str
    sets: str | None
    #: Why the evaluator must be asked, of the filter and of the action; None where columns do.
    filter_reason: str | None = None
    action_reason: str | None = None

    def explain(self) -> str:
        parts = [f"filter {_way(self.filter_reason)}"]
        if self.rule.action is not None:
            parts.append(f"action {_way(self.action_reason)}")
        return f"{self.rule.name}: {', '.join(parts)}"


class RuleColumns:
    """Several rules over the same rows. `skips`: rows that no rule can select may be left out. Raises
    RuleSyntaxError."""

    def __init__(self, rules: Sequence[Rule], *, skips: bool = False) -> None:
        self._captured = CapturedColumns()
        self.rules = [_compiled(rule, self._captured) for rule in rules]
        #: SQL that is true for every row that any rule may select or fail on; None: for all.
        self.prefilter = prefilter(rules, self._captured) if skips else None

    @property
    def columns(self) -> list[str]:
        """Of captured files, that the rules read."""
        return list(self._captured.columns)

    def explain(self) -> list[str]:
        """One line for each rule: which way it is evaluated, and why not by columns."""
        return [rule.explain() for rule in self.rules]

    def applied(self, rows: DataFrame) -> DataFrame:
        """The rows with a column `verdict_N` for rule N, and `sets_N` where it has an action in columns. Rows that no
        rule can select, as the text of their properties tells, are left out."""
        used = [text for rule in self.rules for text in (rule.verdict, rule.sets) if text is not None]
        if self.prefilter is not None:
            rows = rows.where(self.prefilter)
        for step in self._captured.steps(used):
            rows = rows.selectExpr("*", step)
        verdicts = [f"{rule.verdict} AS {verdict_name(at)}" for at, rule in enumerate(self.rules)]
        rows = rows.selectExpr("*", *verdicts)
        sets = [
            f"IF({verdict_name(at)} = {SELECTED}, {rule.sets}, NULL) AS {sets_name(at)}"
            for at, rule in enumerate(self.rules)
            if rule.sets is not None
        ]
        return rows.selectExpr("*", *sets) if sets else rows


def verdict_name(at: int) -> str:
    return f"verdict_{at}"


def sets_name(at: int) -> str:
    return f"sets_{at}"


def _way(reason: str | None) -> str:
    return f"by {COLUMNS}" if reason is None else f"by {EVALUATOR} ({reason})"


def _compiled(rule: Rule, captured: CapturedColumns) -> RuleColumn:
    """Faults in the text are found by the broker's own compilation, so they read as the broker's."""
    verdict, filter_reason = _verdict(rule, captured)
    sets, action_reason = (None, None) if rule.action is None else _sets(rule.action, captured)
    return RuleColumn(rule, verdict, sets, filter_reason, action_reason)


def _verdict(rule: Rule, captured: CapturedColumns) -> tuple[str, str | None]:
    compiled = compiled_filter(rule.filter, _new_id)
    if isinstance(compiled, FixedFilter):
        return _verdict_sql(sql_values.boolean(compiled.is_true), []), None
    try:
        if isinstance(rule.filter, CorrelationFilter):
            truth, asks = correlation(correlation_key(rule.filter), captured)
        else:
            tree = parse_filter(rule.filter.expression)
            condition = ConditionSql(
                Compilation(rule.filter.expression, rule.filter.parameters, _new_id), captured
            )
            truth, asks = condition.condition(tree)
        return _verdict_sql(truth, asks), None
    except Unsupported as reason:
        return f"CAST({ASK} AS TINYINT)", str(reason)


def _verdict_sql(truth: str, asks: list[str]) -> str:
    asked = f"WHEN {sql_values.any_of(asks)} THEN {ASK} " if asks else ""
    return f"CAST(CASE {asked}WHEN {truth} THEN {SELECTED} ELSE {NOT_SELECTED} END AS TINYINT)"


def _sets(action: SqlAction, captured: CapturedColumns) -> tuple[str | None, str | None]:
    try:
        compilation = Compilation(action.expression, action.parameters, _new_id)
        sql = ActionSql(parse_action(action.expression), compilation, captured)
        fields = "".join(f"'s{at}', {value}, " for at, value in enumerate(sql.values))
        return checked(f"named_struct({fields}'asks', {sql_values.any_of(list(sql.asks))})"), None
    except Unsupported as reason:
        return None, str(reason)


def not_captured(rules: Sequence[Rule]) -> list[str]:
    """The system properties that rules read and captured files do not have."""
    found: set[str] = set()
    for rule in rules:
        trees: list[Expression] = []
        if not isinstance(rule.filter, CorrelationFilter):
            trees.append(parse_filter(rule.filter.expression))
        if rule.action is not None:
            statements = parse_action(rule.action.expression)
            trees += [value for each in statements if (value := getattr(each, "value", None)) is not None]
        nodes = nodes_of(And(tuple(trees)))
        found |= {node.name for node in nodes if isinstance(node, Property) and node.is_system} & NOT_CAPTURED
    return sorted(found)


def _new_id() -> UUID:
    return uuid4()
