"""The client of two-phase writes: names, parts, repetitions; without Spark's tasks and without a bus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from busway_spark.amqp_arrays.encoding import EncodedRows
from busway_spark.wire.bus import Bus, BusFailure
from busway_spark.wire.http_client import connection_pool
from busway_spark.writing import two_phase
from busway_spark.writing.two_phase import (
    RowsRefused,
    RowsStaged,
    StagingRoutes,
    TaskStage,
    WriteRefused,
    decide,
    drop_stages,
)
from busway_spark.writing.write_names import (
    JOB,
    STREAM,
    GivenName,
    Running,
    SinkWrite,
    of_job,
    of_stream,
    repeats_warning,
)
from tests.spark.scripted_door import HANG_UP, answer, scripted

PLAIN = GivenName("'q'")
NAMED = GivenName("'q'", "nightly")
IN_STREAM = Running("3a469d88-b82c-4be5-a2db-71d730a87f36", 7, True)
#: As tasks of an inner write see it on Spark Connect.
IN_SOME_STREAM = Running(is_in_stream=True)
NAME = SinkWrite("query-x", 7, STREAM)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    yield
    connection_pool().close()


# -- names


def test_a_stream_is_known_by_its_query_and_the_name_that_was_given() -> None:
    """Two-phase sinks: the same name in each try of a batch, another one for another query or name."""
    assert of_stream(PLAIN, IN_STREAM) == SinkWrite(f"query-{IN_STREAM.query}", 7, STREAM)
    named = of_stream(NAMED, IN_STREAM)
    assert (named.batch, named.kind) == (7, STREAM)
    assert named.write.startswith(f"query-{IN_STREAM.query}-nightly-")
    assert named == of_stream(NAMED, IN_STREAM)
    assert named != of_stream(GivenName("'q'", "daily"), IN_STREAM)
    with pytest.raises(BusFailure, match="does not tell which batch"):
        of_stream(PLAIN, Running())
    with pytest.raises(BusFailure, match="batchId is for writes inside of foreachBatch"):
        of_stream(replace(NAMED, batch_id=1), IN_STREAM)


def test_a_job_is_known_by_chance_or_by_the_name_that_was_given() -> None:
    """Two-phase sinks: one name used for two entities means two writes."""
    assert of_job(PLAIN, "random", Running()) == SinkWrite("job-random", 0, JOB)
    assert of_job(NAMED, "one", Running()) == of_job(NAMED, "other", Running())
    assert of_job(NAMED, "one", Running()) != of_job(replace(NAMED, target="'p'"), "one", Running())
    long = of_job(GivenName("'q'", "ü/ " * 21), "one", IN_STREAM).write
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", long)
    with pytest.raises(BusFailure, match="give both"):
        of_job(replace(PLAIN, batch_id=1), "one", Running())


def test_a_write_inside_of_a_stream_adds_the_batch_to_its_name() -> None:
    """Two-phase sinks: in foreachBatch, classic and Connect. A name without a batch would pass for a repetition
    from the second batch on: that is refused."""
    inner = of_job(NAMED, "one", IN_STREAM)
    assert (inner.batch, inner.kind) == (7, STREAM)
    assert str(IN_STREAM.query) in inner.write
    with pytest.raises(BusFailure, match="batchId"):
        of_job(NAMED, "one", IN_SOME_STREAM)
    told = of_job(replace(NAMED, batch_id=8), "one", IN_SOME_STREAM)
    assert (told.batch, told.kind) == (8, STREAM)
    assert repeats_warning(NAMED, IN_STREAM) is None
    assert repeats_warning(PLAIN, Running()) is None
    for at in (IN_STREAM, IN_SOME_STREAM):
        assert "written once more" in (repeats_warning(PLAIN, at) or "")


# -- requests


def _rows(*texts: bytes, first: int = 0) -> EncodedRows:
    return EncodedRows.framed(np.arange(first, first + len(texts)), pa.array(texts, pa.binary()))


def test_messages_stand_behind_their_lengths() -> None:
    """Two-phase sinks: what a part is made of."""
    rows = _rows(b"a", b"", b"ccc")
    assert rows.batch(0, 3) == b"\x01\0\0\0a\0\0\0\0\x03\0\0\0ccc"
    assert list(rows.cut(9)) == [(0, 2), (2, 3)]
    assert list(rows.cut(100, 2)) == [(0, 2), (2, 3)]


def test_a_part_that_is_put_off_or_not_answered_comes_again_and_says_so() -> None:
    """Two-phase sinks: its rows are looked for where the first try may have left them."""
    with scripted(answer(), HANG_UP, answer(503), answer(body=b'{"rows": 1, "parts": 1}')) as door:
        routes = StagingRoutes(door.bus)
        routes.drop(NAME, "0" * 32, "q")  # the bus is known from here on
        assert routes.stage(NAME, "0" * 32, 0, "a/b", "1", b"x")
    first, *others = [asked.partition("?")[2] for asked in door.asked[1:]]
    assert first == "entity=a%2Fb&part=0&kind=stream&partition=1"
    assert others == [f"{first}&again=1"] * 2


def test_a_decision_whose_answer_is_lost_is_asked_for_again() -> None:
    """Two-phase sinks: before `commit` raises."""
    decided = json.dumps({"decided": 2, "known": True, "published": True}).encode()
    with scripted(answer(), HANG_UP, HANG_UP, answer(body=decided)) as door:
        StagingRoutes(door.bus).drop(NAME, "0" * 32, "q")
        message = RowsStaged(NAME, "1" * 32, {"q": 2})
        assert decide(door.bus, [None, message, RowsStaged(NAME, "2" * 32)]) == 2
    assert door.asked[1:] == ["POST /$staging/query-x/7?wait=30&entity=q"] * 3


def test_a_decision_that_is_refused_says_why() -> None:
    """Two-phase sinks: the server's sentence reaches Spark; nothing is asked when nothing was staged."""
    refusal = json.dumps({"code": "behind", "reason": "The checkpoint went back."}).encode()
    with scripted(answer(409, refusal)) as door:
        with pytest.raises(BusFailure, match="The checkpoint went back") as raised:
            decide(door.bus, [RowsStaged(NAME, "1" * 32, {"q": 2})])
        assert isinstance(raised.value.__cause__, WriteRefused)
        assert raised.value.__cause__.code == "behind"
        assert decide(door.bus, [RowsStaged(NAME, "1" * 32, is_known=True)]) == 0
        assert len(door.asked) == 1


def test_abort_drops_what_tasks_have_staged_and_never_raises() -> None:
    """Two-phase sinks: Spark calls it with None for tasks that failed, also while the bus refuses."""
    with scripted(answer(), answer(500)) as door:
        drop_stages(door.bus, [None, *(RowsStaged(NAME, str(at) * 32, {"q": 2}) for at in range(3))])
    assert door.asked == [f"DELETE /$staging/query-x/7/{str(at) * 32}?entity=q" for at in range(2)]


# -- stages


def test_rows_go_in_parts_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two-phase sinks: small rows wait for each other, by target; each part has the next number."""
    monkeypatch.setattr(two_phase, "PART_BYTES", 20)
    with scripted(answer()) as door, TaskStage(door.bus, NAME) as stage:
        stage.put("a", None, _rows(b"11111", b"22222", b"33333"))
        stage.put("b", None, _rows(b"4", first=3))
        stage.put("a", None, _rows(b"5", first=4))
        message = stage.finish()
    parts = [re.findall(r"entity=(\w)&part=(\d)", asked)[0] for asked in door.asked]
    assert parts == [("a", "0"), ("a", "1"), ("b", "2")]
    assert message == RowsStaged(NAME, stage.id, {"a": 4, "b": 1})


def _stage_two(bus: Bus) -> None:
    with TaskStage(bus, NAME) as stage:
        stage.put("q", None, _rows(b"a", b"b", first=40))
        stage.finish()


def test_a_row_that_the_server_refuses_is_named_and_its_stage_dropped() -> None:
    """Two-phase sinks: by its place in the task, also behind the first part."""
    refusal = json.dumps({"row": 1, "reason": "it is too large."}).encode()
    with scripted(answer(400, refusal), answer()) as door:
        with pytest.raises(RowsRefused, match=r"'q': row 41 of its task: it is too large"):
            _stage_two(door.bus)
        staged, dropped = door.asked
        assert dropped == f"DELETE {staged.removeprefix('POST ').partition('?')[0]}?entity=q"


def test_a_batch_that_is_known_is_not_staged_any_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two-phase sinks: nothing to decide, nothing to drop."""
    monkeypatch.setattr(two_phase, "PART_ROWS", 1)
    with scripted(answer(body=b'{"known": true}')) as door:
        with TaskStage(door.bus, NAME) as stage:
            for at in range(5):
                stage.put("q", None, _rows(b"a", first=at))
            message = stage.finish()
        assert (message.is_known, message.count, len(door.asked)) == (True, 0, 1)
        assert decide(door.bus, [message]) == 0
        drop_stages(door.bus, [message])
        assert len(door.asked) == 1


def test_a_warning_of_a_task_is_said_once_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two-phase sinks: by Spark's logger."""
    said: list[str] = []
    monkeypatch.setattr(two_phase, "say_loudly", said.append)
    with scripted(answer()) as door:
        messages = [RowsStaged(NAME, str(at) * 32, {"q": 1}, warning="beware") for at in range(2)]
        decide(door.bus, list(messages))
        assert said == ["beware"]
        decide(door.bus, [RowsStaged(SinkWrite("job-x", 0, JOB), "1" * 32, is_known=True)])
        decide(door.bus, [RowsStaged(NAME, "1" * 32, is_known=True)])
    assert said[1:] == [
        "The write 'job-x' was made before, under the same writeId: nothing is written again."
    ]
    assert two_phase.LOGGER == "busway_spark"
