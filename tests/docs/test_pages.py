"""What the documentation shows is run as it stands, and what it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import ROOT, SETUP, blocks, is_seen, run, shown, starts_spark, wants_postgres
from tests.harness.postgres_server import PostgresServer
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.sdk

HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
TOUR = ROOT / "docs" / "tour.md"
PAGES = [ROOT / "README.md", *HOW_TO]
#: One screen and a half.
README_LINES_MAX = 75
TEXTS = [
    *PAGES,
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "evidence.md",
    ROOT / "COMPATIBILITY.md",
    ROOT / "docs" / "settings.md",
    TOUR,
]
_LINK = re.compile(r"\]\(([^)#:]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"`([\w./*-]+)`")
_FILE_ENDINGS = (".py", ".md", ".sql", ".toml", ".sh", ".txt")


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if not starts_spark(page) and not wants_postgres(page)],
    ids=lambda page: page.name,
)
def test_every_command_of_a_page_works(page: Path, tmp_path: Path) -> None:
    """Documentation: the blocks of a page, run in order in the repository's root, succeed."""
    assert blocks(page)
    done = run(page, tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", list(filter(wants_postgres, PAGES)), ids=lambda page: page.name)
def test_every_command_of_a_page_about_postgresql_works(
    page: Path, tmp_path: Path, own_postgres: PostgresServer
) -> None:
    """Documentation: on a new cluster whose superuser reads the page; what it shows is seen."""
    done = run(page, tmp_path, more=own_postgres.environment())
    assert done.returncode == 0, done.stdout
    for text in shown(page):
        assert is_seen(text, done.stdout), f"{text}\nis not in\n{done.stdout}"


def test_the_tour_shows_what_one_sees(tmp_path: Path) -> None:
    """Documentation: from `make run` to the stream; the report at its end is for the tests of Spark."""
    done = run(TOUR, tmp_path, with_spark=False)
    assert done.returncode == 0, done.stdout
    texts = shown(TOUR, with_spark=False)
    assert len(texts) == 5
    for text in texts:
        assert is_seen(text, done.stdout), f"{text}\nis not in\n{done.stdout}"


def test_the_readme_fits_on_a_screen_and_a_half() -> None:
    """Documentation: what does not fit is a link away."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


def test_the_readme_begins_with_the_set_up() -> None:
    """Documentation: the one line that is not run again is the one that made this environment."""
    assert blocks(ROOT / "README.md")[0].text.startswith(SETUP)
    assert "scripts/install.sh serve" in (ROOT / "scripts" / "run_tests.sh").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    with RunningServer(tmp_path_factory.mktemp("examples")) as running:
        yield running


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_works_and_can_be_repeated(example: Path, server: RunningServer) -> None:
    """Documentation: run through `busway exec`, as its first lines say."""
    assert f"busway exec -- python examples/{example.name}" in example.read_text()
    for _ in range(2):
        done = subprocess.run(
            [str(BUSWAY), "exec", "--data", str(server.data), "--", sys.executable, str(example)],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(text: Path) -> None:
    """Documentation: links and paths lead somewhere."""
    content = text.read_text()
    links = [link for link in _LINK.findall(_FENCED.sub("", content)) if not (text.parent / link).exists()]
    assert links == []
    named = [name for name in _NAMED.findall(content) if "/" in name or name.endswith(_FILE_ENDINGS)]
    ours = [name for name in named if not name.startswith("/")]  # the others are the machine's, or addresses
    assert [name for name in ours if not _exists(name)] == []


def _exists(name: str) -> bool:
    """From the root, from a package, or a folder that `make` makes."""
    places = (ROOT, ROOT / "src", ROOT / "src" / "busway", ROOT / "src" / "busway_spark")
    return any(next(iter(place.glob(name.rstrip("/"))), None) for place in places)
