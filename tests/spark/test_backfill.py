"""`busway pipeline backfill`: a new subscription gets its history, as if it had been there."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from busway.rules.rule import CorrelationFilter, Rule, SqlAction, SqlFilter, TrueFilter
from busway_spark.pipeline.backfill import backfill as job
from busway_spark.pipeline.backfill.backfill import backfill
from busway_spark.pipeline.backfill.backfill_copies import repeat_id
from busway_spark.pipeline.backfill.backfill_plan import BackfillClient, plan
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.job import JobFailed, JobProgress
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.captured_topic import CapturedTopic

ACTION = SqlAction(
    "SET b = b; SET seen = sys.MessageId; REMOVE status; SET n = size + 1; SET sys.Label = 'copy'"
)
RULES = (
    Rule("some", SqlFilter("a = 'a' OR size > 2 OR sys.Label LIKE 'a%'")),
    Rule("mark", SqlFilter("EXISTS(b)"), ACTION),
    Rule("asks", SqlFilter("10 / size > 1 OR a LIKE b")),
)
LATER = Rule("later", CorrelationFilter(label="ab"))


class Stopping(JobProgress):
    """Somebody stops it when the first step is done."""

    def tell(self, sentence: str, **figures: object) -> None:
        del sentence
        if "looked_at" in figures:
            self.stop()


@pytest.mark.usefixtures("spark")
def test_a_backfilled_subscription_has_what_a_live_one_received(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-70, T-4, T-8: of a partitioned topic; rules that began at different times; stopped and started again."""
    topic = CapturedTopic(server.connection_string, tmp_path / "lake", is_partitioned=True)
    topic.subscribe("live", *RULES, LATER)
    topic.publish(160)
    topic.subscribe("late", *RULES)
    topic.publish(40)
    with topic.administration() as client:
        client.create_rule(topic.name, "late", LATER)
    topic.publish(60)
    topic.capture(files=2)
    monkeypatch.setattr(job, "_STEP_FILES", len(list(topic.root.rglob("*.parquet"))) // 2)

    trial = backfill(topic.place(), topic.options("late", dry_run=True), JobProgress())
    assert (trial.wanted, trial.captured, trial.sent, trial.is_done) == (200, 200, 0, True)
    assert [each["rule"] for each in trial.rules] == ["asks", "later", "mark", "some"]
    assert trial.ways[0].startswith("asks: filter by evaluator")
    first = backfill(topic.place(), topic.options("late"), Stopping())
    assert first.sent > 0
    assert not first.is_done
    rest = backfill(topic.place(), topic.options("late"), JobProgress())
    assert (rest.known, rest.is_done) == (first.sent, True)
    assert rest.sent > 0
    live, late = topic.seen("live"), topic.seen("late")
    assert late == live, _difference(live, late)
    assert sum(late.values()) > 200


def _difference(live: Counter[str], late: Counter[str]) -> str:
    return "\n".join(["missing:", *(live - late), "too much:", *(late - live)])


@pytest.mark.usefixtures("spark")
def test_a_queue_gets_history_once_where_it_detects_duplicates(server: RunningServer, tmp_path: Path) -> None:
    """S-40: ids that tell copies apart; without a rule's beginning, before a moment."""
    topic = CapturedTopic(server.connection_string, tmp_path / "lake")
    topic.publish(30)
    topic.subscribe("late", Rule("all", TrueFilter()), Rule("two", SqlFilter("1=1"), SqlAction("SET x = 1")))
    topic.capture()
    with topic.administration() as client:
        client.create_queue(f"{topic.name}-q", {"RequiresDuplicateDetection": True})
    options = topic.options("late", into=f"{topic.name}-q", before_us=4_000_000_000_000_000)
    for _ in range(2):
        assert backfill(topic.place(), options, JobProgress()).is_done
    found = topic.take(f"{topic.name}-q")
    assert len(found) == 60
    assert sum("RuleName" in each.application_properties for each in found) == 30
    assert {str(each.message_id).partition("~")[0] for each in found} == {f"id-{n}" for n in range(1, 31)}


@pytest.mark.usefixtures("spark")
def test_any_queue_of_ours_gets_history_once(server: RunningServer, tmp_path: Path) -> None:
    """Two-phase sinks: what a step sends is staged and decided about once, though the queue does not detect
    duplicates and the command is started again."""
    topic = CapturedTopic(server.connection_string, tmp_path / "lake")
    topic.publish(30)
    topic.subscribe("late", Rule("all", TrueFilter()))
    topic.capture()
    with topic.administration() as client:
        client.create_queue(f"{topic.name}-q")
    options = topic.options("late", into=f"{topic.name}-q", before_us=4_000_000_000_000_000)
    sent = [backfill(topic.place(), options, JobProgress()).sent for _ in range(2)]
    assert sent == [30, 0]
    assert len(topic.take(f"{topic.name}-q")) == 30


@pytest.mark.usefixtures("spark")
def test_history_before_a_moment_ends_at_that_moment(server: RunningServer, tmp_path: Path) -> None:
    """Backfill: within a file, between files, and behind all of them."""
    topic = CapturedTopic(server.connection_string, tmp_path / "lake")
    topic.publish(40)
    topic.subscribe("late", Rule("all", TrueFilter()))
    topic.capture(files=2)
    tables = [pq.read_table(path, columns=["enqueuedTime"]) for path in topic.root.rglob("*.parquet")]
    times = sorted(time for table in tables for time in table["enqueuedTime"].cast(pa.int64()).to_pylist())
    for moment in (times[0] + 1, times[20], times[-1], times[-1] + 1):
        options = topic.options("late", before_us=moment, dry_run=True)
        found = backfill(topic.place(), options, JobProgress()).rules
        # What is sent together has one time: there may be nothing before it, and no rule is told of then.
        assert sum(each["selected"] for each in found) == sum(time < moment for time in times), moment


# -- without Spark


@pytest.fixture
def topic(server: RunningServer, tmp_path: Path) -> CapturedTopic:
    return CapturedTopic(server.connection_string, tmp_path / "lake")


def test_a_history_with_holes_is_refused_before_anything_is_sent(topic: CapturedTopic) -> None:
    """E-70: numbers without gaps tell what is missing; --partial goes on without it."""
    topic.publish(10)
    topic.capture(files=2)
    topic.publish(5)
    topic.subscribe("late", Rule("all", TrueFilter()))
    root = CaptureRoot(str(topic.root))
    found = plan(topic.place(), root, topic.options("late"))
    assert (found.wanted, found.captured, found.cuts) == (15, 10, ((15,),))
    with pytest.raises(JobFailed, match=r"5 are not captured yet.*--partial"):
        backfill(topic.place(), topic.options("late"), JobProgress())


def test_a_rule_that_saw_the_whole_capture_has_no_history(topic: CapturedTopic) -> None:
    """E-70: it was there before the captured subscription."""
    with topic.administration() as client:
        client.delete_subscription(topic.name, "busway-capture")
        topic.subscribe("early", Rule("all", TrueFilter()))
        client.create_subscription(topic.name, "busway-capture", {"UserMetadata": "busway pipeline capture"})
    topic.publish(4)
    topic.capture()
    result = backfill(topic.place(), topic.options("early"), JobProgress())
    assert (result.wanted, result.sent, result.is_done) == (0, 0, True)


def test_wrong_calls_say_what_is_wrong(topic: CapturedTopic) -> None:
    """One sentence each, before Spark starts."""
    topic.subscribe("late", Rule("size", SqlFilter("sys.Size > 1")))
    with pytest.raises(JobFailed, match="holds no messages of"):
        backfill(topic.place(), topic.options("late"), JobProgress())
    topic.publish(2)
    topic.capture()
    refusals: Mapping[str, dict[str, object]] = {
        "not captured through": {"through": "other"},
        "is a topic, not a queue": {"into": topic.name, "before_us": 4_000_000_000_000_000, "partial": True},
        "sys.Size, which a rule reads, is not captured": {},
    }
    for sentence, more in refusals.items():
        with pytest.raises(JobFailed, match=sentence):
            backfill(topic.place(), topic.options("late", **more), JobProgress())
    with pytest.raises(JobFailed, match="cannot be read"):
        backfill(topic.place(), topic.options("nobody"), JobProgress())


def test_the_door_for_history_is_for_managers_alone(topic: CapturedTopic) -> None:
    """A-9: Send and Listen are not enough; what is no copy is refused."""
    topic.subscribe("late", Rule("all", TrueFilter()))
    path = f"{topic.name}/Subscriptions/late"
    door = BackfillClient(Bus(topic.connection_string), path)
    assert door.store(0, b"") == (0, 0)
    with pytest.raises(JobFailed, match="one fragment"):
        door.store(7, _copy(b"id", b"", b""))
    with pytest.raises(JobFailed, match="cannot be read"):
        door.store(0, _copy(b"id", b"", b"no message"))
    with pytest.raises(JobFailed, match="reason and description"):
        door.store(0, _copy(b"id", b"[]", b"\x00Su\xa0\x01x"))
    bus = Bus(topic.connection_string)
    connection = bus.http_connection()
    assert _status(connection, f"/$backfill/{path}", {}) == 401
    assert (
        _status(connection, f"/$backfill/{topic.name}", {"Authorization": bus.authorization(topic.name)})
        == 404
    )
    connection.close()


def _copy(*pieces: bytes) -> bytes:
    return b"".join(len(piece).to_bytes(4, "big") + piece for piece in pieces)


def _status(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> int:
    connection.request("POST", path, b"\x00\x00", headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_the_id_of_a_copy_for_a_queue_keeps_the_original_and_fits() -> None:
    """L-8: 128 characters."""
    assert repeat_id("m" * 128, 7, "") == "m" * 126 + "~7"
    assert repeat_id("m", 7, "r") == "m~7~r"
    assert repeat_id(None, 7, "") == "~7"
    assert len(repeat_id("m" * 128, 1 << 62, "r" * 50)) == 128
