"""A lock that is an object: one owner at a time, by conditional writes and the watcher's own clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from busway_spark.pipeline.captured import object_store
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.object_store import ObjectLock, ObjectStore, StoreFailed
from busway_spark.pipeline.job import JobFailed
from tests.spark.s3_server import BUCKET, LOST, RESET, Happening, S3Server, s3, s3_server

__all__ = ["s3", "s3_server"]
SENTENCE = "Somebody else has it."


class Watch:
    """A clock that moves only when somebody sleeps, and lets others act meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: list[Callable[[], object]] = []

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for act in self.meanwhile:
            act()


def lock(watch: Watch | None = None) -> ObjectLock:
    watch = watch or Watch()
    return ObjectLock(ObjectStore("s3", BUCKET), "lock", SENTENCE, watch.time, watch.sleep)


@pytest.fixture(autouse=True)
def lease(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    del s3  # has set it to nothing
    monkeypatch.setattr(object_store, "LEASE_S", 30.0)


def test_an_owner_that_speaks_keeps_its_lock() -> None:
    """Lock: whoever else wants it sees the count change and is refused with the sentence."""
    one, watch = lock(), Watch()
    one.take()
    watch.meanwhile.append(one.renew)
    with pytest.raises(JobFailed, match=SENTENCE):
        lock(watch).take()
    assert watch.now < 1030
    one.check()


def test_an_owner_that_is_silent_for_a_lease_loses_its_lock() -> None:
    """Lock: as measured by the one who waits; the old owner learns of it when it asks, and takes nothing back."""
    one, watch = lock(), Watch()
    one.take()
    other = lock(watch)
    other.take()
    assert 1030 <= watch.now < 1040
    with pytest.raises(JobFailed, match="lost its lock"):
        one.check()
    one.is_lost = False
    one.renew()
    assert one.is_lost
    one.release()
    other.check()


def test_two_that_wait_for_a_dead_owner_do_not_both_get_its_lock() -> None:
    """Lock: taking over is a conditional write too."""
    lock().take()
    first_watch, second_watch = Watch(), Watch()
    first, second = lock(first_watch), lock(second_watch)

    def take_first() -> None:
        second_watch.meanwhile.clear()
        first.take()

    second_watch.now = 1000.0
    second_watch.meanwhile.append(lambda: take_first() if second_watch.now >= 1030 else None)
    with pytest.raises(JobFailed, match=SENTENCE):
        second.take()
    first.check()


def test_a_lock_that_was_released_is_free_at_once() -> None:
    """Lock: nobody waits for a lease behind a capture that has ended."""
    one, watch = lock(), Watch()
    one.take()
    one.release()
    lock(watch).take()
    assert watch.now == 1000.0


@pytest.mark.parametrize("what", [LOST, RESET])
def test_a_renewal_that_is_not_answered_is_no_loss(s3: S3Server, what: str) -> None:
    """Lock: carried out or not, the next one finds the own name."""
    one = lock()
    one.take()
    s3.arm(Happening(1, what))
    with pytest.raises(StoreFailed):
        one.renew()
    one.renew()
    assert not one.is_lost
    one.renew()
    one.check()
    one.release()
    lock().take()


def test_a_root_holds_its_lock_as_long_as_asked(s3: S3Server) -> None:
    """Lock: a second process is refused meanwhile and served afterwards."""
    root, other = CaptureRoot(f"s3://{BUCKET}/x"), CaptureRoot(f"s3a://{BUCKET}/x/")
    path = PurePosixPath("_capture/lock")
    with root.locked(path, SENTENCE) as check:
        check()
        assert root.owner is not None
    with other.locked(path, SENTENCE):
        assert other.owner != root.owner
    assert [key for key in s3.objects() if "lock" in key] == ["x/_capture/lock"]
