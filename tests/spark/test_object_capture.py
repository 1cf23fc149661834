"""Captures into a store of objects: few requests, nothing lost or twice whatever fails, one owner at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from busway_spark.pipeline.capture.capture_commit import BatchName, CaptureFailed, capture_ledger
from busway_spark.pipeline.capture.capture_sink import PARQUET, CaptureStreamWriter
from busway_spark.pipeline.capture.captured_writer import ZSTD
from busway_spark.pipeline.captured import manifests, object_store
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import note_text, notes_of
from busway_spark.pipeline.captured.captured_files import History, listed_files
from busway_spark.pipeline.captured.manifests import span_of
from busway_spark.pipeline.job import HUB, QUEUE_KIND, JobFailed
from tests.spark.capture_rig import batch, event, events, recorded_spans
from tests.spark.played_capture import GivenUp, PlayedBus, travelled
from tests.spark.played_objects import PlayedObjects
from tests.spark.s3_server import BUCKET, HAPPENINGS, LOST, Happening, S3Server, s3, s3_server

__all__ = ["s3", "s3_server"]


def run_into(run: PlayedObjects, happening: Happening) -> None:
    """It goes on, or ends with a sentence."""
    run.server.arm(happening)
    try:
        run.run()
    except JobFailed:
        pass
    finally:
        run.server.arm()


def good_requests(s3: S3Server, kind: str) -> int:
    run = PlayedObjects(s3, f"good-{kind}", PlayedBus(kind))
    run.run()
    run.check_all()
    return len(s3.requests)


def check_happenings(s3: S3Server, kind: str, happenings: Iterator[Happening]) -> None:
    broken = []
    for at, happening in enumerate(happenings):
        run = PlayedObjects(s3, f"{kind}-{at}", PlayedBus(kind))
        try:
            run_into(run, happening)
            run.check()
            run.run()
            run.check_all()
        except (AssertionError, Exception) as error:
            broken.append(f"{happening}: {type(error).__name__} {error}"[:300])
    assert broken == [], f"{len(broken)}:\n" + "\n".join(broken)


def test_a_batch_of_one_file_takes_eight_requests(s3: S3Server) -> None:
    """Capture: of task and driver together, as the store counts them."""
    root = CaptureRoot(f"s3://{BUCKET}/few")
    for number in range(3):
        s3.arm()
        sink = travelled(CaptureStreamWriter(root, "clicks", PARQUET, ZSTD))
        rows = events(range(10 * number, 10 * number + 5))
        written = travelled(sink.write_batch(BatchName("q", number), iter([rows])))
        travelled(sink).commit([written], number)
        assert len(s3.requests) <= 8, s3.requests
    assert len(listed_files(root, "clicks")) == 3


def test_files_of_a_batch_are_put_in_place_many_at_a_time(s3: S3Server) -> None:
    """Capture: forty files need four requests more than one file needs for each of them, and do not wait in line."""
    root = CaptureRoot(f"s3://{BUCKET}/many")
    sink = CaptureStreamWriter(root, "clicks", PARQUET, ZSTD)
    rows = [sink.write_batch(BatchName("q", 0), iter([events(range(3), partition=at)])) for at in range(40)]
    s3.arm()
    sink.commit(list(rows), 0)
    assert len(s3.requests) <= 2 * 40 + 4, s3.requests
    assert s3.most_together > 1
    assert len(listed_files(root, "clicks")) == 40


@pytest.mark.parametrize("kind", [HUB, QUEUE_KIND])
def test_a_request_that_fails_loses_and_doubles_nothing(s3: S3Server, kind: str) -> None:
    """Capture: a busy store, a broken connection, an answer that is lost, a kill; `abort`, and a new start."""
    first = 7 if kind == HUB else 3
    count = good_requests(s3, kind)
    happenings = (
        Happening(at, HAPPENINGS[(at // 9 + first) % len(HAPPENINGS)]) for at in range(first, count + 1, 9)
    )
    check_happenings(s3, kind, happenings)


@pytest.mark.long
@pytest.mark.parametrize("what", HAPPENINGS)
@pytest.mark.parametrize("kind", [HUB, QUEUE_KIND])
def test_every_request_that_fails_in_every_way_loses_and_doubles_nothing(
    s3: S3Server, kind: str, what: str
) -> None:
    """Capture: the same with each request and everything that may happen to it."""
    count = good_requests(s3, kind)
    check_happenings(s3, kind, (Happening(at, what) for at in range(1, count + 1)))


@pytest.mark.long
@pytest.mark.parametrize("what", HAPPENINGS)
def test_every_request_that_fails_while_records_move_loses_and_doubles_nothing(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Capture: manifests are written and folded with each batch."""
    monkeypatch.setattr(manifests, "NOTED_MAX", 1)
    monkeypatch.setattr(manifests, "_FOLD", 2)
    monkeypatch.setattr(PlayedObjects, "leftovers", lambda _: [])
    count = good_requests(s3, HUB)
    check_happenings(s3, HUB, (Happening(at, what) for at in range(1, count + 1)))


def test_a_client_that_tries_again_knows_what_it_has_written(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture: the answer to a conditional write is lost, the second try is refused, and nobody is alarmed."""
    count = good_requests(s3, HUB)
    monkeypatch.setattr(object_store, "RETRIES", 2)
    for at in (2, 7, count - 1):
        run = PlayedObjects(s3, f"again-{at}", PlayedBus(HUB))
        s3.arm(Happening(at, LOST))
        run.run()
        run.check_all()


def test_an_owner_that_was_overtaken_cannot_commit(s3: S3Server) -> None:
    """Capture: it slept before `commit`, before the promise, the copies or the note; another has taken over."""
    for sleeps_at in (0, 2, 3, 5):
        bus = PlayedBus(QUEUE_KIND)
        old, heir = (PlayedObjects(s3, f"slept-{sleeps_at}", bus) for _ in range(2))
        heir.checkpoint, heir.told = old.checkpoint, old.told
        with ExitStack() as stack:
            root = old._begin(stack)
            tasks = bus.plan(set())
            old.checkpoint.planned.append(tasks)
            name = BatchName(old.checkpoint.query, 0)
            written = [old._writer().write_batch(name, iter([bus.read(task)])) for task in tasks]
            take_over_at(root, sleeps_at, heir)
            with pytest.raises(CaptureFailed, match=r"taken over|is not there"):
                CaptureStreamWriter(root, bus.entity.name, PARQUET, ZSTD).commit(list(written), 0)
            with pytest.raises(JobFailed, match="lost its lock"):
                capture_ledger(root, bus.entity.name).recover()
        heir.check()
        heir.run()
        heir.check_all()


def take_over_at(root: CaptureRoot, request: int, heir: PlayedObjects) -> None:
    """Before that one of the old owner's requests the heir starts and captures everything."""
    store = root.objects
    assert store is not None
    left = [request]

    def then(method: object) -> object:
        def call(*args: object) -> object:
            left[0] -= 1
            if left[0] == -1:
                heir.run()
                heir.check_all()
            return method(*args)  # type: ignore[operator]

        return call

    for name in ("get", "sizes", "put_if", "copy", "delete"):
        setattr(store, name, then(getattr(store, name)))


def test_a_promise_of_an_earlier_version_is_kept(s3: S3Server) -> None:
    """Compatibility: `moving.json` is settled at the start, and the capture goes on."""
    run = PlayedObjects(s3, "before", PlayedBus(HUB))
    run.checkpoint.planned.append(run.bus.plan(set()))
    name = BatchName(run.checkpoint.query, 0)
    root = CaptureRoot(f"s3://{BUCKET}/before")
    written = [
        run._writer().write_batch(name, iter([run.bus.read(task)])) for task in run.checkpoint.planned[0]
    ]
    files = [file for each in written for file in each.files]
    note = {
        "query": name.query,
        "batch": 0,
        "moves": [[file.staged, file.final] for file in files],
        "bytes": {file.final: file.bytes for file in files},
    }
    root.write_text(notes_of("orders") / "moving.json", note_text(note))
    run.run()
    run.check_all()


def test_what_is_recorded_and_read_is_what_was_captured(s3: S3Server) -> None:
    """Manifests: also of objects; and every reader of files reads them."""
    root = CaptureRoot(f"s3://{BUCKET}/a place")
    sink = CaptureStreamWriter(root, "shop/orders", PARQUET, ZSTD)
    rows = batch([event(number) for number in range(20)])
    sink.commit([sink.write_batch(BatchName("q", 0), iter([rows]))], 0)
    recorded = recorded_spans(root, "shop/orders")
    assert {path: each.span for path, each in recorded.items()} == {
        each.path: span_of(root, each.path) for each in listed_files(root)
    }
    assert [row.number for row in History(root, "shop/orders").rows(0)] == list(range(20))
    assert any("entity=shop%2Forders" in key for key in s3.objects())


def test_a_bucket_that_is_not_there_is_told(s3: S3Server) -> None:
    """Capture: it is no lock of somebody else, and no empty place."""
    with pytest.raises(JobFailed, match="s3://nobody is not there"):
        PlayedNowhere(s3, "x", PlayedBus(HUB)).run()


class PlayedNowhere(PlayedObjects):
    def _root(self, folder: str) -> CaptureRoot:
        return CaptureRoot(f"s3://nobody/{folder}")


def test_a_task_that_gives_up_leaves_nothing(s3: S3Server) -> None:
    """Capture: its rows end in an error, and its object is not there or deleted."""

    def rows() -> Iterator[object]:
        yield events(range(3))
        raise GivenUp

    sink = CaptureStreamWriter(CaptureRoot(f"s3://{BUCKET}/gone"), "clicks", PARQUET, ZSTD)
    with pytest.raises(GivenUp):
        sink.write_batch(BatchName("q", 0), rows())  # type: ignore[arg-type]
    assert s3.objects() == {}
