"""Event hubs on the command line, with a real server."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.shell import Shell


@pytest.fixture
def hub(shell: Shell) -> str:
    name = f"h-{uuid4()}"
    shell("eventhub", "create", name, "--partitions", "2")
    return name


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_hub_is_created_shown_changed_listed_and_deleted(shell: Shell) -> None:
    """H-2, H-5: a hub is created, shown, changed, listed and deleted."""
    name = f"h-{uuid4()}"
    made = shell.json(
        "eventhub", "create", name, "--partitions", "3", "--retention-hours", "24", "--group", "billing",
        "--capture", "Parquet", "--capture-interval", "60", "--user-metadata", "mine",
    )  # fmt: skip
    assert (made["PartitionIds"], made["ConsumerGroups"]) == (["0", "1", "2"], ["$Default", "billing"])
    assert made["CaptureDescription"]["Encoding"] == "Parquet"
    changed = shell.json("eventhub", "update", name, "--cleanup-policy", "Compact", "--capture", "none")
    assert changed["RetentionDescription"]["CleanupPolicy"] == "Compact"
    assert changed["RetentionDescription"]["RetentionTimeInHours"] == 24
    assert (changed.get("CaptureDescription"), changed["UserMetadata"]) == (None, "mine")
    assert name in shell("eventhub", "list")
    assert "PartitionCount: 3" in shell("eventhub", "show", name)
    assert shell("eventhub", "show", name, "--partitions").splitlines()[0].split()[:3] == [
        "PARTITION",
        "STORE",
        "HEALTH",
    ]
    shell("eventhub", "delete", name)
    assert "could not be found" in shell("eventhub", "show", name, code=1)
    assert "Nothing to change" in shell("eventhub", "update", name, code=2)


def test_consumer_groups_are_created_listed_and_deleted(shell: Shell, hub: str) -> None:
    """H-5: consumer groups are created, listed and deleted."""
    shell("eventhub", "group", "create", hub, "audit", "--user-metadata", "x")
    assert [group["Name"] for group in shell.json("eventhub", "group", "list", hub)] == ["$Default", "audit"]
    assert "already" in shell("eventhub", "group", "create", hub, "audit", code=1)
    shell("eventhub", "group", "delete", hub, "audit")
    assert "cannot be deleted" in shell("eventhub", "group", "delete", hub, "$Default", code=1)


def test_events_are_sent_and_watched_from_any_position(shell: Shell, hub: str, tmp_path: Path) -> None:
    """H-10, H-12, H-20: events are sent and watched from any position."""
    shell("events", "send", hub, "--body", "first", "--partition", "0", "--count", "3")
    (tmp_path / "lines").write_text("a\nb\nc\n")
    shell("events", "send", hub, "--file", str(tmp_path / "lines"), "--lines", "--partition", "0")
    tail = ("events", "tail", hub, "--wait", "2", "--json")
    bodies = [line["body"] for line in lines(shell(*tail, "--from", "first", "--count", "6"))]
    assert bodies == ["first", "first", "first", "a", "b", "c"]
    numbered = lines(shell(*tail, "--from", "4", "--partition", "0", "--count", "2"))
    assert [(line["sequence_number"], line["body"]) for line in numbered] == [(4, "b"), (5, "c")]
    timed = lines(shell(*tail, "--from", "2020-01-01T00:00:00Z", "--count", "1"))
    assert timed[0]["sequence_number"] == 0
    assert shell("events", "tail", hub, "--wait", "0.2") == ""


def test_a_key_keeps_events_together_and_filters_what_is_watched(shell: Shell, hub: str) -> None:
    """H-10: a key keeps events together and filters what is watched."""
    for key in ("alphabet", "key-1"):
        shell("events", "send", hub, "--body", f"of {key}", "--key", key, "--count", "2")
    found = lines(shell("events", "tail", hub, "--from", "first", "--key", "key-1", "--count", "2", "--json"))
    assert {(line["partition_key"], line["body"]) for line in found} == {("key-1", "of key-1")}
    assert len({line["partition"] for line in found}) == 1
    printed = shell("events", "tail", hub, "--from", "first", "--key", "alphabet", "--count", "1")
    assert "key=alphabet" in printed
    assert "of alphabet" in printed


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (("events", "send", "h", "--body", "x", "--key", "k", "--partition", "0"), "exclude each other"),
        (("events", "tail", "h", "--from", "7"), "say which with --partition"),
        (("events", "tail", "h", "--from", "yesterday"), "neither a time"),
    ],
)
def test_wrong_calls_are_told(shell: Shell, call: tuple[str, ...], complaint: str) -> None:
    """H-20: wrong calls are told."""
    assert complaint in shell(*call, code=2)


def test_export_and_import_carry_hubs(shell: Shell, hub: str, tmp_path: Path) -> None:
    """H-2: with their groups."""
    shell("eventhub", "group", "create", hub, "audit")
    file = tmp_path / "bus.json"
    shell("export", str(file))
    assert shell.json("import", str(file))["changes"] == []
    shell("eventhub", "delete", hub)
    changes = shell.json("import", str(file))["changes"]
    assert changes == [f"create event hub {hub} with 2 partitions"]
    assert [group["Name"] for group in shell.json("eventhub", "group", "list", hub)] == ["$Default", "audit"]
