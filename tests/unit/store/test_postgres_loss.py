"""What a server remembers of a database, and what it concludes when the database says otherwise."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from busway.store.postgres.high_water import StoreMark, StoreMarks
from busway.store.postgres.loss import FoundRow, is_older, lost_commits

HERE, ELSEWHERE = "7/00000001/5", "7/00000002/5"
US, HOLDER, OTHERS = b"our opening", b"our lease", b"somebody else's"


def mark(*, number: int = 100, epoch: int = 7, is_exact: bool = True, lost: int = 0) -> StoreMark:
    made = StoreMark()
    made.number, made.epoch, made.is_exact, made.lost = number, epoch, is_exact, lost
    made.openings = [US]
    return made


@pytest.mark.parametrize(
    ("what", "found", "known", "lost"),
    [
        ("ours, as it was", FoundRow(7, US, HERE, 100), mark(), 0),
        ("a commit that nobody reported", FoundRow(7, US, HERE, 101), mark(), 0),
        ("three commits fewer", FoundRow(7, US, HERE, 97), mark(), 3),
        ("fewer, in a later epoch", FoundRow(9, OTHERS, HERE, 97), mark(), 3),
        ("an epoch before ours", FoundRow(6, OTHERS, HERE, 200), mark(), 1),
        ("another opening in our epoch", FoundRow(7, OTHERS, HERE, 200), mark(), 1),
        ("others had it meanwhile", FoundRow(9, OTHERS, HERE, 200), mark(), 0),
        ("moved in order", FoundRow(7, US, ELSEWHERE, 100), mark(), 0),
        ("moved, and our lease taken", FoundRow(8, HOLDER, ELSEWHERE, 100), mark(), 0),
        ("moved, others had it meanwhile", FoundRow(9, OTHERS, ELSEWHERE, 200), mark(), 1),
        ("moved, and we were killed", FoundRow(7, US, ELSEWHERE, 100), mark(is_exact=False), 1),
        ("moved, and we know nothing", FoundRow(7, OTHERS, ELSEWHERE, 100), StoreMark(), 1),
        ("new, and we know nothing", FoundRow(0, b"", "", 0), StoreMark(), 0),
        ("known, and we know nothing", FoundRow(7, OTHERS, HERE, 100), StoreMark(), 0),
        ("noticed before a crash", FoundRow(9, US, HERE, 9_999), mark(lost=4), 4),
    ],
)
def test_what_is_concluded_from_what_is_found(
    what: str, found: FoundRow, known: StoreMark, lost: int
) -> None:
    """S-1: commits that are missing are counted; where some may be missing it is one."""
    assert lost_commits(found, known, HERE, HOLDER) == lost, what


def test_a_row_of_nobody_we_know_is_not_older() -> None:
    """The fence: a server that has never had the store takes the word of the row."""
    assert not is_older(5, OTHERS, StoreMark())
    assert is_older(5, OTHERS, mark(epoch=6))
    assert not is_older(7, US, mark())


def test_marks_come_back_from_their_file(tmp_path: Path) -> None:
    """S-1: exact after an orderly stop alone, and only until they are read."""
    file = tmp_path / "east.high-water.json"
    marks = StoreMarks(file)
    marks.begin()
    one = marks.mark(3)
    one.epoch, one.number, one.keys_end, one.openings, one.is_exact, one.lost = 2, 30, 4_096, [US], True, 5
    marks.save()
    killed = StoreMarks(file)
    killed.begin()
    found = killed.mark(3)
    assert (found.epoch, found.number, found.keys_end, found.openings, found.lost) == (2, 30, 4_096, [US], 5)
    assert not found.is_exact
    marks.save(is_final=True)
    stopped = StoreMarks(file)
    stopped.begin()
    assert stopped.mark(3).is_exact
    killed_again = StoreMarks(file)  # the one before it has written nothing yet
    killed_again.begin()
    assert not killed_again.mark(3).is_exact


def test_nothing_is_written_behind_the_last_word(tmp_path: Path) -> None:
    """S-1: a save that was on its way when the server stopped does not make the marks inexact."""
    file = tmp_path / "east.high-water.json"
    marks = StoreMarks(file)
    marks.begin()
    marks.mark(0).is_exact = True
    marks.save(is_final=True)
    marks.save()
    again = StoreMarks(file)
    again.begin()
    assert again.mark(0).is_exact


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", b"00000000 {}", b"\xff\xfe", b'8c736521 {"0": 1}', b"x" * 100],
    ids=["empty", "words", "wrong check", "no text", "wrong form", "long"],
)
def test_a_damaged_file_is_not_used(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Attack: it is told, and costs what would have been noticed, not the start."""
    file = tmp_path / "east.high-water.json"
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        marks = StoreMarks(file)
        marks.begin()
    assert marks.mark(0).number == 0
    assert "is not used" in caplog.text


def test_a_folder_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """F3: commits go on."""
    marks = StoreMarks(tmp_path / "missing" / "east.high-water.json")
    with caplog.at_level(logging.WARNING):
        marks.begin()
        marks.save()
        marks.save()
    assert caplog.text.count("cannot be written") == 1


def test_a_link_that_somebody_laid_is_not_followed(tmp_path: Path) -> None:
    """Attack: neither is what it leads to written over."""
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "east.high-water.json.new").symlink_to(target)
    marks = StoreMarks(tmp_path / "east.high-water.json")
    marks.begin()
    marks.save()
    assert target.read_text() == "precious"
