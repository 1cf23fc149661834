"""A page of the documentation and the programs in it."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(bash|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The data directory of every page, wherever it stands as a path.
_DATA = re.compile(r"(?<![\w./-])data(?=[\s/\")]|$)")
#: Installs what the test itself runs in, so it is not run again from within.
SETUP = "make setup"


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: Path, *, with_spark: bool = True) -> list[Block]:
    """The programs of a page. `with_spark` false: up to the first that starts Spark."""
    found = [Block(*each) for each in _BLOCK.findall(page.read_text()) if each[0] != "text"]
    if with_spark:
        return found
    return list(itertools.takewhile(lambda block: not _starts_spark(block), found))


def shown(page: Path, *, with_spark: bool = True) -> list[str]:
    """What one sees, as the page has it below its programs; `with_spark` as above."""
    texts: list[str] = []
    for language, text in _BLOCK.findall(page.read_text()):
        if language == "text":
            texts.append(text)
        elif not with_spark and _starts_spark(Block(language, text)):
            break
    return texts


def is_seen(text: str, output: str) -> bool:
    """Its lines stand in the output in this order; `…` is anything, on a line of its own any lines."""
    lines = ["(?:.*\n)*?" if line == "…" else _pattern(line) for line in text.splitlines()]
    return re.search("^" + "".join(lines), output, re.MULTILINE) is not None


def _pattern(line: str) -> str:
    return re.escape(line.rstrip()).replace("…", ".*") + r" *\n(?:.*\n)*?"


def script_of(page: Path, data: Path, *, with_spark: bool = True) -> str:
    """The page as one script: each block as it stands, in order, with another data directory."""
    lines = ["set -euo pipefail"]
    for block in blocks(page, with_spark=with_spark):
        if block.language == "python":
            lines += [".venv/bin/python - <<'PROGRAM'", block.text.rstrip("\n"), "PROGRAM"]
            continue
        for line in block.text.splitlines():
            if not line.startswith(SETUP):
                lines.append(_DATA.sub(shlex.quote(str(data)), line))
    return "\n".join(lines) + "\n"


def starts_spark(page: Path) -> bool:
    """Such a page takes its time; it is run beside the other tests of Spark."""
    return any(map(_starts_spark, blocks(page)))


def _starts_spark(block: Block) -> bool:
    return "busway pipeline " in block.text


def wants_postgres(page: Path) -> bool:
    """Its programs make a database, by libpq's variables."""
    return any("createdb " in block.text for block in blocks(page))


def run(
    page: Path,
    folder: Path,
    limit_s: float = 100,
    *,
    with_spark: bool = True,
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """In the repository's root, on free ports; whatever the page leaves running is ended. `more`: variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_CON")}
    ports = {"BUSWAY_PORT": "0", "BUSWAY_TLS_PORT": "0", "BUSWAY_HTTPS_PORT": "0"}
    data = {"BUSWAY_DATA": str(folder / "data")}  # for `make run`
    output = folder / "output"
    with output.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script_of(page, folder / "data", with_spark=with_spark)],
            cwd=ROOT,
            env={**clean, **ports, **data, **(more or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):  # a page may end what it began
                os.killpg(shell.pid, signal.SIGTERM)
            shell.wait()
    return subprocess.CompletedProcess(page.name, status, output.read_text())
