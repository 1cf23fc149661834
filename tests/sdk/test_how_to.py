"""SDK: the program on each language's how-to page is built and run as it stands, where the language is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.running_server import BUSWAY, RunningServer
from tests.sdk.program import BUILD, ROOT, SOURCES, Missing, run_tool
from tests.sdk.programs import PROGRAMS

pytestmark = pytest.mark.sdk

RUN_SECONDS_MAX = 90
BUILD_SECONDS_MAX = 1_800


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("busway")) as running:
        for command in (["queue", "create", "orders"], ["eventhub", "create", "clicks", "--partitions", "2"]):
            subprocess.run(
                [str(BUSWAY), *command, "--data", str(running.data)], check=True, capture_output=True
            )
        yield running


def program_of(page: str, language: str) -> str:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def _neighbour(name: str) -> Path:
    """The folder of a program of the suite, whose packages this one needs too."""
    [program] = [each for each in PROGRAMS if each.name == name]
    try:
        return program.built()
    except Missing as missing:
        pytest.skip(str(missing))


def _go(folder: Path) -> list[str]:
    _neighbour("go-event-hubs")
    for name in ("go.mod", "go.sum"):
        shutil.copy2(SOURCES / "go" / name, folder / name)
    (folder / "main.go").write_text(program_of("go", "go"))
    run_tool("go", "build", "-p", "1", "-o", "program", ".", folder=folder)
    return [str(folder / "program")]


def _java(folder: Path) -> list[str]:
    libraries = f"{_neighbour('java-service-bus')}/lib/*"
    (folder / "Program.java").write_text(program_of("java", "java"))
    run_tool("javac", "-nowarn", "-cp", libraries, "-d", str(folder), "Program.java", folder=folder)
    return [
        "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{folder}:{libraries}",
        "Program",
    ]


def _javascript(folder: Path) -> list[str]:
    (folder / "node_modules").symlink_to(_neighbour("javascript-service-bus") / "node_modules")
    (folder / "program.mjs").write_text(program_of("javascript", "javascript"))
    return ["node", str(folder / "program.mjs")]


def _rust(folder: Path) -> list[str]:
    _neighbour("rust-event-hubs")
    shutil.copytree(SOURCES / "rust", folder / "rust")
    (folder / "rust" / "event_hubs" / "src" / "main.rs").write_text(program_of("rust", "rust"))
    target = {"CARGO_TARGET_DIR": str(BUILD / "rust-target"), "CARGO_BUILD_JOBS": "1"}
    build = ["cargo", "build", "--quiet", "--locked", "--package", "event_hubs"]
    run_tool(*build, folder=folder / "rust", environment=target)
    return [str(BUILD / "rust-target" / "debug" / "event_hubs")]


MAKERS: dict[str, Callable[[Path], list[str]]] = {
    "go": _go,
    "java": _java,
    "javascript": _javascript,
    "rust": _rust,
}


@pytest.mark.timeout(RUN_SECONDS_MAX + BUILD_SECONDS_MAX)
@pytest.mark.parametrize("page", MAKERS)
def test_the_program_of_a_page_works(page: str, server: RunningServer, tmp_path: Path) -> None:
    """Documentation: run through `busway exec`, as the page says."""
    command = MAKERS[page](tmp_path)
    done = subprocess.run(
        [str(BUSWAY), "exec", "--data", str(server.data), "--", *command],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "click:" in done.stdout
    assert page == "rust" or "order:" in done.stdout
