"""Topics, subscriptions, rules and their traffic on the command line, with a real server."""

import asyncio
import json
import os
import signal
import subprocess
from uuid import uuid4

import pytest

from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.harness.running_server import BUSWAY, RunningServer
from tests.harness.shell import Shell


@pytest.fixture
def topic(shell: Shell) -> str:
    name = f"t-{uuid4()}"
    shell("topic", "create", name)
    return name


def test_a_topic_is_created_shown_changed_listed_and_deleted(shell: Shell) -> None:
    """E-50, ERR-43: a topic is created, shown, changed, listed and deleted."""
    name = f"t-{uuid4()}"
    created = shell.json("topic", "create", name, "--max-size-in-megabytes", "2048")
    assert (created["name"], created["MaxSizeInMegabytes"]) == (name, 2048)
    shell("topic", "update", name, "--user-metadata", "mine")
    shown = shell.json("topic", "show", name)
    assert (shown["UserMetadata"], shown["SubscriptionCount"]) == ("mine", 0)
    assert name in shell("topic", "list")
    assert "that is the name of a topic" in shell("queue", "show", name, code=1)
    shell("topic", "delete", name)
    assert "does not exist" in shell("topic", "show", name, code=1)


def test_a_subscription_is_created_shown_changed_listed_and_deleted(shell: Shell, topic: str) -> None:
    """E-60, E-64: a subscription is created, shown, changed, listed and deleted."""
    created = shell.json("subscription", "create", topic, "s", "--max-delivery-count", "3")
    assert (created["name"], created["MaxDeliveryCount"]) == ("s", 3)
    assert "AuthorizationRules" not in created
    shell("subscription", "update", topic, "s", "--lock-duration", "PT30S")
    assert shell.json("subscription", "show", topic, "s")["LockDuration"] == "PT30S"
    assert [each["name"] for each in shell.json("subscription", "list", topic)] == ["s"]
    shell("subscription", "delete", topic, "s")
    assert shell.json("subscription", "list", topic) == []
    assert "does not exist" in shell("subscription", "list", "nowhere", code=1)
    assert shell("subscription", "show", topic, "s", code=1)


def test_rules_are_created_listed_and_deleted(shell: Shell, topic: str) -> None:
    """E-64, E-70, E-74: with parameters of their types; `$Default` is still there, and that is said."""
    shell("subscription", "create", topic, "s")
    call = ["rule", "create", topic, "s", "reds", "--filter", "color = 'red' AND n > @least"]
    shell(*call, "--parameter", "least:=5", "--action", "SET seen = TRUE")
    assert "$Default still selects every message" in shell.told
    shell("rule", "create", topic, "s", "five", "--correlation", "subject=order", "--correlation", "size:=5")
    shell("rule", "delete", topic, "s", "$Default")
    rules = shell.json("rule", "list", topic, "s")
    assert rules == [
        {
            "Name": "five",
            "Properties": {
                "FilterType": "Correlation",
                "CorrelationFilter": {"Label": "order", "Properties": {"size": 5}},
            },
        },
        {
            "Name": "reds",
            "Properties": {
                "FilterType": "Sql",
                "SqlFilter": {"SqlExpression": "color = 'red' AND n > @least", "Parameters": {"@least": 5}},
                "Action": {"SqlExpression": "SET seen = TRUE"},
            },
        },
    ]
    assert "subject=order, size=5" in shell("rule", "list", topic, "s")
    assert "already exists" in shell("rule", "create", topic, "s", "reds", code=1)
    refusal = shell("rule", "create", topic, "s", "wrong", "--filter", "color = ", code=1)
    assert "is not valid" in refusal
    assert refusal.count("\n") == 1


def test_messages_go_through_a_topic_by_the_rules_of_its_subscriptions(shell: Shell, topic: str) -> None:
    """T-1, T-4, D-15, R-60: send, peek, receive, dead-letter and purge by their paths."""
    reds, all_ = f"{topic}/Subscriptions/reds", f"{topic}/Subscriptions/all"
    shell("subscription", "create", topic, "reds")
    shell("subscription", "create", topic, "all")
    shell("rule", "delete", topic, "reds", "$Default")
    shell("rule", "create", topic, "reds", "red", "--filter", "color = 'red'")
    shell("send", topic, "--body", "r", "--property", "color=red")
    shell("send", topic, "--body", "b", "--property", "color=blue", "--count", "2")
    assert [message["body"] for message in shell.json("peek", all_)] == ["r", "b", "b"]
    [received] = shell.json(
        "receive", reds, "--count", "5", "--wait", "2", "--mode", "peek-lock", "--settle", "dead-letter"
    )
    assert received["body"] == "r"
    assert [message["body"] for message in shell.json("peek", f"{reds}/$DeadLetterQueue")] == ["r"]
    assert shell.json("purge", all_, "--yes") == {"deleted": 3}
    assert "Receive from one of its subscriptions" in shell("receive", topic, code=1)


def test_keys_of_topics_come_change_and_go(shell: Shell, topic: str) -> None:
    """A-1, A-2, E-61: as on queues; a subscription has none of its own."""
    shell("subscription", "create", topic, "s")
    told = shell("key", "create", topic, "worker", "--rights", "listen", "--show-keys")
    connection_string = told.splitlines()[1]
    path = f"{topic}/Subscriptions/s"
    assert shell.json("receive", path, "--wait", "0", "--connection-string", connection_string) == []
    assert "Send" in shell("send", topic, "--body", "x", "--connection-string", connection_string, code=1)
    shell("key", "rotate", topic, "worker")
    assert shell("receive", path, "--wait", "0", "--connection-string", connection_string, code=1)
    shell("key", "delete", topic, "worker")
    assert shell.json("key", "list", topic) == []
    assert "those of its topic count" in shell("key", "list", path, code=2)


def test_a_forward_that_leads_back_is_warned_of(shell: Shell, topic: str) -> None:
    """F-14: it is made all the same."""
    name = f"q-{uuid4()}"
    shell("queue", "create", name, "--forward-to", topic)
    assert shell.told == ""
    shell("subscription", "create", topic, "s", "--forward-to", name)
    assert f"goes in a circle: {topic}/Subscriptions/s → {name} → {topic}" in shell.told
    assert shell.json("subscription", "show", topic, "s")["ForwardTo"] == name
    shell("queue", "update", name, "--forward-to", "")
    assert shell.told == ""
    assert not shell.json("queue", "show", name).get("ForwardTo")


def _dead_letter(shell: Shell, path: str, count: int) -> None:
    call = ("receive", path, "--count", str(count), "--mode", "peek-lock", "--settle", "dead-letter")
    assert len(shell.json(*call)) == count


@pytest.fixture
def queue(shell: Shell) -> str:
    name = f"q-{uuid4()}"
    shell("queue", "create", name)
    return name


def test_chosen_dead_letters_go_back_and_the_others_stay_as_they_are(shell: Shell, queue: str) -> None:
    """D-2, R-12, T-33: by a filter over their properties; delivery counts are not raised by looking."""
    for color, count in (("red", 3), ("blue", 2), ("red", 1)):
        shell("send", queue, "--body", color, "--property", f"color={color}", "--count", str(count))
    _dead_letter(shell, queue, 6)
    ids = {message["message_id"] for message in shell.json("peek", queue, "--dead-letter")}
    call = ("resubmit", queue, "--filter", "color = 'blue'")
    assert shell.json(*call, "--dry-run")["chosen"] == 2
    assert shell.json("peek", queue) == []
    answer = {"dead_lettered": 6, "chosen": 2, "moved": 2, "left": 0, "deferred": 0, "to": queue}
    assert shell.json(*call) == answer
    back = shell.json("peek", queue)
    assert [(message["body"], message["application_properties"]) for message in back] == [
        ("blue", {"color": "blue"})
    ] * 2
    left = shell.json("peek", queue, "--dead-letter")
    assert [(message["body"], message["delivery_count"]) for message in left] == [("red", 0)] * 4
    assert {message["message_id"] for message in [*back, *left]} == ids
    assert "Resubmitted 0 of 4" in shell(*call)
    assert shell.json("receive", f"{queue}/$DeadLetterQueue", "--count", "9", "--wait", "2")


def test_a_queue_that_detects_duplicates_takes_its_dead_letters_back(shell: Shell) -> None:
    """D-2, M-7: it would drop their old ids, and with them the messages."""
    queue = f"q-{uuid4()}"
    shell("queue", "create", queue, "--requires-duplicate-detection")
    for message_id in ("a", "b"):
        shell("send", queue, "--body", message_id, "--message-id", message_id)
    _dead_letter(shell, queue, 2)
    assert shell.json("resubmit", queue)["moved"] == 2
    back = shell.json("peek", queue)
    assert [(message["body"], message["message_id"].split("~")[0]) for message in back] == [
        ("a", "a"),
        ("b", "b"),
    ]
    _dead_letter(shell, queue, 2)
    assert shell.json("resubmit", queue)["moved"] == 2
    assert [message["message_id"].count("~") for message in shell.json("peek", queue)] == [1, 1]


def test_properties_can_be_kept_and_another_place_be_chosen(shell: Shell, queue: str) -> None:
    """D-6: --keep-properties and --to; the dead-letter queue's own path means the same."""
    other = f"q-{uuid4()}"
    shell("queue", "create", other)
    shell("send", queue, "--body", "x", "--session-id", "s", "--time-to-live", "PT1H")
    _dead_letter(shell, queue, 1)
    shell("resubmit", f"{queue}/$DeadLetterQueue", "--to", other, "--keep-properties")
    [moved] = shell.json("peek", other)
    assert moved["dead_letter_reason"] == "busway receive --settle dead-letter"
    assert (moved["session_id"], moved["time_to_live_ms"]) == ("s", 3_600_000)
    assert shell.json("peek", queue, "--dead-letter") == []


def test_a_subscriptions_dead_letters_go_to_its_topic(shell: Shell, topic: str) -> None:
    """D-2, T-1: every subscription is offered them again."""
    shell("subscription", "create", topic, "s")
    shell("subscription", "create", topic, "other")
    shell("send", topic, "--body", "x")
    _dead_letter(shell, f"{topic}/Subscriptions/s", 1)
    assert shell.json("resubmit", f"{topic}/Subscriptions/s")["to"] == topic
    assert len(shell.json("peek", f"{topic}/Subscriptions/s")) == 1
    assert len(shell.json("peek", f"{topic}/Subscriptions/other")) == 2


def test_what_cannot_be_sent_stays_dead_lettered(shell: Shell, queue: str) -> None:
    """D-2, R-12: sent first, completed then; the locks are given back."""
    shell("send", queue, "--body", "x", "--count", "2")
    _dead_letter(shell, queue, 2)
    shell("queue", "update", queue, "--status", "SendDisabled")
    assert shell("resubmit", queue, code=1)
    shell("queue", "update", queue, "--status", "Active")
    assert shell.json("resubmit", queue)["moved"] == 2
    assert "At character" in shell("resubmit", queue, "--filter", "color = ", code=2)
    assert "could not be found" in shell("resubmit", "nowhere", code=1)


def test_one_that_cannot_be_sent_keeps_no_other_from_it(shell: Shell, queue: str) -> None:
    """D-2, D-12, S-20: in one batch with others; it stays, and why is said."""
    other = f"q-{uuid4()}"
    shell("queue", "create", other, "--requires-session")
    for session in ("a", "", "b"):
        options = ("--session-id", session) if session else ()
        shell("send", queue, "--body", session or "none", *options)
    _dead_letter(shell, queue, 3)
    refusal = shell("resubmit", queue, "--to", other, code=1)
    assert f"1 were refused by {other} and stay dead-lettered" in refusal
    assert "SessionId" in refusal
    assert [message["session_id"] for message in shell.json("peek", other)] == ["a", "b"]
    [left] = shell.json("peek", queue, "--dead-letter")
    assert (left["body"], left["delivery_count"]) == ("none", 0)


async def _fill_dead_letters(connection_string: str, queue: str, count: int) -> None:
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        message = ServiceBusMessage(b"x", {"color": "red"})
        last = ServiceBusMessage(b"y", {"color": "blue"})
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([message] * (count - 1) + [last])
        management = client.get_management(queue)
        left = count
        while left > 0:
            async with client.get_queue_receiver(queue) as receiver:
                messages = await receiver.receive_messages(1_000, 5.0)
            tokens = [each.lock_token for each in messages if each.lock_token is not None]
            await management.settle_all(tokens, "suspended")
            left -= len(tokens)


def test_a_message_behind_thousands_is_reached(server: RunningServer, shell: Shell, queue: str) -> None:
    """R-19, R-12: more than one link may leave unsettled; none of those in front is counted as delivered."""
    asyncio.run(_fill_dead_letters(server.connection_string, queue, 2_600))
    assert shell.json("resubmit", queue, "--filter", "color = 'blue'")["moved"] == 1
    left = shell.json("peek", queue, "--dead-letter", "--count", "3000")
    assert len(left) == 2_599
    assert {message["delivery_count"] for message in left} == {0}
    assert len(shell.json("receive", f"{queue}/$DeadLetterQueue", "--count", "10", "--wait", "5")) == 10


def test_an_interrupt_ends_the_work_in_order(server: RunningServer, shell: Shell, queue: str) -> None:
    """D-2: what was moved is moved once; a second run moves the rest."""
    asyncio.run(_fill_dead_letters(server.connection_string, queue, 2_000))
    environment = {**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string}
    work = subprocess.Popen(
        [str(BUSWAY), "resubmit", queue, "--json"], stdout=subprocess.PIPE, env=environment, text=True
    )
    while not shell.json("peek", queue):
        assert work.poll() is None
    work.send_signal(signal.SIGINT)
    printed, _ = work.communicate(timeout=100)
    first = json.loads(printed)
    assert work.returncode == (130 if first["left"] else 0)
    second = shell.json("resubmit", queue)
    assert first["moved"] + second["moved"] == 2_000
    assert shell.json("queue", "show", queue)["ActiveMessageCount"] == 2_000
