"""SB-52x, SB-53x: ServiceBusAdministrationClient of the Python SDK on topics, subscriptions and rules, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

FOREVER_DAYS = timedelta(days=10_675_199)
VALUES: dict[str, str | int | float | bool | datetime | timedelta] = {
    "text": "some <text> & more",
    "int": 2,
    "long": 2_147_483_650,
    "negative": -5,
    "yes": True,
    "no": False,
    "half": 0.5,
    "huge": 1e300,
    "naive": datetime(2020, 7, 5, 11, 12, 13),  # noqa: DTZ001 - users do so, and get it back so
    "utc": datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC),
    "span": timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5),
}


def new_rule(key: str = "a" * 43 + "=") -> AuthorizationRule:
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.MANAGE, AccessRights.LISTEN, AccessRights.SEND],
        key_name="manager",
        primary_key=key,
        secondary_key="b" * 43 + "=",
    )


@pytest.fixture
def topic(admin: ServiceBusAdministrationClient, request: pytest.FixtureRequest) -> str:
    """A topic named after the test, in a folder."""
    name = f"folder/{request.node.name.partition('[')[0][:100]}"
    admin.create_topic(name)
    return name


# -- topics


def test_sb_520_a_fresh_topic_has_the_documented_defaults(
    admin: ServiceBusAdministrationClient, topic: str
) -> None:
    """E-50, E-52, E-53, E-54: defaults; the spelling of the creation is returned (E-7)."""
    found = admin.get_topic(topic.upper())
    assert found.default_message_time_to_live >= FOREVER_DAYS
    assert found.auto_delete_on_idle >= FOREVER_DAYS
    assert found.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert (found.max_size_in_megabytes, found.max_message_size_in_kilobytes) == (1024, 256)
    assert (found.requires_duplicate_detection, found.enable_express) == (False, False)
    assert (found.enable_batched_operations, found.support_ordering) == (True, True)
    assert (found.filtering_messages_before_publishing, found.enable_partitioning) == (False, False)
    assert (found.status, found.availability_status) == (EntityStatus.ACTIVE, "Available")
    assert not found.user_metadata
    assert not found.authorization_rules


def test_sb_521_a_topic_is_created_changed_and_deleted(admin: ServiceBusAdministrationClient) -> None:
    """E-1, E-50, E-52, E-65, ERR-2, ERR-43: what is set comes back, each step too many is told."""
    given: dict[str, object] = {
        "default_message_time_to_live": timedelta(minutes=11),
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "enable_batched_operations": False,
        "auto_delete_on_idle": timedelta(minutes=10),
        "support_ordering": False,
        "user_metadata": "some <text> & more",
    }
    made = admin.create_topic("sb_521", **given)
    for name, value in given.items():
        assert getattr(made, name) == value, name
    with pytest.raises(ResourceExistsError):
        admin.create_topic("SB_521")
    with pytest.raises(ResourceExistsError):
        admin.create_queue("sb_521")
    made.max_size_in_megabytes = 2048
    made.status = EntityStatus.SEND_DISABLED
    admin.update_topic(made)
    again = admin.get_topic("sb_521")
    assert (again.max_size_in_megabytes, again.status) == (2048, EntityStatus.SEND_DISABLED)
    admin.update_topic(again, user_metadata="by keyword")
    assert admin.get_topic("sb_521").user_metadata == "by keyword"
    again.requires_duplicate_detection = False
    with pytest.raises(HttpResponseError, match="40000"):
        admin.update_topic(again)
    admin.delete_topic("sb_521")
    for attempt in (admin.get_topic, admin.delete_topic, admin.get_topic_runtime_properties):
        with pytest.raises(ResourceNotFoundError):
            attempt("sb_521")
    with pytest.raises(ResourceNotFoundError):
        admin.update_topic(again)


def test_sb_522_topics_are_listed_in_pages_with_their_numbers(
    admin: ServiceBusAdministrationClient,
) -> None:
    """ERR-43, E-55, E-56: more than a hundred arrive whole, each once, queues not among them."""
    made = {f"sb_522-{number:03d}" for number in range(103)}
    for name in made:
        admin.create_topic(name)
    admin.create_subscription("sb_522-007", "one")
    listed = [found.name for found in admin.list_topics()]
    assert made <= set(listed)
    assert len(listed) == len(set(listed))
    runtime = {found.name: found for found in admin.list_topics_runtime_properties()}
    assert made <= runtime.keys()
    assert (runtime["sb_522-007"].subscription_count, runtime["sb_522-008"].subscription_count) == (1, 0)
    assert not made & {found.name for found in admin.list_queues()}
    for name in made:
        admin.delete_topic(name)


def test_sb_523_a_topic_tells_its_numbers(admin: ServiceBusAdministrationClient, topic: str) -> None:
    """E-40, E-41, E-55, E-56: size, scheduled messages, subscriptions, times."""
    admin.create_subscription(topic, "one")
    admin.create_subscription(topic, "two")
    found = admin.get_topic_runtime_properties(topic)
    assert (found.name, found.subscription_count) == (topic, 2)
    assert (found.size_in_bytes, found.scheduled_message_count) == (0, 0)
    assert found.created_at_utc <= found.updated_at_utc


def test_sb_524_keys_of_a_topic_open_what_lies_below_it(
    server: RunningServer, admin: ServiceBusAdministrationClient, topic: str
) -> None:
    """A-1, A-2, A-9, A-10, E-37, E-61: rules come back; a key changed by update opens, the old one no more."""
    found = admin.get_topic(topic)
    found.authorization_rules = [new_rule()]
    admin.update_topic(found)
    (back,) = admin.get_topic(topic).authorization_rules
    assert (back.key_name, back.primary_key) == ("manager", "a" * 43 + "=")
    assert set(back.rights) == {AccessRights.MANAGE, AccessRights.LISTEN, AccessRights.SEND}
    with manager(server, "a" * 43 + "=") as own:
        own.create_subscription(topic, "s")
        own.create_rule(topic, "s", "r", filter=SqlRuleFilter("a = 1"))
        assert [rule.name for rule in own.list_rules(topic, "s")] == ["$Default", "r"]
        with pytest.raises(ClientAuthenticationError):
            own.create_subscription(f"{topic}-other", "s")
        with pytest.raises(ClientAuthenticationError):
            list(own.list_topics())
        found.authorization_rules = [new_rule("c" * 43 + "=")]
        admin.update_topic(found)
        with pytest.raises(ClientAuthenticationError):
            own.get_subscription(topic, "s")
    with manager(server, "c" * 43 + "=") as own:
        assert own.get_subscription(topic, "s").name == "s"


def manager(server: RunningServer, key: str) -> ServiceBusAdministrationClient:
    """With the topic's own rule instead of the namespace's."""
    endpoint = server.connection_string.partition(";")[0]
    return ServiceBusAdministrationClient.from_connection_string(
        f"{endpoint};SharedAccessKeyName=manager;SharedAccessKey={key};UseDevelopmentEmulator=true",
        connection_verify=server.ca_file,
    )


# -- subscriptions


def test_sb_525_a_fresh_subscription_has_the_documented_defaults(
    admin: ServiceBusAdministrationClient, topic: str
) -> None:
    """E-60: defaults, as created and as read."""
    made = admin.create_subscription(topic, "s")
    for found in (made, admin.get_subscription(topic, "S")):
        assert found.name in ("s", "S")
        assert found.lock_duration == timedelta(minutes=1)
        assert found.default_message_time_to_live >= FOREVER_DAYS
        assert found.auto_delete_on_idle >= FOREVER_DAYS
        assert (found.requires_session, found.dead_lettering_on_message_expiration) == (False, False)
        assert found.dead_lettering_on_filter_evaluation_exceptions is True
        assert (found.max_delivery_count, found.enable_batched_operations) == (10, True)
        assert (found.status, found.availability_status) == (EntityStatus.ACTIVE, "Available")
        assert (found.forward_to, found.forward_dead_lettered_messages_to) == (None, None)


def test_sb_526_a_subscription_is_created_changed_and_deleted(
    admin: ServiceBusAdministrationClient, topic: str
) -> None:
    """E-3, E-60, E-80, ERR-2, ERR-43: what is set comes back, each step too many is told."""
    given: dict[str, object] = {
        "lock_duration": timedelta(seconds=13),
        "requires_session": True,
        "default_message_time_to_live": timedelta(minutes=11),
        "dead_lettering_on_message_expiration": True,
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "max_delivery_count": 14,
        "enable_batched_operations": False,
        "auto_delete_on_idle": timedelta(minutes=10),
        "user_metadata": "some <text> & more",
    }
    admin.create_subscription(topic, "s", **given)
    found = admin.get_subscription(topic, "s")
    for name, value in given.items():
        assert getattr(found, name) == value, name
    with pytest.raises(ResourceExistsError):
        admin.create_subscription(topic, "S")
    found.max_delivery_count = 3
    found.status = EntityStatus.RECEIVE_DISABLED
    admin.update_subscription(topic, found)
    again = admin.get_subscription(topic, "s")
    assert (again.max_delivery_count, again.status) == (3, EntityStatus.RECEIVE_DISABLED)
    again.requires_session = False
    with pytest.raises(HttpResponseError, match="40000"):
        admin.update_subscription(topic, again)
    admin.delete_subscription(topic, "s")
    for attempt in (
        admin.get_subscription,
        admin.delete_subscription,
        admin.get_subscription_runtime_properties,
    ):
        with pytest.raises(ResourceNotFoundError):
            attempt(topic, "s")
    with pytest.raises(ResourceNotFoundError):
        admin.update_subscription(topic, found)
    with pytest.raises(ResourceNotFoundError):
        admin.create_subscription("no-such-topic", "s")
    with pytest.raises(HttpResponseError, match="40000"):
        admin.create_subscription(topic, "s" * 51)


def test_sb_527_subscriptions_are_listed_in_pages_with_their_numbers(
    admin: ServiceBusAdministrationClient, topic: str
) -> None:
    """ERR-43, E-100: more than a hundred arrive whole and in order."""
    names = [f"s{number:03d}" for number in range(103)]
    for name in names:
        admin.create_subscription(topic, name)
    assert [found.name for found in admin.list_subscriptions(topic)] == names
    runtime = list(admin.list_subscriptions_runtime_properties(topic))
    assert [found.name for found in runtime] == names
    assert {found.total_message_count for found in runtime} == {0}
    one = admin.get_subscription_runtime_properties(topic, names[0])
    assert (one.active_message_count, one.dead_letter_message_count) == (0, 0)
    assert (one.transfer_message_count, one.transfer_dead_letter_message_count) == (0, 0)
    assert one.created_at_utc <= one.updated_at_utc
    with pytest.raises(ResourceNotFoundError):
        list(admin.list_subscriptions("no-such-topic"))


def test_sb_528_forwarding_is_set_read_and_cleared(
    admin: ServiceBusAdministrationClient, topic: str, new_queue: Callable[..., str]
) -> None:
    """E-33, E-34, E-62, F-2, F-5: targets come back as addresses; a missing one is 400 with sub-code 40400."""
    queue = new_queue()
    made = admin.create_subscription(topic, "s", forward_to=queue, forward_dead_lettered_messages_to=queue)
    found = admin.get_subscription(topic, "s")
    for target in (made.forward_to, found.forward_to, found.forward_dead_lettered_messages_to):
        assert target is not None
        assert target.startswith("sb://")
        assert target.endswith(f"/{queue}")
    found.forward_to = found.forward_dead_lettered_messages_to = None
    admin.update_subscription(topic, found)
    assert admin.get_subscription(topic, "s").forward_to is None
    with pytest.raises(HttpResponseError, match="40400"):
        admin.create_subscription(topic, "t", forward_to="no-such-entity")
    assert str(admin.create_subscription(topic, "t", forward_to=topic).forward_to).endswith(f"/{topic}")
    forwarding = new_queue(forward_to=topic)
    assert str(admin.get_queue(forwarding).forward_to).endswith(f"/{topic}")


def test_sb_529_messages_count_where_they_lie(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, topic: str
) -> None:
    """E-56, E-100, E-101: copies in each subscription, their bytes in the topic, scheduled ones in the topic."""
    admin.create_subscription(topic, "all")
    admin.create_subscription(topic, "none")
    admin.delete_rule(topic, "none", "$Default")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages([ServiceBusMessage("x") for _ in range(3)])
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    with client.get_subscription_receiver(topic, "all", max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages()
        receiver.dead_letter_message(message)
    counts = admin.get_subscription_runtime_properties(topic, "all")
    assert (counts.active_message_count, counts.dead_letter_message_count) == (2, 1)
    assert counts.total_message_count == 3
    assert admin.get_subscription_runtime_properties(topic, "none").total_message_count == 0
    whole = admin.get_topic_runtime_properties(topic)
    assert whole.scheduled_message_count == 1
    assert whole.size_in_bytes > 0
    assert whole.accessed_at_utc >= whole.created_at_utc


# -- rules


@pytest.fixture
def subscription(admin: ServiceBusAdministrationClient, topic: str) -> str:
    admin.create_subscription(topic, "s")
    return "s"


def test_sb_530_a_new_subscription_has_one_rule(
    admin: ServiceBusAdministrationClient, topic: str, subscription: str
) -> None:
    """E-64, E-73: `$Default`, a true filter without an action."""
    (rule,) = admin.list_rules(topic, subscription)
    assert rule.name == "$Default"
    assert isinstance(rule.filter, TrueRuleFilter)
    assert rule.filter.sql_expression == "1=1"
    assert rule.action is None
    assert isinstance(admin.get_rule(topic, subscription, "$Default").filter, TrueRuleFilter)


def test_sb_531_typed_values_come_back_as_they_were(
    admin: ServiceBusAdministrationClient, topic: str, subscription: str
) -> None:
    """E-64, E-74, T-40: in correlation filters, in parameters of filters and of actions."""
    correlation = CorrelationRuleFilter(
        correlation_id="c",
        message_id="m",
        to="t",
        reply_to="r",
        label="l",
        session_id="s",
        reply_to_session_id="rs",
        content_type="ct",
        properties=dict(VALUES),
    )
    action = SqlRuleAction("SET a = @text", parameters={f"@{name}": value for name, value in VALUES.items()})
    made = admin.create_rule(topic, subscription, "correlation", filter=correlation, action=action)
    for rule in (made, admin.get_rule(topic, subscription, "correlation")):
        assert isinstance(rule.filter, CorrelationRuleFilter)
        assert rule.filter.properties == VALUES
        assert [type(value) for value in rule.filter.properties.values()] == list(map(type, VALUES.values()))
        fields = ("correlation_id", "message_id", "to", "reply_to", "label", "session_id")
        assert [getattr(rule.filter, name) for name in fields] == ["c", "m", "t", "r", "l", "s"]
        assert (rule.filter.reply_to_session_id, rule.filter.content_type) == ("rs", "ct")
        assert isinstance(rule.action, SqlRuleAction)
        assert rule.action.parameters == {f"@{name}": value for name, value in VALUES.items()}
    sql = SqlRuleFilter("a = @a AND b > @b", parameters={"@a": "x", "@b": 3})
    admin.create_rule(topic, subscription, "sql", filter=sql)
    found = admin.get_rule(topic, subscription, "sql")
    assert isinstance(found.filter, SqlRuleFilter)
    assert (found.filter.sql_expression, found.filter.parameters) == (sql.sql_expression, sql.parameters)
    assert found.action is None


def test_sb_532_a_rule_is_created_changed_and_deleted(
    admin: ServiceBusAdministrationClient, topic: str, subscription: str
) -> None:
    """E-70, E-73, T-11, T-36, ERR-2, ERR-28, ERR-43: each step, and each step too many."""
    admin.create_rule(topic, subscription, "r")
    rule = admin.get_rule(topic, subscription, "R")
    assert isinstance(rule.filter, TrueRuleFilter)
    with pytest.raises(ResourceExistsError):
        admin.create_rule(topic, subscription, "r", filter=FalseRuleFilter())
    rule.filter = FalseRuleFilter()
    rule.action = SqlRuleAction("SET quantity = quantity / 2; REMOVE priority; SET sys.CorrelationId = 'low'")
    admin.update_rule(topic, subscription, rule)
    changed = admin.get_rule(topic, subscription, "r")
    assert isinstance(changed.filter, FalseRuleFilter)
    assert isinstance(changed.action, SqlRuleAction)
    assert changed.action.sql_expression == rule.action.sql_expression
    assert changed.created_at_utc == rule.created_at_utc
    for wrong in (SqlRuleFilter("a = = 1"), SqlRuleFilter("x" * 1025), CorrelationRuleFilter()):
        with pytest.raises(HttpResponseError, match="40000"):
            admin.create_rule(topic, subscription, "wrong", filter=wrong)
    admin.delete_rule(topic, subscription, "r")
    for attempt in (admin.get_rule, admin.delete_rule):
        with pytest.raises(ResourceNotFoundError):
            attempt(topic, subscription, "r")
    with pytest.raises(ResourceNotFoundError):
        admin.update_rule(topic, subscription, rule)
    with pytest.raises(ResourceNotFoundError):
        admin.create_rule(topic, "no-such-subscription", "r")
    with pytest.raises(ResourceNotFoundError):
        list(admin.list_rules(topic, "no-such-subscription"))


def test_sb_533_rules_are_listed_in_pages_default_first(
    admin: ServiceBusAdministrationClient, topic: str, subscription: str
) -> None:
    """E-64, ERR-43: then by name, more than a hundred."""
    names = [f"r{number * 37 % 103:03d}" for number in range(103)]
    for name in names:
        admin.create_rule(topic, subscription, name, filter=CorrelationRuleFilter(correlation_id=name))
    listed = list(admin.list_rules(topic, subscription))
    assert [rule.name for rule in listed] == ["$Default", *sorted(names)]
    assert [rule.filter.correlation_id for rule in listed[1:]] == sorted(names)


@pytest.mark.parametrize("version", [ApiVersion.V2017_04, ApiVersion.V2021_05])
def test_sb_534_older_versions_are_served(server: RunningServer, version: ApiVersion) -> None:
    """E-22, E-50, ERR-43: create, read, list and update with each api-version the SDK has."""
    name = f"sb_534-{version.value}"
    with ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, api_version=version, connection_verify=server.ca_file
    ) as older:
        older.create_topic(name)
        older.create_subscription(name, "s")
        older.create_rule(name, "s", "r", filter=SqlRuleFilter("a = 1"))
        found = older.get_topic(name)
        found.max_size_in_megabytes = 2048
        older.update_topic(found)
        assert older.get_topic(name).max_size_in_megabytes == 2048
        assert older.get_topic_runtime_properties(name).subscription_count == 1
        assert name in [entry.name for entry in older.list_topics()]
        assert [rule.name for rule in older.list_rules(name, "s")] == ["$Default", "r"]
        older.delete_topic(name)


# -- the asynchronous client


@asynccontextmanager
async def connected(server: RunningServer) -> AsyncIterator[AsyncAdministrationClient]:
    async with AsyncAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file
    ) as client:
        yield client


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_sb_535_topics_and_subscriptions_by_the_asynchronous_client(server: RunningServer) -> None:
    """E-50, E-60, E-65, ERR-2, ERR-43: every method it has for them."""

    async def work() -> None:
        async with connected(server) as admin:
            made = await admin.create_topic("sb_535", user_metadata="note")
            made.user_metadata = "changed"
            await admin.update_topic(made)
            assert (await admin.get_topic("sb_535")).user_metadata == "changed"
            for name in ("a", "b"):
                await admin.create_subscription("sb_535", name, lock_duration=timedelta(seconds=30))
            found = await admin.get_subscription("sb_535", "a")
            found.max_delivery_count = 2
            await admin.update_subscription("sb_535", found)
            assert [entry.name async for entry in admin.list_subscriptions("sb_535")] == ["a", "b"]
            counted = [entry async for entry in admin.list_subscriptions_runtime_properties("sb_535")]
            assert [entry.total_message_count for entry in counted] == [0, 0]
            assert (await admin.get_subscription_runtime_properties("sb_535", "a")).name == "a"
            assert (await admin.get_topic_runtime_properties("sb_535")).subscription_count == 2
            assert "sb_535" in [entry.name async for entry in admin.list_topics()]
            assert "sb_535" in [entry.name async for entry in admin.list_topics_runtime_properties()]
            with pytest.raises(ResourceExistsError):
                await admin.create_subscription("sb_535", "a")
            await admin.delete_subscription("sb_535", "a")
            await admin.delete_topic("sb_535")
            with pytest.raises(ResourceNotFoundError):
                await admin.get_subscription("sb_535", "b")
            with pytest.raises(ResourceNotFoundError):
                await admin.get_topic("sb_535")

    run(work())


def test_sb_536_rules_by_the_asynchronous_client(server: RunningServer, topic: str) -> None:
    """E-64, E-70, E-74, T-11, ERR-43: every method it has for them."""

    async def work() -> None:
        async with connected(server) as admin:
            await admin.create_subscription(topic, "s")
            correlation = CorrelationRuleFilter(label="l", properties=dict(VALUES))
            await admin.create_rule(topic, "s", "r", filter=correlation, action=SqlRuleAction("SET a = 1"))
            rule = await admin.get_rule(topic, "s", "r")
            assert isinstance(rule.filter, CorrelationRuleFilter)
            assert rule.filter.properties == VALUES
            rule.filter = SqlRuleFilter("a = @a", parameters={"@a": timedelta(seconds=1.5)})
            rule.action = None
            await admin.update_rule(topic, "s", rule)
            changed = await admin.get_rule(topic, "s", "r")
            assert isinstance(changed.filter, SqlRuleFilter)
            assert (changed.filter.parameters, changed.action) == ({"@a": timedelta(seconds=1.5)}, None)
            assert [entry.name async for entry in admin.list_rules(topic, "s")] == ["$Default", "r"]
            await admin.delete_rule(topic, "s", "r")
            with pytest.raises(ResourceNotFoundError):
                await admin.get_rule(topic, "s", "r")

    run(work())
