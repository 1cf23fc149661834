"""Files appear whole; what is left over or old goes, and nothing else."""

from __future__ import annotations

from pathlib import Path

from busway.journal.files import Folder, hours_before
from tests.harness.manual_clock import SeededEntropy

#: 2026-11-15, 9 o'clock.
HOUR = 498_537
FIRST_MS = HOUR * 3_600_000 + 754_000


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_file_is_hidden_until_it_is_whole(tmp_path: Path) -> None:
    """Journal: named by the hour and by whoever writes it."""
    file = Folder(tmp_path, SeededEntropy()).new_file(HOUR, FIRST_MS)
    file.stream.write(b"rows")
    [hidden] = names(tmp_path)
    assert hidden.startswith("date=2026-11-15/hour=09/_091234-")
    file.finish()
    [shown] = names(tmp_path)
    assert shown == hidden.replace("/_", "/")
    assert (tmp_path / shown).read_bytes() == b"rows"


def test_an_abandoned_file_leaves_nothing(tmp_path: Path) -> None:
    """Journal: a disk that refuses keeps no half."""
    file = Folder(tmp_path, SeededEntropy()).new_file(HOUR, FIRST_MS)
    file.abandon()
    assert names(tmp_path) == []


def test_two_writers_never_take_the_same_name(tmp_path: Path) -> None:
    """Journal: the random part is each one's own, the count goes on."""
    entropy = SeededEntropy()
    folders = [Folder(tmp_path, entropy), Folder(tmp_path, entropy)]
    for folder in folders * 3:
        folder.new_file(HOUR, FIRST_MS).finish()
    assert len(names(tmp_path)) == 6


def test_leftovers_go_but_not_what_is_being_written(tmp_path: Path) -> None:
    """Journal: the lock tells one from the other; a stranger's file stays."""
    killed = Folder(tmp_path, SeededEntropy()).new_file(HOUR, FIRST_MS)
    killed.stream.close()  # as the end of a process does
    folder = Folder(tmp_path, SeededEntropy())
    alive = folder.new_file(HOUR, FIRST_MS + 1_000)
    stranger = tmp_path / "date=2026-11-15" / "hour=09" / "_SUCCESS"
    stranger.write_text("")
    assert folder.remove_leftovers() == 1
    alive.finish()
    assert stranger.exists()
    assert len(names(tmp_path)) == 2


def test_old_hours_go_with_their_folders(tmp_path: Path) -> None:
    """Journal: only our own files, and folders that are empty then."""
    folder = Folder(tmp_path, SeededEntropy())
    for hour in (HOUR - 49, HOUR - 48, HOUR - 24, HOUR):
        folder.new_file(hour, hour * 3_600_000).finish()
    kept = tmp_path / "date=2026-11-13" / "hour=08" / "notes.txt"
    kept.write_text("mine")
    (tmp_path / "date=2026-99-99" / "hour=00").mkdir(parents=True)
    assert folder.remove_before(hours_before(HOUR, 1)) == 2
    hours = sorted(path.parent.name + "/" + path.name for path in tmp_path.glob("*/*"))
    assert hours == [
        "date=2026-11-13/hour=08", "date=2026-11-14/hour=09", "date=2026-11-15/hour=09", "date=2026-99-99/hour=00",
    ]  # fmt: skip
    assert kept.exists()
