"""Rules as columns of Spark: both back ends of the tree say the same of every message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from busway.message.message import Message
from busway.message.message_subject import changed_copy
from busway.model.description_checks import check_rule
from busway.rules.compiled_rule import ActingRule, CompiledRule
from busway.rules.expression import nodes_of
from busway.rules.parse import parse_filter
from busway.rules.printed import printed
from busway.rules.rule import (
    ActionError,
    CorrelationFilter,
    FalseFilter,
    Rule,
    RuleSyntaxError,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from busway_spark.pipeline.captured.captured import SCHEMA
from busway_spark.rules.captured_columns import CapturedColumns, name_pattern
from busway_spark.rules.row_evaluator import Copy, Failure, RowEvaluator, captured_message
from busway_spark.rules.rule_columns import (
    ASK,
    NOT_SELECTED,
    SELECTED,
    RuleColumns,
    not_captured,
    prefilter,
    sets_name,
    verdict_name,
)
from tests.spark.random_rules import AN_ID, PARAMETERS, RandomRules, shown_row

#: Another one: BUSWAY_RULE_SEED=7 pytest …
SEED = int(os.environ.get("BUSWAY_RULE_SEED", "20261115"))
Row = dict[str, object]


ANCHORED = (
    Rule("text", SqlFilter("a = 'ab' AND size IS NULL")),
    Rule("integer", SqlFilter("size = 7")),
    Rule("several", SqlFilter("EXISTS(b) AND status IN (1, 10, 'a')")),
    Rule("system", SqlFilter("sys.Label = 'a' AND a <> 'b'")),
    Rule("both", CorrelationFilter(label="b", properties=(("A", TypedValue("string", "ab")),))),
    Rule("number", CorrelationFilter(properties=(("size", TypedValue("int", 1)),))),
)


def table(spark: SparkSession, rows: list[Row]) -> DataFrame:
    listed = [{name: row.get(name) for name in SCHEMA.names} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(listed, schema=SCHEMA))


def told(spark: SparkSession, columns: RuleColumns, rows: list[Row]) -> dict[int, dict[str, Any]]:
    """By number what the columns say."""
    names = [verdict_name(at) for at in range(len(columns.rules))]
    names += [sets_name(at) for at, rule in enumerate(columns.rules) if rule.sets is not None]
    found = columns.applied(table(spark, rows)).select("sequenceNumber", *names).toArrow()
    return {row["sequenceNumber"]: row for row in found.to_pylist()}


@pytest.fixture(scope="module", autouse=True)
def _compiled(spark: SparkSession) -> Iterator[None]:
    """As Spark does it by itself, other than in the rest of the tests: columns are what it compiles."""
    names = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    with _set(spark, names):
        yield


def interpreted(spark: SparkSession) -> AbstractContextManager[None]:
    """A hundred rules in one select are more code than is worth compiling."""
    names = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    return _set(spark, names)


@contextmanager
def _set(spark: SparkSession, names: dict[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def disagreements(
    rules: list[Rule], rows: list[Row], said: dict[int, dict[str, Any]]
) -> list[tuple[Rule, Row, int]]:
    evaluator = RowEvaluator(rules)
    found: list[tuple[Rule, Row, int]] = []
    for row in rows:
        message = captured_message(row)
        verdicts = said[int(str(row["sequenceNumber"]))]
        for at, rule in enumerate(rules):
            verdict = verdicts[verdict_name(at)]
            if verdict != ASK and verdict != evaluator.verdict(at, message, ASK):
                found.append((rule, row, verdict))
    return found


def minimised(spark: SparkSession, rule: Rule, row: Row) -> str:
    """The smallest part of the rule, and of the message, that still disagrees; and how to see it again."""
    rules = [rule]
    if isinstance(rule.filter, SqlFilter):
        for node in nodes_of(parse_filter(rule.filter.expression)):
            part = Rule("part", SqlFilter(printed(node), rule.filter.parameters))
            try:
                check_rule(part)
            except RuleSyntaxError:
                continue
            rules.append(part)
    bad = disagreements(rules, [row], told(spark, RuleColumns(rules), [row]))
    smallest = min((each[0] for each in bad), key=lambda one: len(str(one.filter)), default=rule)
    for name in [name for name in row if name not in ("sequenceNumber", "enqueuedTime")]:
        smaller = {key: value for key, value in row.items() if key != name}
        if disagreements([smallest], [smaller], told(spark, RuleColumns([smallest]), [smaller])):
            row = smaller
    return f"BUSWAY_RULE_SEED={SEED}\n  {smallest.filter}\n  {shown_row(row)}"


def test_both_back_ends_agree_on_random_rules_and_messages(spark: SparkSession) -> None:
    """T-20…T-44: 100 rules of every kind, each of 150 messages: 15,000 pairs."""
    chance = RandomRules(SEED)
    rows = [chance.row(number) for number in range(1, 151)]
    rules = [chance.rule(number) for number in range(100 - len(ANCHORED))] + list(ANCHORED)
    columns = RuleColumns(rules)
    with interpreted(spark):
        said = told(spark, columns, rows)
        bad = disagreements(rules, rows, said)
        assert not bad, f"{len(bad)} pairs; the first:\n" + minimised(spark, bad[0][0], bad[0][1])
    by_columns = [at for at, rule in enumerate(columns.rules) if rule.filter_reason is None]
    verdicts = [row[verdict_name(at)] for row in said.values() for at in by_columns]
    assert len(verdicts) > 10_000
    assert verdicts.count(SELECTED) > 500
    assert verdicts.count(ASK) < len(verdicts) // 10, "the columns leave too much to the evaluator"


def test_a_row_that_is_skipped_is_one_that_no_rule_selects(spark: SparkSession) -> None:
    """T-33: what is seen at the text of properties agrees with the evaluator, and is worth it."""
    chance = RandomRules(SEED + 2)
    rows = [chance.row(number) for number in range(1, 151)]
    parts = [prefilter([rule], CapturedColumns()) for rule in ANCHORED]
    assert None not in parts
    with interpreted(spark):
        named = [f"coalesce({part}, false) AS may_{at}" for at, part in enumerate(parts)]
        found = table(spark, rows).selectExpr("sequenceNumber", *named).toArrow().to_pylist()
    evaluator = RowEvaluator(ANCHORED)
    skipped = 0
    for row, may in zip(rows, sorted(found, key=lambda each: each["sequenceNumber"]), strict=True):
        for at, rule in enumerate(ANCHORED):
            if not may[f"may_{at}"]:
                skipped += 1
                assert evaluator.verdict(at, captured_message(row), ASK) == NOT_SELECTED, (
                    rule,
                    shown_row(row),
                )
    assert skipped > len(rows) * len(ANCHORED) // 3


def test_rules_without_such_a_part_skip_nothing() -> None:
    """T-33: a row that only one of several rules may select stays."""
    alone, other = Rule("a", SqlFilter("a = 'red'")), Rule("b", SqlFilter("a > 1"))
    escaped, fails = Rule("c", SqlFilter("a = 'é'")), Rule("d", SqlFilter("1 / b = 1 AND a = 'red'"))
    assert RuleColumns([alone], skips=True).prefilter is not None
    assert RuleColumns([alone]).prefilter is None
    for rules in ([alone, other], [escaped], [fails], [Rule("e", TrueFilter())]):
        assert RuleColumns(rules, skips=True).prefilter is None
    assert RuleColumns([alone, Rule("f", FalseFilter())], skips=True).prefilter is not None


def test_both_back_ends_make_the_same_copies(spark: SparkSession) -> None:
    """T-50…T-54, T-6: 30 actions, each on 50 messages: 1,500 pairs, byte for byte."""
    chance = RandomRules(SEED + 1)
    rows = [chance.row(number) for number in range(1, 51)]
    rules = [chance.rule(number, acts=True) for number in range(30)]
    columns = RuleColumns(rules)
    with interpreted(spark):
        said = told(spark, columns, rows)
    evaluator = RowEvaluator(rules)
    compiled = [CompiledRule("", at, rule, lambda: AN_ID) for at, rule in enumerate(rules)]
    by_columns = 0
    for row in rows:
        message = captured_message(row)
        for at, rule in enumerate(rules):
            sets = said[int(str(row["sequenceNumber"]))].get(sets_name(at))
            if sets is None or sets["asks"] or any(sets[name]["a"] for name in sets if name != "asks"):
                continue
            by_columns += 1
            acting = compiled[at].acting
            assert acting is not None
            hint = f"BUSWAY_RULE_SEED={SEED}\n  {rule.action}\n  {shown_row(row)}"
            assert outcome(evaluator.copy(at, message, sets)) == wanted_outcome(message, acting), hint
    assert by_columns >= 600


def outcome(made: Copy | Failure) -> tuple[object, ...]:
    if isinstance(made, Failure):
        return (made.sentence,)
    copy = made.message
    return copy.bare, copy.head, copy.ttl_ms, copy.session_id, copy.partition_key


def wanted_outcome(message: Message, acting: ActingRule) -> tuple[object, ...]:
    try:
        return outcome(Copy(acting.name, changed_copy(message, acting)))
    except ActionError as error:
        return (str(error),)


COMMON = (
    "color = 'red' AND quantity > 3",
    "priority IN (1, 2, 3) OR sys.Label LIKE 'ord%'",
    "NOT (color = 'red') AND EXISTS(quantity)",
    "quantity * 2 >= 7.5 AND color IS NOT NULL",
    "sys.CorrelationId = 'x' OR [Straße] <> 'b'",
    "color LIKE '%r_d%' AND color NOT LIKE 'a\\%%' ESCAPE '\\'",
)


def test_common_filters_run_compiled_and_agree(spark: SparkSession) -> None:
    """T-27, T-29, T-33: with Spark's code generation on, as jobs run."""
    rules = [Rule(f"r{at}", SqlFilter(text)) for at, text in enumerate(COMMON)]
    rules.append(
        Rule("c", CorrelationFilter(label="order", properties=(("Color", TypedValue("string", "red")),)))
    )
    columns = RuleColumns(rules)
    assert all(rule.filter_reason is None for rule in columns.rules)
    rows: list[Row] = []
    for number in range(1, 101):
        color = ("red", "rxd", "a%", "Rød")[number % 4]
        row = RandomRules(number).row(number)
        row["properties"] = f'{{"COLOR": "{color}", "quantity": {number % 9}.0, "p": null}}'
        rows.append({**row, "propertyTypes": None, "subject": ("order", None, "ordinary")[number % 3]})
    said = told(spark, columns, rows)
    assert not disagreements(rules, rows, said)
    assert all(any(row[verdict_name(at)] == SELECTED for row in said.values()) for at in (0, 1, 2, 3, 5, 6))


def test_a_message_beyond_the_budget_of_a_rule_is_the_evaluator_s(spark: SparkSession) -> None:
    """T-60: a rule that walks over too many characters fails in both back ends, for the same messages."""
    gap = (("@x", TypedValue("string", "%a_b%")),)
    rules = [
        Rule("far", SqlFilter(" OR ".join(["p LIKE @x"] * 60), gap)),
        Rule("near", SqlFilter(" OR ".join(["p LIKE @x"] * 30), gap)),
        Rule("label", SqlFilter(" OR ".join(["sys.Label LIKE @x"] * 40), gap)),
        Rule("made", SqlFilter(" OR ".join(["(p + 'c') LIKE @x"] * 3), gap)),
    ]
    columns = RuleColumns(rules)
    assert [rule.filter_reason for rule in columns.rules] == [None] * 4
    long, short = RandomRules(SEED).row(1), RandomRules(SEED).row(2)
    long.update({"properties": f'{{"p": "{"a" * 32_000}"}}', "propertyTypes": None, "subject": "s" * 32_000})
    short.update({"properties": '{"p": "acb"}', "propertyTypes": None, "subject": None})
    rows = [long, short]
    with interpreted(spark):
        said = told(spark, columns, rows)
    assert [said[1][verdict_name(at)] for at in range(4)] == [ASK, NOT_SELECTED, ASK, NOT_SELECTED]
    assert [said[2][verdict_name(at)] for at in range(4)] == [SELECTED, SELECTED, NOT_SELECTED, SELECTED]
    assert not disagreements(rules, rows, said)
    evaluator = RowEvaluator(rules)
    assert isinstance(evaluator.verdict(0, captured_message(rows[0]), ASK), Failure)
    many = Rule("made", SqlFilter(" OR ".join(["(p + 'c') LIKE @x"] * 20), gap))
    assert RuleColumns([many]).rules[0].filter_reason == "LIKE with very long texts"


# -- without Spark


def test_a_rule_says_which_way_it_is_evaluated() -> None:
    """T-20: what columns cannot say is named."""
    rules = [
        Rule("plain", SqlFilter("a = 1")),
        Rule("pattern", SqlFilter("a LIKE b")),
        Rule("chance", SqlFilter("a = 1"), SqlAction("SET b = newid()")),
        Rule("both", SqlFilter("property(b) = 1"), SqlAction("SET b = a + 1; REMOVE c")),
    ]
    assert RuleColumns(rules).explain() == [
        "plain: filter by columns",
        "pattern: filter by evaluator (LIKE with a pattern out of the message)",
        "chance: filter by columns, action by evaluator (newid())",
        "both: filter by evaluator (property() with a name out of the message), action by columns",
    ]


def test_only_the_columns_that_rules_read_are_read() -> None:
    """Bodies never, properties only where a rule names one."""
    assert RuleColumns([Rule("r", SqlFilter("sys.Label = 'a' AND sys.To IS NULL"))]).columns == [
        "subject",
        "to",
    ]
    assert RuleColumns([Rule("r", SqlFilter("a = 1"))]).columns == ["properties", "propertyTypes"]
    assert RuleColumns([Rule("r", TrueFilter()), Rule("s", FalseFilter())]).columns == []


def test_what_is_not_captured_is_named() -> None:
    """T-24: a rule may read what no captured file has."""
    rules = [
        Rule("a", SqlFilter("sys.Size > 10 AND sys.Label = 'x'"), SqlAction("SET y = sys.ViaPartitionKey")),
        Rule("b", CorrelationFilter(label="x")),
    ]
    assert not_captured(rules) == ["Size", "ViaPartitionKey"]


@pytest.mark.parametrize("name", ["a", "status", "straße", "office", "K"])
def test_a_name_pattern_is_the_broker_s_folding(name: str) -> None:
    """T-22: every spelling that folds alike, and no other."""
    import re

    pattern = re.compile(
        re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: "\\U" + found[1].zfill(8), name_pattern(name)).replace(
            "\\z", "\\Z"
        )
    )
    spellings = [
        name,
        name.upper(),
        name.title(),
        name.casefold(),
        name.replace("s", "ſ"),
        name.replace("st", "ﬆ"),
    ]
    spellings += [
        name.replace("ss", "ß"),
        name.replace("ffi", "ﬃ"),
        name.replace("K", "\u212a"),
        name + "x",
        "ı",
    ]
    for spelling in spellings:
        assert (pattern.search(spelling) is not None) == (spelling.casefold() == name.casefold()), spelling


def test_a_fault_in_a_rule_reads_as_the_broker_s() -> None:
    """T-36: the sentence is the one that the broker says."""
    with pytest.raises(RuleSyntaxError, match="expected"):
        RuleColumns([Rule("r", SqlFilter("a = "))])


def test_an_expression_that_would_explode_is_the_evaluator_s() -> None:
    """T-53: statements that double what those before them made."""
    text = "; ".join(["SET a = a + a + a"] * 20)
    (rule,) = RuleColumns([Rule("r", TrueFilter(), SqlAction(text))]).rules
    assert rule.action_reason == "an expression that would be very long"


def test_verdicts_that_ask_are_the_evaluator_s() -> None:
    """T-29, T-60: a failing filter is a failure that names the rule; others are what the broker says."""
    evaluator = RowEvaluator([Rule("r", SqlFilter("1 / a = 1", PARAMETERS))])
    rows = [{"properties": '{"a": 0}'}, {"properties": '{"a": 1}'}, {"properties": "{}"}]
    verdicts = [evaluator.verdict(0, captured_message(row), ASK) for row in rows]
    failure = verdicts[0]
    assert isinstance(failure, Failure)
    assert (failure.reason, "'r'" in failure.sentence) == ("FilterException", True)
    assert verdicts[1:] == [SELECTED, NOT_SELECTED]
    assert evaluator.verdict(0, captured_message(rows[0]), SELECTED) == SELECTED
