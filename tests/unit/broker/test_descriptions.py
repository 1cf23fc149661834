"""What a queue's properties may be, and that they survive the way through JSON."""

from dataclasses import fields, replace

import pytest

from busway.model.description_checks import (
    check_creation,
    check_rules,
    check_update,
    default_queue,
    default_topic,
    with_fragments,
)
from busway.model.descriptions import (
    ALL_RIGHTS,
    PROPERTIES,
    PROPERTY_OF,
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    description_json,
    description_of_json,
    property_value,
    with_values,
)
from busway.model.durations import FOREVER_MS
from busway.model.errors import BadArgument, QuotaExceeded
from busway.model.limits import Limits

_STANDARD = Limits()
_BASIC = Limits(sku="Basic")
_PREMIUM = Limits(sku="Premium")
_RULE = AuthorizationRule("r", frozenset({"Listen"}), "first", "second")
_DAY_MS = 86_400_000


def _queue(limits: Limits = _STANDARD, **values: object) -> QueueDescription:
    return with_values(default_queue("q", limits), values)


_ALLOWED = [
    ("E-20", "lock_duration_ms", (5_000, 60_000, 300_000)),
    ("E-21", "max_size_in_megabytes", (1024, 2048, 3072, 4096, 5120)),
    ("E-22", "max_message_size_in_kilobytes", (256,)),
    ("E-23", "requires_duplicate_detection", (True, False)),
    ("E-24", "duplicate_detection_history_time_window_ms", (20_000, 600_000, 7 * _DAY_MS)),
    ("E-25", "requires_session", (True, False)),
    ("E-26", "default_message_time_to_live_ms", (1_000, FOREVER_MS)),
    ("E-27", "dead_lettering_on_message_expiration", (True, False)),
    ("E-28", "max_delivery_count", (1, 10, 2_147_483_647)),
    ("E-29", "enable_batched_operations", (True, False)),
    ("E-30", "auto_delete_on_idle_ms", (300_000, FOREVER_MS)),
    ("E-32", "enable_express", (True, False)),
    ("E-35", "status", ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")),
    ("E-36", "user_metadata", (None, "", "x" * 1024, "<&>\n")),
    ("E-37", "authorization_rules", ((), (_RULE,))),
    ("E-38", "support_ordering", (True, False)),
    ("E-39", "is_anonymous_accessible", (True, False)),
]


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for _, field, values in _ALLOWED for value in values]
)
def test_a_value_within_its_limits_is_taken(field: str, value: object) -> None:
    """E-20…E-30, E-32, E-35…E-39, E-80: every allowed value can be created and be updated to."""
    wanted = _queue(**{field: value})
    check_creation(wanted, _STANDARD)
    present = wanted if field in ("requires_duplicate_detection", "requires_session") else _queue()
    assert getattr(check_update(present, wanted, _STANDARD), field) == value


_REFUSED = [
    ("lock_duration_ms", (0, -1, 4_999, 300_001, FOREVER_MS), "LockDuration"),
    ("max_size_in_megabytes", (0, -1, 1, 1023, 1025, 6144, 81_920, 1 << 70), "MaxSizeInMegabytes"),
    ("max_message_size_in_kilobytes", (0, 255, 257, 1024, 102_400), "MaxMessageSizeInKilobytes"),
    (
        "duplicate_detection_history_time_window_ms",
        (0, 19_999, 7 * _DAY_MS + 1, FOREVER_MS),
        "DuplicateDetectionHistoryTimeWindow",
    ),
    ("default_message_time_to_live_ms", (-1, 0, 999), "DefaultMessageTimeToLive"),
    ("max_delivery_count", (0, -1, 2_147_483_648), "MaxDeliveryCount"),
    ("auto_delete_on_idle_ms", (0, 299_999), "AutoDeleteOnIdle"),
    ("status", ("", "active", "Creating", "Deleting", "Renaming", "Restoring", "Unknown"), "Status"),
    ("user_metadata", ("x" * 1025, "a\x00b", "a\x0bb", "\ud800"), "UserMetadata"),
    ("unknown_elements", (("<x>" + "y" * 70_000 + "</x>",),), "Unknown elements"),
]


@pytest.mark.parametrize(
    ("field", "value", "name"), [(field, value, name) for field, values, name in _REFUSED for value in values]
)
def test_a_value_beyond_its_limits_is_refused_by_name(field: str, value: object, name: str) -> None:
    """E-20, E-21, E-22, E-24, E-26, E-28, E-30, E-35, E-36, E-81, L-19: a bad argument names the property."""
    wanted = _queue(**{field: value})
    with pytest.raises(BadArgument, match=name):
        check_creation(wanted, _STANDARD)
    with pytest.raises(BadArgument, match=name):
        check_update(_queue(), wanted, _STANDARD)


@pytest.mark.parametrize(
    ("field", "name"),
    [
        (
            "requires_duplicate_detection",
            "the RequiresDuplicateDetection property of an existing Queue cannot be",
        ),
        (
            "requires_session",
            "The value for the RequiresSession property of an existing Queue cannot be changed",
        ),
        ("enable_partitioning", "Partitioning cannot be changed for Queue"),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_what_is_fixed_at_creation_cannot_be_updated(field: str, name: str, before: bool) -> None:
    """E-23, E-25, E-31: a change of it is a bad argument, whatever else is sent."""
    present, wanted = _queue(**{field: before}), _queue(**{field: not before})
    with pytest.raises(BadArgument, match=name):
        check_update(present, wanted, _STANDARD)


def test_an_update_keeps_name_spelling_and_time_of_creation() -> None:
    """E-7, E-40: read-only parts that a client sends back are ignored."""
    present = replace(_queue(), path="Orders", created_at_ms=7)
    kept = check_update(present, replace(_queue(), path="ORDERS", created_at_ms=9), _STANDARD)
    assert (kept.path, kept.created_at_ms) == ("Orders", 7)


def test_support_ordering_can_be_updated() -> None:
    """E-38: [rec] it is updatable and read back."""
    assert check_update(_queue(), _queue(support_ordering=False), _STANDARD).support_ordering is False


def test_express_and_duplicate_detection_exclude_each_other() -> None:
    """E-32, E-43: both together are 400/40000."""
    with pytest.raises(BadArgument, match="EnableExpress"):
        check_creation(_queue(enable_express=True, requires_duplicate_detection=True), _STANDARD)


def test_partitioning_is_chosen_at_creation_and_never_again() -> None:
    """E-31, P-7: 400/40000 in both directions."""
    check_creation(_queue(enable_partitioning=True), _STANDARD)
    for present in (True, False):
        with pytest.raises(BadArgument, match="Partitioning cannot be changed for Queue"):
            check_update(
                _queue(enable_partitioning=present), _queue(enable_partitioning=not present), _STANDARD
            )


def test_the_size_is_reported_for_all_fragments_and_accepted_back() -> None:
    """P-8, E-21, C-4: created with 1024, shown as 16384; an update may say either, and nothing else of that kind."""
    made = with_fragments(_queue(enable_partitioning=True), _STANDARD)
    assert (made.fragment_count, made.reported_size_in_megabytes) == (16, 16384)
    for size in (1024, 16384):
        kept = check_update(made, replace(made, max_size_in_megabytes=size), _STANDARD)
        assert (kept.max_size_in_megabytes, kept.fragment_count) == (1024, 16)
    assert (
        check_update(made, replace(made, max_size_in_megabytes=5120), _STANDARD).max_size_in_megabytes == 5120
    )
    for size in (32768, 81920):
        with pytest.raises(BadArgument, match="MaxSizeInMegabytes"):
            check_update(made, replace(made, max_size_in_megabytes=size), _STANDARD)


def test_a_plain_entity_reports_its_own_size() -> None:
    """P-8, C-2: the flag is false unless somebody asks for it; then the sixteenfold is refused."""
    assert not default_queue("q", _STANDARD).enable_partitioning
    assert not default_topic("t", _STANDARD).enable_partitioning
    plain = with_fragments(_queue(), _STANDARD)
    assert (plain.fragment_count, plain.reported_size_in_megabytes) == (1, 1024)
    with pytest.raises(BadArgument, match="MaxSizeInMegabytes"):
        check_update(plain, replace(plain, max_size_in_megabytes=16384), _STANDARD)


def test_a_partitioned_namespace_has_only_partitioned_entities() -> None:
    """C-1: `namespacePartitions` decides for all; the flag is true unless somebody says otherwise."""
    limits = Limits(namespace_partitions=4)
    assert default_queue("q", limits).enable_partitioning
    assert default_topic("t", limits).enable_partitioning
    assert with_fragments(default_queue("q", limits), limits).fragment_count == 4
    with pytest.raises(
        BadArgument, match="Non-partitioned entities are not allowed in partitioned namespace"
    ):
        check_creation(_queue(enable_partitioning=False), limits)


def test_the_flag_works_on_basic_and_standard() -> None:
    """C-3: the flag works on Basic and Standard."""
    for sku in ("Basic", "Standard"):
        limits = Limits(sku=sku)
        wanted = replace(default_queue("q", limits), enable_partitioning=True)
        check_creation(wanted, limits)
        assert with_fragments(wanted, limits).fragment_count == 16


def test_the_flag_has_no_effect_on_premium() -> None:
    """C-1: accepted and ignored, at creation and at update."""
    premium = Limits(sku="Premium")
    made = with_fragments(replace(default_queue("q", premium), enable_partitioning=True), premium)
    assert (made.enable_partitioning, made.fragment_count) == (False, 1)
    kept = check_update(made, replace(made, enable_partitioning=True), premium)
    assert not kept.enable_partitioning


@pytest.mark.parametrize(
    "values",
    [
        {"requires_duplicate_detection": True},
        {"auto_delete_on_idle_ms": 300_000},
        {"requires_session": True},
        {"default_message_time_to_live_ms": _DAY_MS},
        {"default_message_time_to_live_ms": FOREVER_MS},
        {"duplicate_detection_history_time_window_ms": 20_000},
        {"enable_express": True},
        {"forward_to": "other"},
        {"forward_dead_lettered_messages_to": "other"},
    ],
)
def test_the_basic_sku_lacks_what_it_lacks(values: dict[str, object]) -> None:
    """E-42, F-15: these properties cannot be set on Basic; its time to live is 14 days (E-26)."""
    check_creation(default_queue("q", _BASIC), _BASIC)
    assert default_queue("q", _BASIC).default_message_time_to_live_ms == 14 * _DAY_MS
    with pytest.raises(BadArgument, match="Basic"):
        check_creation(_queue(_BASIC, **values), _BASIC)


def test_the_premium_sku_has_its_own_sizes() -> None:
    """E-21, E-22, E-32: 80 GB, messages of up to 100 MB, no express."""
    for values in (
        {"max_size_in_megabytes": 80 * 1024},
        {"max_message_size_in_kilobytes": 102_400},
        {},
    ):
        check_creation(_queue(_PREMIUM, **values), _PREMIUM)
    for wrong in (
        {"max_size_in_megabytes": 6 * 1024},
        {"max_message_size_in_kilobytes": 102_401},
        {"enable_express": True},
    ):
        with pytest.raises(BadArgument):
            check_creation(_queue(_PREMIUM, **wrong), _PREMIUM)


def test_the_defaults_are_the_documented_ones() -> None:
    """E-20…E-39: a queue made with nothing but a name."""
    queue = default_queue("q", _STANDARD)
    assert queue == QueueDescription("q")
    assert (queue.lock_duration_ms, queue.max_size_in_megabytes, queue.max_delivery_count) == (
        60_000,
        1024,
        10,
    )
    assert queue.duplicate_detection_history_time_window_ms == 600_000
    assert queue.default_message_time_to_live_ms == queue.auto_delete_on_idle_ms == FOREVER_MS


def test_rules_are_checked_as_a_level() -> None:
    """A-1, L-10: twelve at most, names unique, Manage lists all three rights."""
    check_rules(tuple(replace(_RULE, name=f"r{i}") for i in range(12)), _STANDARD)
    with pytest.raises(QuotaExceeded, match="12"):
        check_rules(tuple(replace(_RULE, name=f"r{i}") for i in range(13)), _STANDARD)
    with pytest.raises(BadArgument, match="same name"):
        check_rules((_RULE, replace(_RULE, name="R")), _STANDARD)
    check_rules((replace(_RULE, rights=ALL_RIGHTS),), _STANDARD)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "a&b"},
        {"name": "x" * 257},
        {"rights": frozenset()},
        {"rights": frozenset({"Own"})},
        {"rights": frozenset({"Manage", "Send"})},
        {"primary_key": ""},
        {"primary_key": "a b"},
        {"secondary_key": "k" * 513},
        {"secondary_key": "ключ"},
        {"claim_value": "a\x00"},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_without_showing_its_keys(wrong: dict[str, object]) -> None:
    """A-1: the sentence names the rule and never a key."""
    values: dict[str, object] = {entry.name: getattr(_RULE, entry.name) for entry in fields(_RULE)}
    rule = AuthorizationRule(**{**values, **wrong})
    with pytest.raises(BadArgument) as caught:
        check_rules((rule,), _STANDARD)
    for key in (rule.primary_key, rule.secondary_key):
        assert key == "" or key not in caught.value.sentence


def test_a_description_comes_back_from_its_json() -> None:
    """E-44: unknown elements included."""
    full = QueueDescription(
        "A/b",
        lock_duration_ms=5_001,
        requires_session=True,
        user_metadata="«x»",
        status="Disabled",
        authorization_rules=(replace(_RULE, created_at_ms=3, claim_value="v"),),
        unknown_elements=("<New>1</New>",),
        forward_schemes=(("ForwardTo", "https"),),
        created_at_ms=1,
        updated_at_ms=2,
    )
    assert description_of_json(QueueDescription, description_json(full)) == full
    for plain in (QueueDescription("q"), TopicDescription("t"), SubscriptionDescription("t/Subscriptions/s")):
        assert description_of_json(type(plain), description_json(plain)) == plain


@pytest.mark.parametrize("kind", [QueueDescription, TopicDescription, SubscriptionDescription])
def test_the_table_of_properties_covers_every_field(kind: type[Description]) -> None:
    """E-20…E-39, E-50, E-60: no property can be forgotten in the catalogue or the file."""
    special = {"path", "authorization_rules", "unknown_elements", "created_at_ms", "updated_at_ms"}
    special.add("fragment_count")  # which the row itself tells
    special.add("made_for_a_link")  # which the gateway alone says
    special.add("forward_schemes")  # how a property was written, which is no property
    assert {entry.field for entry in PROPERTIES[kind]} == {entry.name for entry in fields(kind)} - special


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LockDuration", 60),
        ("LockDuration", None),
        ("MaxDeliveryCount", "10"),
        ("MaxDeliveryCount", True),
        ("MaxDeliveryCount", 1.0),
        ("RequiresSession", "true"),
        ("RequiresSession", 1),
        ("Status", None),
        ("UserMetadata", ["x"]),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_place(name: str, value: object) -> None:
    """E-20: nothing is converted by guessing."""
    with pytest.raises(BadArgument, match="somewhere"):
        property_value(PROPERTY_OF[QueueDescription][name], value, "somewhere")


def test_keys_are_not_shown() -> None:
    """A-1: neither a rule nor a description prints its keys."""
    text = repr(QueueDescription("q", authorization_rules=(_RULE,)))
    assert "first" not in text
    assert "second" not in text
