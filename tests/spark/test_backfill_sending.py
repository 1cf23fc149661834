"""A task of a backfill, without Spark: what it sends, in which order, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from busway.rules.rule import FalseFilter, Rule, SqlAction, SqlFilter, TrueFilter
from busway_spark.pipeline.backfill import backfill_sending
from busway_spark.pipeline.backfill.backfill_plan import FILE, FRAGMENT, NUMBER, PLACE
from busway_spark.pipeline.backfill.backfill_sending import Sending
from busway_spark.rules.row_evaluator import RowEvaluator, captured_message
from busway_spark.rules.rule_columns import ASK, verdict_name
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.captured_topic import CapturedTopic

RULES = (Rule("all", TrueFilter()), Rule("mark", SqlFilter("EXISTS(b)"), SqlAction("SET marked = 1")))
MESSAGES = 240


@pytest.fixture
def topic(server: RunningServer, tmp_path: Path) -> CapturedTopic:
    found = CapturedTopic(server.connection_string, tmp_path / "lake")
    found.publish(MESSAGES)
    found.capture()
    found.subscribe("late", Rule("none", FalseFilter()))
    return found


def sending(topic: CapturedTopic, rules: tuple[Rule, ...]) -> Sending:
    files = {path.name: str(path.relative_to(topic.root)) for path in topic.root.rglob("*.parquet")}
    path = f"{topic.name}/Subscriptions/late"
    bus = Bus(topic.connection_string)
    return Sending(bus, str(topic.root), path, "busway-capture", rules, ((),) * len(rules), files)


def matches(topic: CapturedTopic, rules: tuple[Rule, ...]) -> Iterator[pa.RecordBatch]:
    """As Spark gives them: sorted by number, some in each batch."""
    evaluator = RowEvaluator(rules)
    found: list[dict[str, Any]] = []
    for path in topic.root.rglob("*.parquet"):
        with pq.ParquetFile(path) as file:
            rows = file.read().to_pylist()
        for place, row in enumerate(rows):
            match = {FILE: path.name, PLACE: place, NUMBER: row["sequenceNumber"], FRAGMENT: 0}
            for at in range(len(rules)):
                match[verdict_name(at)] = evaluator.verdict(at, captured_message(row), ASK)
            found.append(match)
    found.sort(key=lambda each: int(each[NUMBER]))
    kinds = {FILE: pa.string(), PLACE: pa.int64(), NUMBER: pa.int64(), FRAGMENT: pa.int32()}
    schema = pa.schema([*kinds.items(), *((verdict_name(at), pa.int8()) for at in range(len(rules)))])
    for first in range(0, len(found), 100):
        yield pa.RecordBatch.from_pylist(found[first : first + 100], schema=schema)


def told_by(task: Sending, topic: CapturedTopic) -> dict[str, Any]:
    (answer,) = task.send(matches(topic, task.rules))
    (row,) = answer.to_pylist()
    return row


def told(topic: CapturedTopic, rules: tuple[Rule, ...]) -> tuple[int, int]:
    row = told_by(sending(topic, rules), topic)
    return row["new"], row["known"]


def test_copies_arrive_in_the_order_of_their_messages_and_once(
    topic: CapturedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-70, T-4: plain copies and those of actions mixed, in many requests; a task that is repeated adds nothing."""
    monkeypatch.setattr(backfill_sending, "_LOT_COPIES", 7)
    new, known = told(topic, RULES)
    assert known == 0
    assert MESSAGES < new < 2 * MESSAGES
    assert told(topic, RULES) == (0, new)
    found = topic.take(f"{topic.name}/Subscriptions/late")
    order = [(int(str(each.message_id)[3:]), "marked" in each.application_properties) for each in found]
    assert order == sorted(order)
    assert len(order) == new == len(set(order))


def test_a_message_that_was_sent_as_it_is_is_known_when_it_is_looked_at_alone(topic: CapturedTopic) -> None:
    """E-70: ids do not depend on how a copy was made. A rule was added: its copies are new, the others are known."""
    assert told(topic, RULES[:1]) == (MESSAGES, 0)
    new, known = told(topic, RULES)
    assert known == MESSAGES
    assert 0 < new < MESSAGES


def test_a_task_to_which_nothing_is_left_sends_nothing(topic: CapturedTopic) -> None:
    """Backfill: every message was selected by a rule that has seen it."""
    rules = (Rule("old", TrueFilter()), Rule("new", TrueFilter()))
    seen = replace(sending(topic, rules), cuts=((0,), (MESSAGES,)))
    assert told_by(seen, topic) == {"new": 0, "known": 0, "failed": 0, "staged": None}


def test_a_queue_that_detects_duplicates_gets_history_once_by_amqp_alone(topic: CapturedTopic) -> None:
    """S-40: as of services that stage nothing; ids tell copies of one message apart, however they were made."""
    queue = f"{topic.name}-q"
    with topic.administration() as client:
        client.create_queue(queue, {"RequiresDuplicateDetection": True})
    into = replace(sending(topic, RULES), into=queue, detects_duplicates=True)
    counted = [told_by(into, topic)["new"] for _ in range(2)]
    found = topic.take(queue)
    assert counted == [len(found)] * 2
    numbers = {str(each.message_id): each.application_properties.get("marked") for each in found}
    assert len(numbers) == len(found) > MESSAGES
    assert all((("~mark" in name) == (marked == 1)) for name, marked in numbers.items())
    assert {name.partition("~")[0] for name in numbers} == {f"id-{at}" for at in range(1, MESSAGES + 1)}
