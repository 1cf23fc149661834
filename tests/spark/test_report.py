"""`busway pipeline report`: figures that are known beforehand, from a journal and a capture made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from busway.journal import files as journal
from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.report.figures import Figures, fill_concurrency, gini, skew_of
from busway_spark.pipeline.report.report import ReportJob, ReportResult, remarks, run
from busway_spark.pipeline.report.report_page import report_page
from tests.harness.shell import Shell
from tests.spark.journal_files import START, at, operation, write_capture, write_journal

HOSTILE = "</style><script>alert(1)</script>"
ORDERS = 100


def orders() -> Iterator[dict[str, Any]]:
    """100 sent, one a second; each completed after 1…100 ms, except the last ten, which are dead-lettered."""
    for number in range(ORDERS):
        enqueued = at(number)
        known = {
            "sequenceNumber": number,
            "enqueuedTime": enqueued,
            "sessionId": "a" if number < 60 else f"s{number}",
        }
        fragment = 0 if number < 70 else 3
        yield operation(number, journal.SEND, "orders", sizeBytes=100, fragment=fragment, **known)
        yield operation(number, journal.RECEIVE, "orders", deliveryCount=0, fragment=fragment, **known)
        done = number + (number + 1) / 1000
        if number < 90:
            yield operation(
                done, journal.COMPLETE, "orders", deliveryCount=number % 2, fragment=fragment, **known
            )
        else:
            reason = HOSTILE if number < 93 else "Bad"
            yield operation(done, journal.DEAD_LETTER, "orders", reason=reason, fragment=fragment, **known)
    for number in range(5):
        yield operation(200, journal.LOCK_LOST, "orders", sequenceNumber=number)


def sessions() -> Iterator[dict[str, Any]]:
    """Held for 10, 20 and 30 s, two of them at once; one never ends; one was open before."""
    for begin, end, session_id in ((0, 10, "a"), (5, 25, "b"), (300, 330, "a")):
        yield operation(begin, journal.SESSION_ACCEPT, "sessions", sessionId=session_id)
        yield operation(end, journal.SESSION_END, "sessions", sessionId=session_id)
    yield operation(301, journal.SESSION_ACCEPT, "sessions", sessionId="open")
    yield operation(26, journal.SESSION_END, "sessions", sessionId="before")


def mail() -> Iterator[dict[str, Any]]:
    for number in range(30):
        yield operation(number * 10, journal.SEND, HOSTILE, sequenceNumber=number, partitionKey=HOSTILE)
    for number in range(10):
        yield operation(number * 10, journal.DUPLICATE, HOSTILE, sequenceNumber=number)


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportResult, Path]:
    folder = tmp_path_factory.mktemp("report")
    write_journal(folder / "journal", [*orders(), *sessions(), *mail()])
    moments = [START + timedelta(seconds=second) for second in range(40)]
    write_capture(folder / "lake", "clicks/2026", 0, moments[:30], "k")
    write_capture(folder / "lake", "clicks/2026", 1, moments[:10], "l")
    options = ReportJob(str(folder / "lake"), str(folder / "journal"), with_sizes=True, out=folder / "out")
    return run(spark, options), folder


def rows(figures: list[dict[str, Any]], **known: object) -> list[dict[str, Any]]:
    return [row for row in figures if all(row[name] == value for name, value in known.items())]


def test_everything_is_counted_once(told: tuple[ReportResult, Path]) -> None:
    """Report: operations by entity, throughput by slot and fragment, from both sources."""
    figures = told[0].figures
    assert figures.total == 300 + 5 + 8 + 40 + 40
    assert (figures.low_s, figures.high_s - figures.low_s, figures.slot_s) == (
        int(START.timestamp()),
        330,
        60,
    )
    counts = {(row["entity"], row["operation"]): row["count"] for row in figures.operations}
    assert counts["orders", "send"] == 100
    assert counts["orders", "complete"] == 90
    assert counts["clicks/2026", "captured"] == 40
    assert counts[HOSTILE, "duplicate"] == 10
    sent = rows(figures.slots, entity="orders", operation="send")
    assert [(row["start"] - figures.low_s, row["count"], row["sizeBytes"]) for row in sent] == [
        (0, 60, 6_000),
        (60, 40, 4_000),
    ]
    [captured] = rows(figures.slots, entity="clicks/2026")
    assert (captured["count"], captured["sizeBytes"], captured["source"]) == (40, 400, "captured")
    spread = rows(figures.fragment_slots, entity="orders")
    assert [(row["fragment"], row["start"] - figures.low_s, row["count"]) for row in spread] == [
        (0, 0, 60),
        (0, 60, 10),
        (3, 60, 30),
    ]


def test_skew_latency_locks_and_duplicates_are_exact(told: tuple[ReportResult, Path]) -> None:
    """Report: max over mean and Gini, percentiles, deliveries, rates."""
    figures = told[0].figures
    [skew] = rows(figures.skew, entity="orders")
    assert (skew["fragments"], skew["hottest"], skew["maxOverMean"]) == (4, 0, 70 / 25)
    assert skew["gini"] == pytest.approx(0.6)  # 0, 0, 30, 70
    [whole] = rows(figures.latency, entity=None, start=None)
    assert [whole[name] for name in ("count", "p50", "p95", "p99", "max")] == [90, 0.045, 0.086, 0.09, 0.09]
    [own] = rows(figures.latency, entity="orders")
    assert own["p50"] == 0.045
    over_time = [row for row in figures.latency if row["start"] is not None]
    assert [(row["start"] - figures.low_s, row["count"], row["p50"]) for row in over_time] == [
        (0, 60, 0.03),
        (60, 30, 0.075),
    ]
    assert sum(row["count"] for row in figures.latency_bins) == 90
    assert figures.deliveries == [{"deliveryCount": 0, "count": 45}, {"deliveryCount": 1, "count": 45}]
    [locks] = figures.locks
    assert (locks["received"], locks["lockLost"], locks["lockLossRate"]) == (100, 5, 0.05)
    [duplicates] = figures.duplicates
    assert (duplicates["entity"], duplicates["rate"]) == (HOSTILE, 0.25)


def test_dead_letters_keys_and_sessions_are_exact(told: tuple[ReportResult, Path]) -> None:
    """Report: reasons over time, hot keys with their share, lengths of sessions and how many at once."""
    figures = told[0].figures
    dead = [(row["reason"], row["start"] - figures.low_s, row["count"]) for row in figures.dead_letters]
    assert dead == [(HOSTILE, 60, 3), ("Bad", 60, 7)]
    first = figures.keys[0]
    assert (first["entity"], first["kind"], first["key"], first["count"], first["share"]) == (
        "orders", "session", "a", 60, 0.6,
    )  # fmt: skip
    [click] = rows(figures.keys, key="k")
    assert (click["count"], click["share"]) == (30, 0.75)
    [sizes] = rows(figures.session_sizes, entity="orders")
    assert (sizes["sessions"], sizes["messagesP50"], sizes["messagesMax"]) == (41, 1, 60)
    [lengths] = figures.session_lengths
    assert (lengths["ended"], lengths["p50"], lengths["max"]) == (3, 20.0, 30.0)
    level = [(row["start"] - figures.low_s, row["open"]) for row in figures.session_concurrency]
    assert level == [(0, 3), (60, 0), (120, 0), (180, 0), (240, 0), (300, 2)]


def test_what_is_remarkable_stands_on_top(told: tuple[ReportResult, Path]) -> None:
    """Report: sentences with the numbers that matter."""
    said = told[0].remarkable
    assert "orders: 10.0% of the messages were dead-lettered, most often because of Bad (7)." in said
    assert "orders: 5.0% of the locks ran out before the message was settled." in said
    assert "orders: fragment 0 gets 2.8 times the average (Gini 0.60 over 4 fragments)." in said
    assert f"{HOSTILE}: the partition key '{HOSTILE}' has 100% of all messages." in said
    assert "clicks/2026: the partition key 'k' has 75% of all messages." in said
    assert f"{HOSTILE}: 25.0% of what was sent was a duplicate and dropped." in said


def test_the_page_is_one_harmless_file_and_the_figures_can_be_read(told: tuple[ReportResult, Path]) -> None:
    """Report: strangers' names are text, nothing is fetched, Parquet and JSON say the same."""
    page = (told[1] / "out" / "report.html").read_text()
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(tag)
            assert not [name for name, _ in attrs if name.startswith(("on", "href", "src"))]

    Reader().feed(page)
    assert {"script", "link", "img"}.isdisjoint(found)
    assert found.count("style") == 1
    assert found.count("svg") > 10
    assert "&lt;script&gt;" in page
    told_again = json.loads((told[1] / "out" / "figures.json").read_text())
    assert told_again["events"] == told[0].figures.total
    keys = pq.read_table(told[1] / "out" / "figures" / "keys.parquet").to_pylist()
    assert keys == told[0].figures.keys == told_again["keys"]


def test_only_what_is_asked_for_is_read(
    spark: SparkSession, told: tuple[ReportResult, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Report: --since, --until and --entity; a stretch without events says so; wrong folders are named."""
    journal_folder = str(told[1] / "journal")
    since, until = at(10).isoformat(), at(20).isoformat()
    call = ["pipeline", "report", "--journal", journal_folder, "--since", since, "--until", until]
    some = Shell(capsys).json(
        *call, "--entity", "ORDERS", "--out", str(tmp_path / "some"), "--master", "local[2]"
    )
    counts = {row["operation"]: row["count"] for row in some["operations"]}
    assert counts == {"send": 10, "receive": 10, "complete": 10}
    none = run(spark, ReportJob(journal=journal_folder, entities=("order",), out=tmp_path))
    assert none.figures.total == 0
    assert none.remarkable == ["There is nothing in this stretch of time."]
    assert "nothing in this stretch" in (tmp_path / "report.html").read_text()
    with pytest.raises(JobFailed, match="--captured: there is no folder '/nowhere'"):
        run(spark, ReportJob(captured="/nowhere"))
    with pytest.raises(JobFailed, match="--until is not after --since"):
        run(spark, ReportJob(journal=journal_folder, since=at(5), until=at(5)))
    with pytest.raises(JobFailed, match="give --captured or --journal"):
        run(spark, ReportJob())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "give --captured DIR or --journal DIR"),
        (["--journal", "x", "--since", "soon"], "--since: 'soon' is neither a time"),
        (["--journal", "x", "--until", "PXX"], "--until"),
    ],
)
def test_a_wrong_call_ends_with_2_and_a_sentence(
    capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    """Errors help: before Spark is started."""
    assert sentence in Shell(capsys)("pipeline", "report", *options, code=2)


# -- without Spark


def test_gini_of_known_spreads() -> None:
    """Report: all alike is 0, one that has all is (n - 1) / n."""
    assert gini([5, 5, 5, 5]) == pytest.approx(0.0)
    assert gini([0, 0, 0, 8]) == pytest.approx(0.75)
    assert gini([1, 3]) == pytest.approx(0.25)
    assert gini([]) == gini([0, 0]) == 0.0


def test_a_fragment_that_got_nothing_counts() -> None:
    """Report: of three fragments the middle one is empty."""
    totals = [{"source": "journal", "entity": "q", "fragment": at, "count": 6} for at in (0, 2)]
    [skew] = skew_of(totals)
    assert (skew["fragments"], skew["maxOverMean"], skew["hottest"]) == (3, 1.5, 0)


def test_a_stretch_without_an_event_keeps_the_level() -> None:
    """Report: sessions that stay open; what was open before the first event is added."""
    given = [
        {"entity": "q", "start": 0, "most": 2, "least": -1, "last": 2},
        {"entity": "q", "start": 180, "most": 3, "least": 0, "last": 0},
    ]
    assert [row["open"] for row in fill_concurrency(given, 60)] == [3, 3, 3, 4]


def test_a_quiet_bus_is_not_remarkable() -> None:
    """Report: a handful of messages says nothing."""
    quiet = Figures(low_s=0, high_s=600, slot_s=60, total=3)
    quiet.operations = [
        {"source": "journal", "entity": "q", "operation": name, "count": 1, "sizeBytes": None}
        for name in ("send", "receive", "deadLetter")
    ]
    assert remarks(quiet) == ["Nothing stands out."]
    assert "Nothing stands out." in report_page(quiet, remarks(quiet), ["the journal"])
