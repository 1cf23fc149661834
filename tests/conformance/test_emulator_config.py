"""SB-87x: `busway serve --config` with the official emulator's Config.json, and its well-known key."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.traffic import bodies, receive_all
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.sdk

EMULATOR_KEY = "SAS_KEY_VALUE"
#: In the shape of the emulator's own sample.
OFFICIAL = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    },
                    {"Name": "plain"},
                    {"Name": "ordered", "Properties": {"RequiresSession": True, "LockDuration": "PT30S"}},
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            {
                                "Name": "by-system",
                                "Properties": {
                                    "DeadLetteringOnMessageExpiration": False,
                                    "DefaultMessageTimeToLive": "PT1H",
                                    "LockDuration": "PT1M",
                                    "MaxDeliveryCount": 3,
                                    "ForwardDeadLetteredMessagesTo": "",
                                    "ForwardTo": "",
                                    "RequiresSession": False,
                                },
                                "Rules": [
                                    {
                                        "Name": "subjects",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "Label": "order",
                                                "ContentType": "text/plain",
                                            },
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": "by-user",
                                "Rules": [
                                    {
                                        "Name": "colours",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"Properties": {"color": "red"}},
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": "by-sql",
                                "Rules": [
                                    {
                                        "Name": "large",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "size > 10"},
                                            "Action": {"SqlExpression": "SET seen = 'yes'"},
                                        },
                                    }
                                ],
                            },
                            {"Name": "all"},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def written(folder: Path, content: object) -> Path:
    file = folder / "Config.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def administration(server: RunningServer) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file
    )


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path, "--config", str(written(tmp_path, OFFICIAL)), "--dev-key") as server:
        yield server


def test_sb_870_the_emulators_file_makes_its_queues_with_its_defaults(configured: RunningServer) -> None:
    """E-20, E-24, E-26, E-28: what the file leaves out has the emulator's default, not the service's."""
    with administration(configured) as admin:
        assert [queue.name for queue in admin.list_queues()] == ["ordered", "plain", "queue.1"]
        plain, ordered = admin.get_queue("plain"), admin.get_queue("ordered")
    assert plain.default_message_time_to_live == timedelta(hours=1)
    assert plain.lock_duration == timedelta(minutes=1)
    assert plain.duplicate_detection_history_time_window == timedelta(seconds=20)
    assert (plain.max_delivery_count, plain.requires_session, plain.forward_to) == (3, False, None)
    assert (ordered.requires_session, ordered.lock_duration) == (True, timedelta(seconds=30))


def test_sb_871_applying_the_file_again_changes_nothing(configured: RunningServer) -> None:
    """E-40, S-1: messages, other queues and the time of the last change stay."""
    with administration(configured) as admin:
        admin.create_queue("made-otherwise")
        before = admin.get_queue_runtime_properties("plain").updated_at_utc
    with (
        ServiceBusClient.from_connection_string(configured.connection_string) as client,
        client.get_queue_sender("plain") as sender,
    ):
        sender.send_messages(ServiceBusMessage("kept"))
    assert configured.stop() == 0
    configured.start()
    with administration(configured) as admin:
        names = [queue.name for queue in admin.list_queues()]
        assert admin.get_queue_runtime_properties("plain").updated_at_utc == before
    assert names == ["made-otherwise", "ordered", "plain", "queue.1"]
    with ServiceBusClient.from_connection_string(configured.connection_string) as client:
        assert bodies(receive_all(client, "plain", 1)) == ["kept"]


def test_sb_872_code_with_the_emulators_placeholder_key_runs_unchanged(configured: RunningServer) -> None:
    """A-4, A-7, A-11: `--dev-key` accepts SAS_KEY_VALUE, and no other key that is not ours."""
    emulator = (
        f"Endpoint=sb://localhost:{configured.port};SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey={EMULATOR_KEY};UseDevelopmentEmulator=true;"
    )
    with ServiceBusClient.from_connection_string(emulator) as client:
        with client.get_queue_sender("plain") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        assert bodies(receive_all(client, "plain", 1)) == ["hello"]
    other = emulator.replace(EMULATOR_KEY, EMULATOR_KEY.lower())
    with (
        ServiceBusClient.from_connection_string(other, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
        client.get_queue_sender("plain") as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))


def test_sb_873_without_the_switch_the_placeholder_key_is_worth_nothing(server: RunningServer) -> None:
    """A-6, A-7: everybody knows that key."""
    emulator = (
        f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey={EMULATOR_KEY};UseDevelopmentEmulator=true;"
    )
    with (
        ServiceBusClient.from_connection_string(emulator, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
        client.get_queue_sender("any") as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))


def with_queue(**properties: object) -> dict[str, object]:
    queue = {"Name": "q", "Properties": properties}
    return {"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [queue]}]}}


def refusal_of(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A server that is not to come up; it would be killed after ten seconds."""
    command = [str(BUSWAY), "serve", "--data", str(folder / "data"), "--port", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Line 1"),
        ("[]", "an object"),
        ({"UserConfig": {"Namespace": []}}, "did you mean 'Namespaces'?"),
        (with_queue(LockDurration="PT1M"), "Queues[0].Properties.LockDurration: unknown key"),
        (with_queue(LockDuration="PT6M"), "between PT5S and PT5M"),
        (with_queue(LockDuration="1 minute"), "LockDuration"),
        (with_queue(MaxDeliveryCount="three"), "MaxDeliveryCount"),
        (with_queue(RequiresSession="yes"), "RequiresSession"),
        ({"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "b"}]}}, "2 namespaces"),
        (
            {"UserConfig": {"Namespaces": [{"Topics": [{"Name": "t", "Subscriptions": [{"Nam": "s"}]}]}]}},
            "Topics[0].Subscriptions[0].Nam: unknown key; did you mean 'Name'?",
        ),
        ({"UserConfig": {"Namespaces": [{"Name": "a", "Queues": [{"Name": "../q"}]}]}}, "../q"),
    ],
)
def test_sb_874_a_wrong_file_is_refused_with_one_sentence(tmp_path: Path, content: object, said: str) -> None:
    """E-6, E-20, E-28: the sentence names the file and the place; nothing is made, no traceback is shown."""
    file = written(tmp_path, content)
    done = refusal_of(tmp_path, "--config", str(file))
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stderr.startswith("busway: ")
    assert str(file) in done.stderr
    assert said in done.stderr


def test_sb_875_a_missing_file_is_told(tmp_path: Path) -> None:
    """One sentence, exit code 1."""
    done = refusal_of(tmp_path, "--config", str(tmp_path / "nowhere.json"))
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "nowhere.json cannot be read" in done.stderr


def test_sb_876_a_property_that_cannot_change_is_told_and_nothing_is_done(tmp_path: Path) -> None:
    """E-23, E-25: the queue exists otherwise; the file's other queues are not made either."""
    with RunningServer(tmp_path) as server, administration(server) as admin:
        admin.create_queue("q")
    file = written(
        tmp_path,
        {
            "UserConfig": {
                "Namespaces": [
                    {
                        "Name": "ns",
                        "Queues": [{"Name": "new"}, {"Name": "q", "Properties": {"RequiresSession": True}}],
                    }
                ]
            }
        },
    )
    done = refusal_of(tmp_path, "--config", str(file))
    assert done.returncode == 1
    assert "RequiresSession cannot be changed after creation" in done.stderr
    with RunningServer(tmp_path) as server, administration(server) as admin:
        assert [queue.name for queue in admin.list_queues()] == ["q"]


def test_sb_879_a_forward_to_nowhere_is_told_and_nothing_is_done(tmp_path: Path) -> None:
    """F-2: the sentence names both ends."""
    done = refusal_of(tmp_path, "--config", str(written(tmp_path, with_queue(ForwardTo="nowhere"))))
    assert done.returncode == 1
    assert "'q' has ForwardTo = 'nowhere', but there is no queue or topic" in done.stderr


def test_sb_877_the_emulators_topics_select_by_the_files_rules(configured: RunningServer) -> None:
    """E-64, T-4, T-40, T-50: correlation filters, SQL with an action, and none at all."""
    with ServiceBusClient.from_connection_string(configured.connection_string) as client:
        with client.get_topic_sender("topic.1") as sender:
            sender.send_messages(ServiceBusMessage("subject", subject="order", content_type="text/plain"))
            sender.send_messages(ServiceBusMessage("color", application_properties={"color": "red"}))
            sender.send_messages(ServiceBusMessage("size", application_properties={"size": 11}))
        found: dict[str, list[str]] = {}
        for name, count in (("by-system", 1), ("by-user", 1), ("by-sql", 1), ("all", 3)):
            with client.get_subscription_receiver("topic.1", name) as receiver:
                messages = receiver.receive_messages(max_message_count=count, max_wait_time=5)
                while len(messages) < count:
                    messages += receiver.receive_messages(max_message_count=count, max_wait_time=5)
                found[name] = [str(message) for message in messages]
                if name == "by-sql":
                    assert (messages[0].application_properties or {})[b"seen"] == b"yes"
                assert receiver.peek_messages(max_message_count=5, sequence_number=4) == []
    assert found == {
        "by-system": ["subject"],
        "by-user": ["color"],
        "by-sql": ["size"],
        "all": ["subject", "color", "size"],
    }


def test_sb_878_the_emulators_subscriptions_have_its_defaults_and_rules(configured: RunningServer) -> None:
    """E-64, E-70: `$Default` only where the file names no rule."""
    with administration(configured) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["topic.1"]
        subscription = admin.get_subscription("topic.1", "all")
        rules = {
            each.name: [rule.name for rule in admin.list_rules("topic.1", each.name)]
            for each in admin.list_subscriptions("topic.1")
        }
    assert (subscription.max_delivery_count, subscription.default_message_time_to_live) == (
        3,
        timedelta(hours=1),
    )
    assert rules == {
        "all": ["$Default"],
        "by-sql": ["large"],
        "by-system": ["subjects"],
        "by-user": ["colours"],
    }
