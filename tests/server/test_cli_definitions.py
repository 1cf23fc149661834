"""`busway export` and `busway import` between real servers."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from busway.cli.definitions import write_private
from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell

SOURCE: dict[str, Any] = {
    "Format": "busway/1",
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "source",
                "AuthorizationRules": [{"Name": "reader", "Rights": ["Listen"], "PrimaryKey": "p" * 44}],
                "Queues": [
                    {
                        "Name": "a",
                        "Properties": {"ForwardTo": "z", "UserMetadata": "<&>", "LockDuration": "PT7S"},
                    },
                    {"Name": "z", "Properties": {"ForwardDeadLetteredMessagesTo": "t"}},
                    {"Name": "deep/er", "Properties": {"RequiresSession": True, "Status": "SendDisabled"}},
                ],
                "Topics": [
                    {
                        "Name": "t",
                        "Properties": {
                            "RequiresDuplicateDetection": True,
                            "AuthorizationRules": [{"Name": "pub", "Rights": ["Send"]}],
                        },
                        "Subscriptions": [
                            {"Name": "plain"},
                            {"Name": "mute", "Rules": []},
                            {
                                "Name": "choosy",
                                "Properties": {"MaxDeliveryCount": 2, "AutoDeleteOnIdle": "PT10M"},
                                "Rules": [
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {
                                                "SqlExpression": "a > @a OR b < @b OR c = @c",
                                                "Parameters": {
                                                    "@a": {"Type": "int", "Value": 5},
                                                    "@b": {"Type": "duration", "Value": "PT1.0000001S"},
                                                    "@c": {
                                                        "Type": "dateTime",
                                                        "Value": "2030-01-01T00:00:00",
                                                    },
                                                },
                                            },
                                            "Action": {"SqlExpression": "SET x = 'y'"},
                                        },
                                    },
                                    {
                                        "Name": "correlation",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "Label": "x",
                                                "Properties": {"n": 7, "d": 1.5, "yes": True},
                                            },
                                        },
                                    },
                                    {"Name": "never", "Properties": {"FilterType": "False"}},
                                ],
                            },
                        ],
                    }
                ],
            }
        ]
    },
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("source")
    file = folder / "source.json"
    file.write_text(json.dumps(SOURCE))
    with RunningServer(folder, "--config", str(file)) as running:
        yield running


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "empty") as running:
        yield running


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in ("BUSWAY_CONNECTION_STRING", "BUSWAY_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Shell(capsys)


def _exported(shell: Shell, server: RunningServer, *options: str) -> Any:
    """Without times; names of namespaces differ, because a server has its own. The order of keys is free."""
    text = shell("export", "-", "--data", str(server.data), *options)
    [namespace] = json.loads(text, object_hook=_without_times)["UserConfig"]["Namespaces"]
    namespace["AuthorizationRules"].sort(key=lambda rule: rule["Name"])
    del namespace["Name"]
    return namespace


def _without_times(data: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if not key.endswith("AtMs")}


def test_an_export_imported_into_an_empty_server_gives_the_same_namespace(
    shell: Shell, source: RunningServer, empty: RunningServer, tmp_path: Path
) -> None:
    """E-20…E-74, A-1, F-2: every property, rule, typed value and key; forwards in any order."""
    file = tmp_path / "bus.json"
    shell("export", str(file), "--data", str(source.data))
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob(".*.part")) == []
    target = ("--data", str(empty.data))
    planned = shell("import", str(file), "--dry-run", *target)
    assert "would create subscription t/Subscriptions/choosy" in planned
    assert shell.json("queue", "list", *target) == []
    shell("import", str(file), *target)
    assert "the key of RootManageSharedAccessKey is now the file's" in shell.told
    assert _exported(shell, empty) == _exported(shell, source)
    assert shell("import", str(file), *target) == "Nothing to change.\n"
    assert shell.json("rule", "list", "t", "mute", *target) == []


def test_without_keys_the_server_draws_new_ones(
    shell: Shell, source: RunningServer, empty: RunningServer, tmp_path: Path
) -> None:
    """A-1: and those that are there stay."""
    file = tmp_path / "bus.json"
    shell("export", str(file), "--without-keys", "--data", str(source.data))
    assert "PrimaryKey" not in file.read_text()
    target = ("--data", str(empty.data))
    shell("import", str(file), *target)
    assert "RootManageSharedAccessKey" not in shell.told
    [pub] = shell.json("key", "list", "t", "--show-keys", *target)
    assert len(pub["primaryKey"]) > 40
    assert shell("import", str(file), *target) == "Nothing to change.\n"
    assert shell.json("key", "list", "t", "--show-keys", *target) == [pub]


def test_an_import_changes_what_differs_and_leaves_the_rest(
    shell: Shell, empty: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-20, E-25, E-70: from standard input; a property that cannot change stops it before it begins."""
    target = ("--data", str(empty.data))
    shell("queue", "create", "q", "--user-metadata", "old", "--lock-duration", "PT5S", *target)
    shell("queue", "create", "mine", *target)
    shell("topic", "create", "t", *target)
    shell("subscription", "create", "t", "s", *target)

    def apply(queue: dict[str, object], *options: str, code: int = 0) -> str:
        rule = {"Name": "r", "Properties": {"SqlFilter": {"SqlExpression": "a = 1"}}}
        topic = {"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [rule]}]}
        namespace = {"Queues": [{"Name": "new"}, {"Name": "q", "Properties": queue}], "Topics": [topic]}
        file = {"Format": "busway/1", "UserConfig": {"Namespaces": [namespace]}}

        class Input:
            buffer = io.BytesIO(json.dumps(file).encode())

        monkeypatch.setattr("sys.stdin", Input)
        return shell("import", "-", *options, *target, code=code)

    refusal = apply({"RequiresSession": True}, code=1)
    assert "RequiresSession cannot be changed after creation" in refusal
    assert [each["name"] for each in shell.json("queue", "list", *target)] == ["mine", "q"]
    told = apply({"LockDuration": "PT9S"}, "--json")
    assert json.loads(told) == {
        "changes": [
            "create queue new",
            "change queue q: LockDuration PT5S → PT9S, UserMetadata old → none",
            "add rule r of t/Subscriptions/s",
        ],
        "applied": True,
    }
    changed = shell.json("queue", "show", "q", *target)
    assert (changed["LockDuration"], changed.get("UserMetadata") or "") == ("PT9S", "")
    names = [rule["Name"] for rule in shell.json("rule", "list", "t", "s", *target)]
    assert names == ["$Default", "r"]
    assert apply({"LockDuration": "PT9S"}) == "Nothing to change.\n"


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"{", "Line 1"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"UserConfig": {"Namespacs": []}}', "did you mean 'Namespaces'?"),
        (
            b'{"UserConfig": {"Namespaces": [{"Queues": [{"Name": "a", "Properties": {"ForwardTo": "b"}}]}]}}',
            "'b'",
        ),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence(
    shell: Shell, source: RunningServer, tmp_path: Path, content: bytes, part: str
) -> None:
    """E-6, F-2: nothing is changed."""
    file = tmp_path / "bus.json"
    file.write_bytes(content)
    refusal = shell("import", str(file), "--data", str(source.data), code=1)
    assert part in refusal
    assert refusal.count("\n") == 1


def test_a_file_that_cannot_be_written_is_one_sentence(
    shell: Shell, source: RunningServer, tmp_path: Path
) -> None:
    """Command-line contract: no half of a file is left."""
    missing = tmp_path / str(uuid4()) / "bus.json"
    assert shell("export", str(missing), "--data", str(source.data), code=1).count("\n") == 1


def test_a_file_with_keys_is_private_from_its_first_moment(tmp_path: Path) -> None:
    """A-1: also when it replaces one that was not, and nothing else is left."""
    file = tmp_path / "bus.json"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o600)
    assert list(tmp_path.iterdir()) == [file]
