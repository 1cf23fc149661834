"""What a start does not load. Times differ from machine to machine; the list of modules does not."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import busway
from busway.cli.app import FAMILIES, app_for

#: Each of these costs about as much as a small verb, or more.
HEAVY = (
    *("anyio", "apsw", "asyncio", "certifi", "click", "cryptography", "email.parser", "fastavro", "h11"),
    *("importlib.metadata", "logging.handlers", "multiprocessing", "prometheus_client", "pyarrow"),
    *("pydantic", "pyspark", "rich", "starlette", "typer", "uvicorn", "wsproto", "xml.etree.ElementTree"),
)
#: A server has them in any case: a loop, stores, the command line.
OF_SERVERS = {"apsw", "asyncio", "typer"}


def loaded_by(script: str, *arguments: str) -> set[str]:
    """Those of HEAVY that a process of its own has loaded after the script."""
    tell = f"print('loaded', *sorted(set({HEAVY!r}) & set(sys.modules)))"
    command = [sys.executable, "-c", f"import sys\n{script}\n{tell}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def loaded_by_verb(arguments: Sequence[str], code: int = 0) -> set[str]:
    script = f"from busway.cli.app import run; assert run(sys.argv[1:]) == {code}"
    return loaded_by(script, *arguments)


def loaded_by_server(data: Path) -> set[str]:
    """Those of HEAVY that a server has loaded when it is ready."""
    script = (
        "import os, signal\n"
        "from busway import server\n"
        "told = server.Server.announce\n"
        "def announce(self):\n"
        "    told(self)\n"
        "    global at_ready\n"
        "    at_ready = set(sys.modules)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "server.Server.announce = announce\n"
        "from busway.cli.app import run\n"
        "assert run(sys.argv[1:]) == 0\n"
        "assert not {'busway.config.config', 'busway.gateway.http.app', 'busway.journal.feed'} & at_ready\n"
        "assert not [name for name in at_ready if name.startswith(('busway.cluster', 'busway.sharing', 'psycopg'))]\n"
    )
    return loaded_by(script, "serve", "--data", str(data), "--port", "0")


def test_a_server_that_is_ready_has_loaded_nothing_of_http(tmp_path: Path) -> None:
    """Start: routes, figures, configuration files and the journal are loaded when somebody needs them, what makes
    certificates by the first start alone, and nothing of several servers where stores are files."""
    assert "cryptography" in loaded_by_server(tmp_path / "data")
    assert loaded_by_server(tmp_path / "data") <= OF_SERVERS


def test_the_collector_rests_while_a_server_is_imported_and_works_afterwards(tmp_path: Path) -> None:
    """Start: nothing is looked for in what imports make; what clients leave behind is collected."""
    script = (
        "import gc, os, signal\n"
        "from busway import cli\n"
        "from busway.cli import serving\n"
        "run = serving._run\n"
        "def note(options, given):\n"
        "    assert not gc.isenabled()\n"
        "    from busway import server\n"
        "    told = server.Server.announce\n"
        "    def announce(self):\n"
        "        told(self)\n"
        "        assert gc.isenabled() and gc.get_freeze_count() > 10_000\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    server.Server.announce = announce\n"
        "    run(options, given)\n"
        "serving._run = note\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
    )
    loaded_by(script, "serve", "--data", str(tmp_path / "data"), "--port", "0")


@pytest.mark.parametrize(
    "call",
    [
        ["queue", "create", "orders", "--max-delivery-count", "5", "--requires-session"],
        ["queue", "list", "--json"],
        ["topic", "show", "news"],
        ["rule", "list", "news", "sport"],
        ["send", "orders", "--body", "hello", "--count", "3"],
        ["receive", "orders", "--wait", "1.5"],
        ["events", "tail", "clicks"],
        ["stores"],
        ["connection-string"],
    ],
    ids=" ".join,
)
def test_a_verb_is_read_without_pydantic_and_without_the_other_verbs(call: list[str], tmp_path: Path) -> None:
    """Start: plain text, paths and numbers need no conversion library. Here no server is found."""
    nowhere = ("--data", str(tmp_path / "none"))
    assert loaded_by_verb([*call, *nowhere], code=1) <= {"asyncio", "typer", "xml.etree.ElementTree"}


def test_help_of_a_verb_loads_its_own_family_only() -> None:
    """Start: the tree is as large as the call needs."""
    script = (
        "from busway.cli.app import run; assert run(['queue', 'create', '--help']) == 0\n"
        "assert not {'busway.cli.rules', 'busway.cli.serving', 'busway.cli.pipeline'} & set(sys.modules)"
    )
    assert loaded_by(script) <= {"typer"}


def test_the_version_is_told_without_the_tree_of_verbs() -> None:
    """Start: `busway --version` loads nothing heavy at all."""
    script = (
        "from busway.cli import main\n"
        "sys.argv = ['busway', '--version']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
    )
    assert loaded_by(script) == set()


def test_the_version_of_the_sources_is_that_of_the_package() -> None:
    """House style: the version stands in two places, because reading it from the package's files is slow."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert busway.__version__ == project["project"]["version"]


def test_every_verb_is_in_the_table_of_families() -> None:
    """Command-line contract: each verb is found in the family that the table names, and help lists all of them."""
    whole = app_for("")
    names = [str(command.name) for command in whole.registered_commands]
    names += [str(family.name) for family in whole.registered_groups]
    assert sorted(names) == sorted(FAMILIES)
    for verb in FAMILIES:
        own = app_for(verb)
        found = [command.name for command in own.registered_commands]
        assert verb in found + [family.name for family in own.registered_groups]
