"""`busway exec`: the environment it makes."""

import subprocess
import sys
from pathlib import Path

import pytest

from busway.cli.own_server import environment_of
from busway.cli.verbs import CommandFailed

CONNECTION = (
    "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
)


@pytest.fixture
def ca_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n")
    return file


def test_clients_find_the_bus_and_trust_it(ca_file: Path) -> None:
    """A-11: each family of clients gets its variable; other authorities stay trusted."""
    environment = environment_of({"PATH": "/nowhere", "KEPT": "1"}, CONNECTION, ca_file)
    assert environment["KEPT"] == "1"
    for name in (
        "BUSWAY_CONNECTION_STRING",
        "AZURE_SERVICEBUS_CONNECTION_STRING",
        "SERVICEBUS_CONNECTION_STRING",
    ):
        assert environment[name] == CONNECTION
    assert environment["NODE_EXTRA_CA_CERTS"] == str(ca_file)
    bundle = Path(environment["SSL_CERT_FILE"]).read_text()
    assert environment["REQUESTS_CA_BUNDLE"] == environment["CURL_CA_BUNDLE"] == environment["SSL_CERT_FILE"]
    assert "\nours\n" in bundle
    assert bundle.count("BEGIN CERTIFICATE") > 1
    assert "JAVA_TOOL_OPTIONS" not in environment


def test_the_users_own_bundle_is_extended_not_replaced(ca_file: Path, tmp_path: Path) -> None:
    """A-11: a company's own authority set before stays in the bundle."""
    own = tmp_path / "own.pem"
    own.write_text("the company's\n")
    environment = environment_of({"PATH": "/nowhere", "SSL_CERT_FILE": str(own)}, CONNECTION, ca_file)
    bundle = Path(environment["SSL_CERT_FILE"]).read_text()
    assert "the company's" in bundle
    assert "ours" in bundle


def test_a_missing_authority_is_a_failure(tmp_path: Path) -> None:
    """A-11: better a sentence than a program that fails to connect."""
    with pytest.raises(CommandFailed):
        environment_of({}, CONNECTION, tmp_path / "gone.pem")


def test_the_program_replaces_the_command() -> None:
    """Command-line contract: exec runs the program with its arguments and its exit code."""
    script = "import os, sys; print(os.environ['SERVICEBUS_CONNECTION_STRING'], sys.argv[1]); sys.exit(7)"
    busway = Path(sys.executable).with_name("busway")
    done = subprocess.run(
        [busway, "exec", "--connection-string", CONNECTION, "--", sys.executable, "-c", script, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, f"{CONNECTION} --json\n")


def test_a_program_that_does_not_exist_is_one_sentence() -> None:
    """Command-line contract: exit code 1, no traceback."""
    busway = Path(sys.executable).with_name("busway")
    done = subprocess.run(
        [busway, "exec", "--connection-string", CONNECTION, "--", "no-such-program-here"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "busway: The program 'no-such-program-here' was not found.\n",
    )
