"""Copies of captured messages: by columns as one by one, in order, out of files that overlap."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from busway.amqp.sections import decode_message
from busway.message.message import Message
from busway.rules.rule import Rule, SqlAction, SqlFilter, TrueFilter
from busway_spark.amqp_arrays.encoding import NotEncodable
from busway_spark.pipeline.backfill import backfill_rows
from busway_spark.pipeline.backfill.backfill_copies import CopyColumns, Copying
from busway_spark.pipeline.backfill.backfill_plan import FILE, FRAGMENT, FRAGMENT_SHIFT, NUMBER, PLACE
from busway_spark.pipeline.backfill.backfill_rows import CapturedRows, MatchedRows, payloads
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import SCHEMA
from busway_spark.pipeline.job import JobFailed
from busway_spark.rules.row_evaluator import captured_message, payload_of
from busway_spark.rules.rule_columns import SELECTED, verdict_name
from tests.spark.random_rules import TEXTS, RandomRules

ROWS = 300
#: A seed.
WITHOUT_PROPERTIES = 5
BODIES = (None, b"", b"\x00\xff", b"x" * 255, b"y" * 256, bytes(range(256)) * 300)
LIVES_MS = (-5, 0, 1, 255, 256, 60_000, (1 << 32) - 1)
RULES = (
    Rule("all", TrueFilter()),
    Rule("marks", SqlFilter("EXISTS(b)"), SqlAction("SET x = b; SET sys.Label = 'copy'")),
    Rule("divides", SqlFilter("10 / (size - size) > 1")),
    Rule("some", SqlFilter("a = 'a'")),
)


def random_rows(seed: int) -> list[dict[str, Any]]:
    """With whatever a sender may set, and some columns that no row of a piece sets."""
    rules, chance = RandomRules(seed), random.Random(seed)
    silent = chance.sample(("sessionId", "partitionKey", "expiresAt", "replyTo", "messageId"), 2)
    silent += ["properties", "propertyTypes"] if seed == WITHOUT_PROPERTIES else []
    rows: list[dict[str, Any]] = []
    for number in range(1, ROWS + 1):
        row = rules.row(number)
        enqueued = row["enqueuedTime"]
        assert isinstance(enqueued, datetime)
        row["enqueuedTime"] = enqueued + timedelta(microseconds=chance.randrange(3_000))
        row["expiresAt"] = chance.choice(
            [None, *(enqueued + timedelta(milliseconds=life) for life in LIVES_MS)]
        )
        row["body"] = chance.choice(BODIES)
        for name in ("replyTo", "replyToSessionId", "subject"):
            row[name] = chance.choice((None, *TEXTS, "ü" * 200))
        rows.append({**dict.fromkeys(SCHEMA.names), **row, **dict.fromkeys(silent)})
    return rows


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


@pytest.mark.parametrize("seed", range(6))
def test_messages_are_encoded_by_columns_as_they_are_one_by_one(seed: int) -> None:
    """Backfill: sessions, keys, lives, scheduled times, bodies and properties of every kind, byte by byte; also of
    a part of a batch, and of one row."""
    rows = random_rows(seed)
    wanted = [payload_of(captured_message(row)) for row in batch(rows).to_pylist()]
    assert payloads(batch(rows)).to_pylist() == wanted
    assert payloads(batch(rows).slice(70, 130)).to_pylist() == wanted[70:200]
    assert payloads(batch(rows[:1])).to_pylist() == wanted[:1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"contentType": "text/ü"},
        {"properties": "[]"},
        {"propertyTypes": '{"a": "no"}', "properties": '{"a": 1}'},
    ],
)
def test_what_columns_cannot_encode_is_left_to_a_closer_look(wrong: dict[str, Any]) -> None:
    """Backfill: and so is a life that no header can tell."""
    rows = random_rows(1)[:20]
    rows[13].update(wrong)
    with pytest.raises(NotEncodable):
        payloads(batch(rows))
    rows[13] = {**random_rows(1)[13], "expiresAt": rows[13]["enqueuedTime"] + timedelta(days=60)}
    with pytest.raises(NotEncodable):
        payloads(batch(rows))


def test_a_message_whose_properties_cannot_be_read_is_named() -> None:
    """Backfill: by its number and its file, though its piece is encoded all at once."""
    rows = random_rows(2)[:20]
    rows[7]["properties"] = "no JSON"
    found = matched(rows, [[SELECTED]] * 20)
    with pytest.raises(
        JobFailed, match=r"Message 8 in some.parquet: the column 'properties' is no JSON object"
    ):
        Copying(RULES[:1], [()]).copies(found)


# -- which copies


def matched(
    rows: Sequence[dict[str, Any]], verdicts: Sequence[Sequence[int]], fragment: int = 0
) -> MatchedRows:
    found: dict[str, Any] = {
        FILE: ["some.parquet"] * len(rows),
        PLACE: pa.array(range(len(rows)), pa.int64()),
        NUMBER: pa.array([row["sequenceNumber"] for row in rows], pa.int64()),
        FRAGMENT: pa.array([fragment] * len(rows), pa.int32()),
    }
    for at in range(len(verdicts[0])):
        found[verdict_name(at)] = pa.array([each[at] for each in verdicts], pa.int8())
    return MatchedRows(fragment, pa.RecordBatch.from_pydict(found), batch(rows))


def shown(copies: CopyColumns, *, is_exact: bool) -> list[tuple[object, ...]]:
    """Unless they must be the same bytes payloads by what they say: a new id is written by another hand, which leaves
    empty fields out."""
    payloads: list[Any] = copies.payloads.to_pylist()
    told = (
        copies.rules.to_pylist(),
        copies.failures.to_pylist(),
        payloads if is_exact else map(read, payloads),
    )
    return list(zip(copies.numbers.tolist(), *told, strict=True))


def read(payload: bytes) -> str:
    found = decode_message(payload)
    return repr(
        (found.header, found.message_annotations, found.properties, found.application_properties, found.body)
    )


@pytest.mark.parametrize("tells_repeats", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_copies_are_the_same_by_columns_and_one_by_one(
    seed: int, tells_repeats: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-4, T-60: whatever the verdicts are and whatever each rule has seen, in the order of the messages."""
    chance = random.Random(seed)
    rows = random_rows(seed)
    verdicts = [
        [chance.choice((0, 1, 1, 2)) if chance.random() < 0.4 else int(at == 0) for at in range(4)]
        for _ in rows
    ]
    cuts = [(), (5, ROWS), (0, 250), (9, 200)]
    found = matched(rows, verdicts, fragment=1)
    by_columns, by_rows = (Copying(RULES, cuts, tells_repeats=tells_repeats) for _ in range(2))
    together = shown(by_columns.copies(found), is_exact=not tells_repeats)
    encoded = 0

    def refuse(rows: pa.RecordBatch) -> None:
        nonlocal encoded
        encoded += rows.num_rows
        raise NotEncodable

    monkeypatch.setattr(backfill_rows, "payloads", refuse)
    alone = shown(by_rows.copies(found), is_exact=not tells_repeats)
    assert together == alone
    assert by_columns.failed == by_rows.failed > 0
    assert [number for number, *_ in alone] == sorted(number for number, *_ in alone)
    assert 50 < encoded < len({number for number, *_ in alone})


def test_messages_as_they_are_make_no_messages_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backfill: of what plain rules select no single message is built."""
    rows = random_rows(3)

    def refuse(*_: object) -> Message:
        raise AssertionError

    monkeypatch.setattr("busway_spark.pipeline.backfill.backfill_copies.captured_message", refuse)
    found = Copying((RULES[0], RULES[1]), [(), ()]).copies(matched(rows, [[1, 0]] * ROWS))
    assert found.numbers.tolist() == list(range(1, ROWS + 1))


# -- rows of files


def write(folder: Path, name: str, numbers: Sequence[int]) -> None:
    first = random_rows(0)[0]
    rows = [{**first, "sequenceNumber": number, "messageId": f"m{number}"} for number in numbers]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / name, row_group_size=10)


def matches_of(files: dict[str, Sequence[int]], wanted: set[int]) -> pa.RecordBatch:
    places = sorted(
        (number >> FRAGMENT_SHIFT, number, name, at)
        for name, numbers in files.items()
        for at, number in enumerate(numbers)
        if number in wanted
    )
    columns = [list(column) for column in zip(*places, strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[2]), pa.array(columns[3]), pa.array(columns[1]), pa.array(columns[0], pa.int32())],
        names=[FILE, PLACE, NUMBER, FRAGMENT],
    )


@pytest.mark.parametrize("piece_rows", [1, 7, 4_000])
def test_rows_come_in_the_order_of_their_matches(
    tmp_path: Path, piece_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backfill: out of files whose numbers overlap, of several fragments; pieces never mix fragments."""
    monkeypatch.setattr(backfill_rows, "PIECE_ROWS", piece_rows)
    high = 1 << FRAGMENT_SHIFT
    files: dict[str, Sequence[int]] = {
        "a": range(1, 61, 2),
        "b": range(2, 61, 2),
        "c": range(61, 101),
        "d": range(high + 1, high + 30),
    }
    for name, numbers in files.items():
        write(tmp_path, name, numbers)
    chance = random.Random(piece_rows)
    every = [number for numbers in files.values() for number in numbers]
    found = matches_of(files, set(chance.sample(every, 90)))
    rows = CapturedRows(CaptureRoot(str(tmp_path)), {name: name for name in files})
    read = list(rows.read(found))
    rows.close()
    assert [number for each in read for number in each.matches[NUMBER].to_pylist()] == found[
        NUMBER
    ].to_pylist()
    for each in read:
        assert each.rows["sequenceNumber"].to_pylist() == each.matches[NUMBER].to_pylist()
        assert set(each.matches[FRAGMENT].to_pylist()) == {each.fragment}


def test_row_groups_are_read_once_and_only_where_something_matched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backfill: also where neighbours by number lie in two files."""
    files: dict[str, Sequence[int]] = {"a": range(1, 81, 2), "b": range(2, 81, 2)}
    for name, numbers in files.items():
        write(tmp_path, name, numbers)
    groups: list[tuple[str, object]] = []
    real = backfill_rows.fitted_batches

    def counted(file: Any, where: str, rows: int, **which: Any) -> Any:
        groups.append((where, which["row_groups"]))
        return real(file, where, rows, **which)

    monkeypatch.setattr(backfill_rows, "fitted_batches", counted)
    rows = CapturedRows(CaptureRoot(str(tmp_path)), {name: name for name in files})
    assert sum(each.rows.num_rows for each in rows.read(matches_of(files, set(range(25, 57))))) == 32
    rows.close()
    assert sorted(groups) == [(name, [group]) for name in "ab" for group in (1, 2)]


def test_no_matches_are_no_rows(tmp_path: Path) -> None:
    """Backfill: a batch of Spark may be empty."""
    write(tmp_path, "a", range(1, 5))
    empty = matches_of({"a": range(1, 5)}, {1}).slice(0, 0)
    assert list(CapturedRows(CaptureRoot(str(tmp_path)), {"a": "a"}).read(empty)) == []
