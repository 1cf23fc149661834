"""The command line without a server: what a wrong call says, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from busway.cli.app import run
from busway.data_directory import DataDirectory

NOBODY_THERE = (
    "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=hidden;UseDevelopmentEmulator=true"
)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BUSWAY_CONNECTION_STRING", "BUSWAY_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BUSWAY_DATA", str(tmp_path / "unused"))


@pytest.mark.parametrize(
    "call",
    [
        "bogus",
        "queue create",
        "queue update orders",
        "queue create orders --max-delivery-count many",
        "topic create",
        "topic update news",
        "topic create news --lock-duration PT1M",
        "subscription create news",
        "subscription update news sport",
        "subscription create news sport --requires-duplicate-detection",
        "rule create news sport",
        "rule create news sport r --filter 1=1 --correlation a=b",
        "rule create news sport r --correlation nameless",
        "rule create news sport r --correlation subject:=5",
        "rule create news sport r --correlation a:=[1]",
        "rule create news sport r --filter 1=1 --parameter unused=1",
        "rule test 1=1",
        "export",
        "import",
        "resubmit",
        "key create news/Subscriptions/sport r --connection-string " + NOBODY_THERE,
        "purge orders",
        "send orders --body a --file b",
        "send orders --body a --count 0",
        "send orders --body a --property nameless",
        "send orders --body a --property n:=[1]",
        "send orders --body a --schedule tomorrow",
        "send orders --body a --time-to-live 5",
        "receive orders --mode destroy",
        "receive orders --session-id a --next-session",
        "peek orders --connection-string nonsense",
        "key create a b c",
        "key create a --rights fly",
        "key rotate a --key third",
        "serve --host 0.0.0.0",
        "serve --port 70000",
        "serve --stores 2 --store sqlite:a",
        "serve --stores 0",
        "serve --tls-cert a",
        "serve --host bus.example.org --tls-cert a --tls-key b --key-file c --dev-key",
        "exec",
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_code_2(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Command-line contract: a wrong call ends with 2 and one line on standard error."""
    assert run(call.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("busway: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("call", ["queue list", "send orders --body x", "stores", "key list", "peek orders"])
def test_an_unreachable_server_is_one_sentence_and_exit_code_1(
    call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command-line contract: a failure ends with 1, names the server and shows no key."""
    assert run([*call.split(), "--connection-string", NOBODY_THERE]) == 1
    captured = capsys.readouterr()
    assert "127.0.0.1:1" in captured.err
    assert captured.err.count("\n") == 1
    assert "hidden" not in captured.err


def test_without_any_server_the_sentence_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Command-line contract: no server known is a failure with advice."""
    assert run(["queue", "list"]) == 1
    assert "busway serve" in capsys.readouterr().err


def test_the_connection_string_is_that_of_the_last_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command-line contract: connection-string reads the data directory."""
    directory = DataDirectory(tmp_path)
    directory.write_root_key("the key=")
    directory.write_server({"host": "127.0.0.1", "port": 7007})
    expected = (
        "Endpoint=sb://127.0.0.1:7007;SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=the key=;UseDevelopmentEmulator=true"
    )
    assert run(["connection-string", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == expected + "\n"
    assert run(["connection-string", "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"connection_string": expected}


def test_waiting_for_a_server_that_never_comes_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command-line contract: connection-string --wait gives up after its time, also on a server that is gone."""
    directory = DataDirectory(tmp_path)
    directory.write_root_key("the key=")
    directory.write_server({"host": "127.0.0.1", "port": 1})
    for data in (tmp_path, tmp_path / "absent"):
        assert run(["connection-string", "--data", str(data), "--wait", "0"]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "No server accepts connections" in captured.err


def test_a_data_directory_without_a_server_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command-line contract: connection-string fails with advice where no server was."""
    assert run(["connection-string", "--data", str(tmp_path)]) == 1
    assert "busway serve --data" in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb",
    [
        "serve", "queue create", "queue show", "queue list", "queue update", "queue delete", "topic create",
        "topic show", "topic list", "topic update", "topic delete", "subscription create", "subscription show",
        "subscription list", "subscription update", "subscription delete", "rule create", "rule list", "rule delete",
        "rule test",
        "export", "import", "resubmit", "send", "receive", "peek", "purge",
        "stores", "stores disable", "stores enable", "key list", "key create", "key rotate",
        "key delete", "exec", "connection-string",
    ],
)  # fmt: skip
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Command-line contract: --help shows an example."""
    assert run([*verb.split(), "--help"]) == 0
    assert f"Example:\n    busway {verb}" in capsys.readouterr().out.replace(
        "export BUSWAY_CONNECTION_STRING=$(", ""
    )


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    """Command-line contract: help needs neither the engine nor the server nor an XML parser."""
    script = (
        "import sys; from busway.cli.app import run; run(['--help']); "
        "heavy = {'asyncio', 'apsw', 'rich', 'starlette', 'uvicorn', 'cryptography', 'xml.etree.ElementTree'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_version_says_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Command-line contract: --version tells whether the hot modules are compiled."""
    assert run(["--version"]) == 0
    printed = capsys.readouterr().out
    assert "compiled" in printed or "pure" in printed
