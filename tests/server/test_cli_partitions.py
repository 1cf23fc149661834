"""Partitioned entities on the command line, with a real server."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_an_entity_is_created_partitioned_and_its_fragments_are_shown(shell: Shell, kind: str) -> None:
    """P-7, P-8, P-1, O-8, E-31: an entity is created partitioned and its fragments are shown."""
    name = f"p-{uuid4()}"
    made = shell.json(kind, "create", name, "--partitioned")
    assert (made["EnablePartitioning"], made["MaxSizeInMegabytes"]) == (True, 16384)
    found = shell.json(kind, "show", name, "--fragments")
    assert [each["index"] for each in found] == list(range(16))
    assert {each["health"] for each in found} == {"open"}
    stores = [each["store"] for each in found]
    assert sorted(stores.count(store) for store in set(stores)) == [5, 5, 6]
    printed = shell(kind, "show", name, "--fragments").splitlines()
    assert printed[0].split()[:3] == ["FRAGMENT", "STORE", "HEALTH"]
    assert len(printed) == 17
    shell(kind, "update", name, "--user-metadata", "mine")
    assert shell.json(kind, "show", name)["MaxSizeInMegabytes"] == 16384


def test_messages_are_spread_and_a_lost_store_is_passed_by(shell: Shell) -> None:
    """P-30, P-31, P-25, O-8: as an operator sees it."""
    name = f"p-{uuid4()}"
    shell("queue", "create", name, "--partitioned")
    for _ in range(16):
        shell("send", name, "--body", "x")
    assert [each["active"] for each in shell.json("queue", "show", name, "--fragments")] == [1] * 16
    shell("stores", "disable", "store-1")
    try:
        shell("send", name, "--body", "goes on", "--count", "4")
        health = {each["health"] for each in shell.json("queue", "show", name, "--fragments")}
        assert health == {"open", "disabled"}
        assert shell.json("queue", "show", name)["EntityAvailabilityStatus"] == "Limited"
    finally:
        shell("stores", "enable", "store-1")
    assert sum(each["active"] for each in shell.json("queue", "show", name, "--fragments")) == 20


def test_a_definition_with_partitions_goes_out_and_in_again(shell: Shell, tmp_path: Path) -> None:
    """P-8, E-31: the file says the size of one fragment; a second import changes nothing."""
    name = f"p-{uuid4()}"
    shell("queue", "create", name, "--partitioned", "--max-size-in-megabytes", "2048")
    file = tmp_path / "all.json"
    shell("export", str(file))
    queues = json.loads(file.read_text())["UserConfig"]["Namespaces"][0]["Queues"]
    (written,) = [queue["Properties"] for queue in queues if queue["Name"] == name]
    assert (written["EnablePartitioning"], written["MaxSizeInMegabytes"]) == (True, 2048)
    shell("import", str(file))
    shell("queue", "delete", name)
    shell("import", str(file))
    assert shell.json("queue", "show", name)["MaxSizeInMegabytes"] == 32768


def test_a_namespace_may_be_partitioned_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-1: `--namespace-partitions`, and the same in the file; a plain entity is refused."""
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "Format": "busway/1",
                "Server": {"NamespacePartitions": 4, "Stores": 2},
                "UserConfig": {"Namespaces": [{"Queues": [{"Name": "from-file"}]}]},
            }
        )
    )
    with RunningServer(tmp_path / "server", "--config", str(config)) as running:
        monkeypatch.setenv("BUSWAY_CONNECTION_STRING", running.connection_string)
        shell = Shell(capsys)
        for name in ("from-file", "by-hand"):
            if name == "by-hand":
                shell("queue", "create", name)
            assert len(shell.json("queue", "show", name, "--fragments")) == 4
            assert shell.json("queue", "show", name)["MaxSizeInMegabytes"] == 4096
        told = shell("queue", "create", "plain", "--no-partitioned", code=1)
        assert "Non-partitioned entities are not allowed" in told


@pytest.mark.parametrize(
    "option", ["--partition-count=0", "--partition-count=257", "--namespace-partitions=-1"]
)
def test_a_senseless_number_of_fragments_is_a_wrong_call(shell: Shell, option: str) -> None:
    """P-9, C-1: exit code 2."""
    assert "must be between" in shell("serve", option, code=2)
