"""Runs the programs in node/ with the unmodified JavaScript packages; what they found comes back as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.running_server import BUSWAY, RunningServer

FOLDER = Path(__file__).with_name("node")
PACKAGES = ("@azure/event-hubs", "@azure/service-bus", "rhea", "ws")
RUN_SECONDS_MAX = 60


def why_not() -> str | None:
    """What is missing to run them, or None."""
    if shutil.which("node") is None:
        return "node is not installed: the JavaScript clients were not tried"
    missing = [name for name in PACKAGES if not (FOLDER / "node_modules" / name).is_dir()]
    if missing:
        return f"{', '.join(missing)} not installed: npm install --prefix tests/conformance/node"
    return None


needs_node = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


def run_node(
    server: RunningServer,
    program: str,
    scenario: str,
    *,
    environment: dict[str, str] | None = None,
    through_exec: bool = False,
    **parameters: object,
) -> dict[str, object]:
    """One scenario of one program. `through_exec` finds server and trust the way users do."""
    command = ["node", str(FOLDER / program), scenario, json.dumps(parameters)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
    if through_exec:
        command = [str(BUSWAY), "exec", "--data", str(server.data), "--", *command]
    else:
        own["BUSWAY_CONNECTION_STRING"] = server.connection_string
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        env={**own, **(environment or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found
