"""Pages of the documentation that start Spark, run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import ROOT, is_seen, run, shown, starts_spark

PAGES = [page for page in sorted((ROOT / "docs" / "how-to").glob("*.md")) if starts_spark(page)]
#: Each starts Spark several times: one of them is for every day.
EVERY_DAY = "spark-capture.md"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[] if page.name == EVERY_DAY else pytest.mark.long)
        for page in PAGES
    ],
)
def test_every_command_of_a_page_works(page: Path, tmp_path: Path) -> None:
    """Documentation: the blocks of a page, run in order in the repository's root, succeed."""
    done = run(page, tmp_path, limit_s=280)
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_the_tour_ends_with_a_report(tmp_path: Path) -> None:
    """Documentation: all of the newcomer's page, and each thing that it shows is seen."""
    tour = ROOT / "docs" / "tour.md"
    done = run(tour, tmp_path, limit_s=280)
    assert done.returncode == 0, done.stdout
    for text in shown(tour):
        assert is_seen(text, done.stdout), f"{text}\nis not in\n{done.stdout}"
    assert (tmp_path / "data" / "report" / "report.html").is_file()


def test_the_jobs_have_pages() -> None:
    """Documentation: each job is shown at work."""
    shown = "".join(page.read_text() for page in PAGES)
    for job in ("capture", "replay", "backfill", "deadletters", "report"):
        assert f".venv/bin/busway pipeline {job} " in shown, job
