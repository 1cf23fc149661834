"""A page of the documentation and the programs in it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The data directory of every page, wherever it stands as a path.
_DATA = re.compile(r"(?<![\w./-])data(?=[\s/\")]|$)")
#: Installs what the test itself runs in, so it is not run again from within.
SETUP = "make setup"


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def script_of(page: Path, data: Path) -> str:
    """The page as one script: each block as it stands, in order, with another data directory."""
    lines = ["set -euo pipefail"]
    for block in blocks(page):
        if block.language == "python":
            lines += [".venv/bin/python - <<'PROGRAM'", block.text.rstrip("\n"), "PROGRAM"]
            continue
        for line in block.text.splitlines():
            if not line.startswith(SETUP):
                lines.append(_DATA.sub(shlex.quote(str(data)), line))
    return "\n".join(lines) + "\n"


def starts_spark(page: Path) -> bool:
    """Such a page takes its time; it is run beside the other tests of Spark."""
    return any("busway pipeline " in block.text for block in blocks(page))


def run(page: Path, folder: Path, limit_s: float = 100) -> subprocess.CompletedProcess[str]:
    """In the repository's root, on free ports; whatever the page leaves running is ended."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_CON")}
    ports = {"BUSWAY_PORT": "0", "BUSWAY_TLS_PORT": "0", "BUSWAY_HTTPS_PORT": "0"}
    output = folder / "output"
    with output.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script_of(page, folder / "data")],
            cwd=ROOT,
            env={**clean, **ports},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(limit_s)
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.wait()
    return subprocess.CompletedProcess(page.name, status, output.read_text())
