"""The command line and a real server."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell


@pytest.fixture
def queue(shell: Shell) -> str:
    name = f"q-{uuid4()}"
    shell("queue", "create", name)
    return name


def test_a_queue_is_created_shown_changed_listed_and_deleted(shell: Shell) -> None:
    """E-20, E-28, ERR-43: property options in kebab-case."""
    name = f"q-{uuid4()}"
    created = shell.json("queue", "create", name, "--lock-duration", "PT30S", "--requires-session")
    assert (created["name"], created["LockDuration"], created["RequiresSession"]) == (name, "PT30S", True)
    assert "exists" in shell("queue", "create", name, code=1)
    shell("queue", "update", name, "--max-delivery-count", "5", "--no-enable-batched-operations")
    shown = shell.json("queue", "show", name)
    assert (shown["MaxDeliveryCount"], shown["LockDuration"], shown["ActiveMessageCount"]) == (5, "PT30S", 0)
    assert name in [entry["name"] for entry in shell.json("queue", "list")]
    assert name in shell("queue", "list")
    shell("queue", "delete", name)
    assert "does not exist" in shell("queue", "show", name, code=1)


def test_a_property_that_the_server_refuses_is_one_sentence(shell: Shell) -> None:
    """E-20: the sentence names the property."""
    refusal = shell("queue", "create", f"q-{uuid4()}", "--lock-duration", "PT10M", code=1)
    assert "LockDuration" in refusal
    assert refusal.count("\n") == 1


def test_messages_are_sent_peeked_and_received(shell: Shell, queue: str) -> None:
    """R-1, R-60, M-31: messages are sent, peeked and received."""
    assert shell("send", queue, "--body", "hello", "--property", "n:=7", "--subject", "greeting")
    shell("send", queue, "--body", "again", "--count", "3")
    peeked = shell.json("peek", queue)
    assert [message["body"] for message in peeked] == ["hello", "again", "again", "again"]
    assert peeked[0]["application_properties"] == {"n": 7}
    assert [message["sequence_number"] for message in shell.json("peek", queue, "--from", "3")] == [3, 4]
    received = shell.json("receive", queue, "--count", "10", "--wait", "2")
    assert [message["sequence_number"] for message in received] == [1, 2, 3, 4]
    assert shell.json("receive", queue, "--wait", "0") == []
    assert shell("receive", queue, "--wait", "0") == ""


def test_a_body_comes_from_a_file(shell: Shell, queue: str, tmp_path: Path) -> None:
    """M-28: bytes that are no text survive."""
    file = tmp_path / "body"
    file.write_bytes(b"\xff\xfe")
    shell("send", queue, "--file", str(file))
    assert shell.json("receive", queue)[0]["body_base64"] == "//4="


def test_peek_lock_settles_after_printing(shell: Shell, queue: str) -> None:
    """R-2, R-10, R-14: complete by default, or as told."""
    shell("send", queue, "--body", "x", "--count", "3")
    shell("receive", queue, "--mode", "peek-lock")
    shell("receive", queue, "--mode", "peek-lock", "--settle", "dead-letter")
    shell("receive", queue, "--mode", "peek-lock", "--settle", "abandon")
    assert [message["delivery_count"] for message in shell.json("peek", queue)] == [1]
    [dead] = shell.json("peek", queue, "--dead-letter")
    assert dead["dead_letter_reason"] == "busway receive --settle dead-letter"
    shell("receive", queue, "--mode", "peek-lock", "--settle", "defer")
    assert shell.json("peek", queue)[0]["state"] == "deferred"


def test_a_scheduled_message_waits(shell: Shell, queue: str) -> None:
    """S-30, S-31: a scheduled message waits."""
    answer = shell.json("send", queue, "--body", "later", "--schedule", "PT1H")
    assert answer == {"sent": 1, "sequence_numbers": [1]}
    assert shell.json("receive", queue, "--wait", "0") == []
    assert shell.json("peek", queue)[0]["state"] == "scheduled"


def test_purge_deletes_until_nothing_is_left(shell: Shell, queue: str) -> None:
    """R-83: more than one batch."""
    shell("send", queue, "--body", "x", "--count", "1203")
    assert shell.json("purge", queue, "--yes") == {"deleted": 1203}
    assert shell.json("peek", queue) == []


def test_sessions_by_name_and_by_turn(shell: Shell) -> None:
    """X-3, X-7: an empty turn prints nothing and is no failure."""
    name = f"q-{uuid4()}"
    shell("queue", "create", name, "--requires-session")
    shell("send", name, "--body", "a", "--session-id", "s")
    shell("send", name, "--body", "b", "--session-id", "t")
    assert shell.json("receive", name, "--session-id", "t", "--wait", "2")[0]["body"] == "b"
    assert shell.json("receive", name, "--next-session", "--wait", "2")[0]["session_id"] == "s"
    assert shell.json("receive", name, "--next-session", "--wait", "0.1") == []
    for count in ("1", "3"):
        assert "SessionId was not set" in shell("send", name, "--body", "a", "--count", count, code=1)


def test_keys_come_change_and_go_without_being_shown(shell: Shell, queue: str) -> None:
    """A-1, A-2, A-10: on a queue and on the namespace; secrets only with --show-keys."""
    for place in ([queue], []):
        told = shell("key", "create", *place, "worker", "--rights", "send")
        assert "SharedAccessKey" not in told
        [before] = [
            rule for rule in shell.json("key", "list", *place, "--show-keys") if rule["name"] == "worker"
        ]
        assert before["rights"] == ["Send"]
        shell("key", "rotate", *place, "worker", "--key", "secondary")
        [after] = [
            rule for rule in shell.json("key", "list", *place, "--show-keys") if rule["name"] == "worker"
        ]
        assert after["primaryKey"] == before["primaryKey"]
        assert after["secondaryKey"] != before["secondaryKey"]
        assert before["primaryKey"] not in shell("key", "list", *place)
        shell("key", "delete", *place, "worker")
        assert "no rule" in shell("key", "rotate", *place, "worker", code=1)


def test_a_new_key_works_as_far_as_its_rights_go(shell: Shell, queue: str) -> None:
    """A-6, A-9: a sender sends, and does not receive."""
    told = shell("key", "create", queue, "sender", "--rights", "send", "--show-keys")
    connection_string = told.splitlines()[1]
    assert connection_string.endswith(f"EntityPath={queue}")
    shell("send", queue, "--body", "x", "--connection-string", connection_string)
    assert "Listen" in shell("receive", queue, "--connection-string", connection_string, code=1)
    assert "Listen" in shell("peek", queue, "--connection-string", connection_string, code=1)


def test_stores_are_listed_and_switched(shell: Shell) -> None:
    """Command-line contract: what is told of each; an unknown store is a failure."""
    stores = shell.json("stores")
    told = {"name", "url", "state", "owner", "epoch", "lost_commits", "fragments"}
    assert all(set(store) == told for store in stores)
    last = stores[-1]["name"]
    shell("stores", "disable", last)
    assert shell.json("stores")[-1]["state"] != "open"
    shell("stores", "enable", last)
    assert shell.json("stores")[-1]["state"] == "open"
    assert "no store" in shell("stores", "disable", "nowhere", code=1)


def test_the_data_directory_alone_finds_the_server(
    server: RunningServer, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command-line contract: without a connection string the last server of --data is asked."""
    monkeypatch.delenv("BUSWAY_CONNECTION_STRING")
    assert shell("connection-string", "--data", str(server.data)).strip() == server.connection_string
    assert isinstance(shell.json("queue", "list", "--data", str(server.data)), list)
    assert shell.json("stores", "--data", str(server.data))
