"""SB-5xx: ServiceBusAdministrationClient of the Python SDK, unmodified."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusError
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    EntityStatus,
    ServiceBusAdministrationClient,
)

from tests.conformance.traffic import receive_all, send

pytestmark = pytest.mark.sdk

#: .NET's TimeSpan maximum as the SDK reads it.
NEVER = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_580)


def test_sb_501_a_fresh_queue_has_the_documented_defaults(
    admin: ServiceBusAdministrationClient, new_queue: Callable[..., str]
) -> None:
    """E-20, E-21, E-22, E-23, E-24, E-25, E-27, E-28, E-29, E-30, E-32, E-35, E-36, E-37: defaults."""
    queue = admin.get_queue(new_queue())
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.max_size_in_megabytes == 1024
    assert queue.max_message_size_in_kilobytes == 256
    assert queue.requires_duplicate_detection is False
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert queue.requires_session is False
    assert queue.dead_lettering_on_message_expiration is False
    assert queue.max_delivery_count == 10
    assert queue.enable_batched_operations is True
    assert queue.enable_express is False
    assert queue.enable_partitioning is False
    assert queue.status == EntityStatus.ACTIVE
    assert queue.default_message_time_to_live >= timedelta(days=10_675_199)
    assert queue.auto_delete_on_idle >= timedelta(days=10_675_199)
    assert not queue.user_metadata
    assert not queue.authorization_rules


def test_sb_502_everything_that_is_set_comes_back(
    admin: ServiceBusAdministrationClient, new_queue: Callable[..., str]
) -> None:
    """E-20, E-21, E-23…, E-36, E-37, A-1, A-2: properties and authorization rules as they were given."""
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="sender",
        primary_key="a" * 43 + "=",
        secondary_key="b" * 43 + "=",
        created_at_utc=datetime.now(UTC),
        modified_at_utc=datetime.now(UTC),
    )
    given: dict[str, object] = {
        "lock_duration": timedelta(seconds=13),
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "requires_session": True,
        "default_message_time_to_live": timedelta(minutes=11),
        "dead_lettering_on_message_expiration": True,
        "max_delivery_count": 14,
        "enable_batched_operations": False,
        "auto_delete_on_idle": timedelta(minutes=10),
        "user_metadata": "some <text> & more",
        "authorization_rules": [rule],
    }
    queue = admin.get_queue(new_queue(**given))
    for name, value in given.items():
        if name != "authorization_rules":
            assert getattr(queue, name) == value, name
    (back,) = queue.authorization_rules
    assert (back.key_name, back.primary_key, back.rights) == ("sender", "a" * 43 + "=", [AccessRights.SEND])


def test_sb_503_creating_twice_conflicts_whatever_the_spelling(
    admin: ServiceBusAdministrationClient, new_queue: Callable[..., str]
) -> None:
    """E-1, E-7, ERR-2, ERR-43: names compare without regard to case; the first spelling is returned."""
    name = new_queue()
    with pytest.raises(ResourceExistsError):
        admin.create_queue(name.upper())
    assert admin.get_queue(name.upper()).name in (name, name.upper())
    assert name in [queue.name for queue in admin.list_queues()]


def test_sb_504_update_and_delete(
    admin: ServiceBusAdministrationClient, new_queue: Callable[..., str]
) -> None:
    """E-20, E-23, E-25, ERR-43: what may change changes, what may not is refused, a deleted queue is gone."""
    queue = admin.get_queue(new_queue())
    queue.lock_duration = timedelta(seconds=20)
    queue.max_delivery_count = 4
    queue.default_message_time_to_live = timedelta(hours=2)
    admin.update_queue(queue)
    again = admin.get_queue(queue.name)
    assert (again.lock_duration, again.max_delivery_count) == (timedelta(seconds=20), 4)
    again.requires_session = True
    with pytest.raises(HttpResponseError, match="40000"):
        admin.update_queue(again)
    admin.delete_queue(queue.name)
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue(queue.name)
    with pytest.raises(ResourceNotFoundError):
        admin.delete_queue(queue.name)
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(queue)


def test_sb_505_lists_are_paged(admin: ServiceBusAdministrationClient, new_queue: Callable[..., str]) -> None:
    """ERR-43: a list of more than a hundred queues arrives whole, each once."""
    made = {new_queue() for _ in range(105)}
    listed = [queue.name for queue in admin.list_queues()]
    assert made <= set(listed)
    assert len(listed) == len(set(listed))
    runtime = {queue.name for queue in admin.list_queues_runtime_properties()}
    assert made <= runtime


def test_sb_506_counts_and_sizes_are_reported(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """E-40, E-41, E-100, E-101, E-102, M-24, L-21: active, dead, scheduled, total, size, times."""
    queue = new_queue()
    fresh = admin.get_queue_runtime_properties(queue)
    assert (fresh.total_message_count, fresh.size_in_bytes) == (0, 0)
    send(client, queue, *(f"{number}" for number in range(5)))
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("s"), datetime.now(UTC) + timedelta(hours=1))
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        messages = receiver.receive_messages(max_message_count=2)
        while len(messages) < 2:
            messages += receiver.receive_messages(max_message_count=1)
        receiver.dead_letter_message(messages[0])
        receiver.defer_message(messages[1])
    counts = admin.get_queue_runtime_properties(queue)
    assert counts.active_message_count == 3
    assert counts.dead_letter_message_count == 1
    assert counts.scheduled_message_count == 1
    assert counts.total_message_count == 6
    assert counts.size_in_bytes > 0
    assert counts.accessed_at_utc > fresh.created_at_utc - timedelta(seconds=1)


def test_sb_507_a_queue_can_be_switched_off_and_on(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """E-80, E-82, E-84, E-85, S-10, ERR-3: each status refuses what it says, messages stay."""
    name = new_queue()
    send(client, name, "kept")

    def switch(status: EntityStatus) -> None:
        queue = admin.get_queue(name)
        queue.status = status
        admin.update_queue(queue)

    switch(EntityStatus.SEND_DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        send(client, name, "refused")
    switch(EntityStatus.RECEIVE_DISABLED)
    send(client, name, "second")
    with (
        pytest.raises(MessagingEntityDisabledError),
        client.get_queue_receiver(name, max_wait_time=1) as receiver,
    ):
        receiver.receive_messages()
    switch(EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        send(client, name, "refused")
    switch(EntityStatus.ACTIVE)
    assert [str(message) for message in receive_all(client, name, 2)] == ["kept", "second"]


@pytest.mark.parametrize(
    "name", ["bad//name", "/start", "end/", "a?b", "a*b", "x" * 261, "a\\b", "$reserved", "a b"]
)
def test_sb_508_bad_names_are_refused(admin: ServiceBusAdministrationClient, name: str) -> None:
    """E-2, E-5, E-6: a name that breaks the rules is refused and nothing is created."""
    with pytest.raises((HttpResponseError, ValueError)):
        admin.create_queue(name)


def test_sb_509_names_may_have_several_segments(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """E-5, E-6, E-8: site2/page1/orders is one queue."""
    admin.create_queue("site2/page1/or~ders_1.x-y")
    send(client, "site2/page1/or~ders_1.x-y", "there")
    assert [str(message) for message in receive_all(client, "SITE2/page1/or~ders_1.x-y", 1)] == ["there"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"lock_duration": timedelta(minutes=6)},
        {"lock_duration": timedelta(seconds=1)},
        {"max_size_in_megabytes": 1500},
        {"max_message_size_in_kilobytes": 1024},
        {"duplicate_detection_history_time_window": timedelta(seconds=5)},
        {"auto_delete_on_idle": timedelta(minutes=1)},
        {"max_delivery_count": 0},
        {"user_metadata": "x" * 1025},
        {"requires_duplicate_detection": True, "enable_express": True},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_sb_510_properties_out_of_range_are_refused(
    admin: ServiceBusAdministrationClient, wrong: dict[str, object]
) -> None:
    """E-20, E-21, E-22, E-24, E-28, E-30, E-36, E-43, L-19, ERR-42: 400 with sub-code 40000, nothing created."""
    name = f"wrong-{'-'.join(wrong)}"
    with pytest.raises(HttpResponseError, match="40000"):
        admin.create_queue(name, **wrong)
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue(name)


def test_sb_511_the_namespace_tells_about_itself(admin: ServiceBusAdministrationClient) -> None:
    """ERR-43: $namespaceinfo as the client reads it."""
    properties = admin.get_namespace_properties()
    assert properties.name
    assert properties.messaging_sku == "Standard"


def test_sb_512_deleting_a_queue_detaches_its_links_and_a_new_one_is_empty(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """E-86, ERR-1: nothing of the old incarnation survives."""
    name = new_queue()
    send(client, name, "old")
    with client.get_queue_receiver(name, max_wait_time=2) as receiver:
        (message,) = receiver.receive_messages()
        admin.delete_queue(name)
        with pytest.raises(ServiceBusError):
            receiver.complete_message(message)
    admin.create_queue(name)
    send(client, name, "new")
    (fresh,) = receive_all(client, name, 1)
    assert (str(fresh), fresh.sequence_number) == ("new", 1)
