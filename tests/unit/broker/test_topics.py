"""Topics: what is published, to whom, and what it costs the others."""

from dataclasses import replace

import pytest

from busway.amqp.types import Int, Timestamp
from busway.broker.entity.distribution import Distribution
from busway.model.errors import (
    BadArgument,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    InvalidOperation,
    NoMatchingSubscription,
    QuotaExceeded,
    TooManyCorrelationFilters,
    TooManySqlFilters,
    TooManySubscriptions,
)
from busway.model.limits import Limits
from busway.rules.rule import CorrelationFilter, FalseFilter, Rule, SqlFilter, TrueFilter, TypedValue
from tests.unit.broker.namespace_bench import Link, Reader, settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, rule, sql


def test_every_subscription_whose_rules_match_gets_a_copy() -> None:
    """T-1, T-10, T-33: one message, a copy for each that wants it, none for the others."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "all")
        await bench.subscription("t", "red", sql("color = 'red'"))
        await bench.subscription("t", "none", rule(FalseFilter()))
        await bench.publish("t", encoded("a", properties={"color": "red"}), encoded("b"))
        assert await bench.bodies("t/Subscriptions/all") == ["a", "b"]
        assert await bench.bodies("t/subscriptions/RED") == ["a"]
        assert await bench.bodies("t/Subscriptions/none") == []

    on_a_topic_bench(test)


def test_a_message_that_nobody_wants_is_accepted_and_gone() -> None:
    """T-10, T-5: also when the last rule was removed."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.publish("t", encoded("nobody"))
        await bench.subscription("t", "s")
        await bench.namespace.rules.remove("t/Subscriptions/s", "$default")
        await bench.publish("t", encoded("still nobody"))
        assert await bench.bodies("t/Subscriptions/s") == []
        assert (await bench.namespace.counts("t")).size_bytes == 0

    on_a_topic_bench(test)


def test_plain_rules_share_a_copy_and_acting_rules_have_their_own() -> None:
    """T-4: two rules with an action and three without that all match give three messages."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        plain = [sql("n > 0", name=f"plain{index}") for index in range(3)]
        acting = [sql("n > 0", f"SET n = n + {index}", name=f"acting{index}") for index in (1, 2)]
        await bench.subscription("t", "s", *plain, *acting)
        await bench.publish("t", encoded("x", properties={"n": 10}))
        seen = await bench.peek("t/Subscriptions/s")
        assert [copy.properties for copy in seen] == [
            {"n": 10},
            {"n": 11, "RuleName": "acting1"},
            {"n": 12, "RuleName": "acting2"},
        ]
        assert [copy.message.sequence_number for copy in seen] == [1, 2, 3]

    on_a_topic_bench(test)


def test_an_action_changes_its_own_copy_only() -> None:
    """T-6, T-50, T-51, T-54: the others see what was sent; the type of a property is kept."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        text = "SET quantity = quantity / 2; REMOVE priority; SET sys.CorrelationId='low'; SET extra = 'e'"
        await bench.subscription("t", "changed", sql("quantity = 10", text))
        await bench.subscription("t", "plain")
        properties = {"quantity": Int(10), "priority": "high"}
        await bench.publish("t", encoded("body", properties=properties, subject="s"))
        changed = (await bench.peek("t/Subscriptions/changed"))[0]
        assert changed.properties == {"quantity": 5, "extra": "e", "RuleName": "rule"}
        assert isinstance(changed.properties["quantity"], Int)
        assert (changed.fields.correlation_id, changed.fields.subject, changed.body) == ("low", "s", "body")
        plain = (await bench.peek("t/Subscriptions/plain"))[0]
        assert plain.properties == properties
        assert plain.fields.correlation_id is None

    on_a_topic_bench(test)


def test_an_action_may_change_system_properties() -> None:
    """T-7, T-51: session, partition key, times and texts; a scheduled time has no effect in the subscription."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        text = (
            "SET sys.SessionId = 'new'; SET sys.PartitionKey = 'new'; SET sys.MessageId = 'id';"
            "SET sys.ContentType = 'text/plain'; SET sys.To = 'to'; SET sys.Label = 'label';"
            "SET sys.ReplyTo = 'r'; SET sys.ReplyToSessionId = 'rs'; SET sys.TimeToLive = @ttl;"
            "SET sys.ScheduledEnqueueTimeUtc = @later"
        )
        made = sql("1=1", text)
        assert made.action is not None
        values = (("ttl", TypedValue("duration", 50_000_000)), ("later", TypedValue("dateTime", 10**18)))
        made = replace(made, action=replace(made.action, parameters=values))
        await bench.subscription("t", "s", made, requires_session=True)
        annotations = {"x-opt-partition-key": "old"}
        await bench.publish("t", encoded("b", group_id="old", annotations=annotations))
        seen = (await bench.peek("t/Subscriptions/s"))[0]
        fields = seen.fields
        assert (fields.group_id, fields.message_id, fields.content_type) == ("new", "id", "text/plain")
        assert (fields.to, fields.subject, fields.reply_to) == ("to", "label", "r")
        assert fields.reply_to_group_id == "rs"
        assert seen.annotations["x-opt-partition-key"] == "new"
        assert seen.message.session_id == "new"
        assert seen.message.ttl_ms == 5_000
        assert seen.message.state == 0

    on_a_topic_bench(test)


def test_filters_see_system_and_user_properties() -> None:
    """T-2, T-22, T-23, T-24: names without case, `sys.` for the message's own."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "label", sql("sys.Label = 'x' AND sys.MessageId = 'm'"))
        await bench.subscription("t", "user", sql("COLOR = 'blue' AND sys.PartitionKey IS NULL"))
        await bench.subscription("t", "time", sql("at < sys.EnqueuedTimeUtc OR at IS NOT NULL"))
        await bench.publish(
            "t", encoded("1", subject="x", message_id="m"), encoded("2", properties={"Color": "blue"})
        )
        await bench.publish("t", encoded("3", properties={"at": Timestamp(0)}))
        assert await bench.bodies("t/Subscriptions/label") == ["1"]
        assert await bench.bodies("t/Subscriptions/user") == ["2"]
        assert await bench.bodies("t/Subscriptions/time") == ["3"]

    on_a_topic_bench(test)


def test_correlation_filters_compare_all_that_they_name() -> None:
    """T-40, T-41, T-43: correlation filters compare all that they name."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        both = CorrelationFilter(label="l", properties=(("n", TypedValue("int", 1)),))
        await bench.subscription("t", "s", rule(both))
        await bench.publish(
            "t",
            encoded("yes", subject="l", properties={"n": 1}),
            encoded("text", subject="l", properties={"n": "1"}),
            encoded("case", subject="L", properties={"n": 1}),
            encoded("half", subject="l"),
        )
        assert await bench.bodies("t/Subscriptions/s") == ["yes"]

    on_a_topic_bench(test)


def test_a_rule_counts_from_its_addition_on() -> None:
    """T-8, T-11, E-70: neither what was published before it nor after its removal."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", rule(FalseFilter(), "never"))
        await bench.publish("t", encoded("before"))
        await bench.namespace.rules.add("t/Subscriptions/s", rule(TrueFilter(), "all"))
        await bench.publish("t", encoded("during"))
        with pytest.raises(EntityAlreadyExists):
            await bench.namespace.rules.add("t/Subscriptions/s", rule(TrueFilter(), "ALL"))
        await bench.namespace.rules.replace("t/Subscriptions/s", sql("n = 1", name="all"))
        await bench.publish("t", encoded("no"), encoded("one", properties={"n": 1}))
        await bench.namespace.rules.remove("t/Subscriptions/s", "all")
        await bench.publish("t", encoded("after", properties={"n": 1}))
        with pytest.raises(EntityNotFound):
            await bench.namespace.rules.remove("t/Subscriptions/s", "all")
        assert await bench.bodies("t/Subscriptions/s") == ["during", "one"]
        began = [row.began_after for row in bench.namespace.contents.entities.rules.of("t/subscriptions/s")]
        assert began == [0]

    on_a_topic_bench(test)


def test_rules_are_listed_default_first_then_in_order_of_creation() -> None:
    """E-64, also after a restart."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", rule(TrueFilter(), "b"))
        for name in ("z", "a"):
            await bench.namespace.rules.add("t/Subscriptions/s", rule(TrueFilter(), name))
        await bench.namespace.rules.add("t/Subscriptions/s", Rule("$Default", SqlFilter("x = 1")))
        for _ in range(2):
            names = [entry.name for entry in bench.namespace.rules.of("T/Subscriptions/S")]
            assert names == ["$Default", "b", "z", "a"]
            await bench.restart()

    on_a_topic_bench(test)


def test_everything_is_still_there_after_a_restart() -> None:
    """T-1, E-64: topics, subscriptions, rules, messages."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t", user_metadata="m")
        await bench.subscription("t", "s", sql("color = 'red'", "SET x = 1"))
        await bench.publish("t", encoded("a", properties={"color": "red"}))
        namespace = await bench.restart()
        assert [entry.user_metadata for entry in namespace.topics()] == ["m"]
        assert [entry.name for entry in namespace.subscriptions("T")] == ["s"]
        await bench.publish("t", encoded("b", properties={"color": "red"}), encoded("c"))
        assert await bench.bodies("t/Subscriptions/s") == ["a", "b"]

    on_a_topic_bench(test, store_count=3)


def test_a_filter_that_fails_dead_letters_the_copy_if_wished() -> None:
    """T-60, D-15: the send succeeds and the others are not affected."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        failing = sql("1 / n = 1")
        await bench.subscription("t", "dead", failing)
        await bench.subscription("t", "skip", failing, dead_lettering_on_filter_evaluation_exceptions=False)
        await bench.subscription("t", "action", sql("1=1", "SET n = 1 / n"))
        await bench.subscription("t", "content", sql("1=1", "SET sys.ContentType = 'é'"))
        await bench.subscription("t", "all")
        await bench.publish("t", encoded("x", properties={"n": 0}))
        dead = await bench.peek("t/Subscriptions/dead", dead_letter=True)
        assert [copy.properties["DeadLetterReason"] for copy in dead] == ["FilterException"]
        assert "zero" in dead[0].properties["DeadLetterErrorDescription"]
        acted = await bench.peek("t/Subscriptions/action", dead_letter=True)
        assert [copy.properties["DeadLetterReason"] for copy in acted] == ["RuleActionException"]
        assert await bench.bodies("t/Subscriptions/content", dead_letter=True) == ["x"]
        assert await bench.bodies("t/Subscriptions/skip", dead_letter=True) == []
        assert await bench.bodies("t/Subscriptions/all") == ["x"]
        counts = await bench.namespace.counts("t/Subscriptions/dead")
        assert (counts.active, counts.dead_letter) == (0, 1)

    on_a_topic_bench(test)


def test_a_copy_without_session_goes_to_the_dead_letters_of_a_session_subscription() -> None:
    """S-7, D-12: the topic takes it, the subscription cannot."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", requires_session=True)
        await bench.publish("t", encoded("without"), encoded("with", group_id="one"))
        dead = await bench.peek("t/Subscriptions/s", dead_letter=True)
        assert [(copy.body, copy.properties["DeadLetterReason"]) for copy in dead] == [
            ("without", "Session ID is null.")
        ]
        assert await bench.bodies("t/Subscriptions/s") == ["with"]

    on_a_topic_bench(test)


def test_a_prefiltering_topic_refuses_what_nobody_wants() -> None:
    """E-53, ERR-20: one by one, and a batch as a whole."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t", filtering_messages_before_publishing=True)
        await bench.subscription("t", "s", sql("n = 1"))
        good, bad = encoded("good", properties={"n": 1}), encoded("bad")
        refused = await bench.try_publish("t", bad, good, bad)
        assert [(index, type(error)) for index, error in refused] == [
            (0, NoMatchingSubscription),
            (2, NoMatchingSubscription),
        ]
        with pytest.raises(NoMatchingSubscription):
            await bench.publish("t", good, bad, atomically=True)
        assert await bench.bodies("t/Subscriptions/s") == ["good"]

    on_a_topic_bench(test)


def test_a_scheduled_message_is_distributed_when_its_time_has_come() -> None:
    """S-30, S-34, M-39: by the rules of that moment; the number that schedules it is the topic's."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        due_ms = bench.clock.wall_ms() + 60_000
        later = encoded("later", annotations={"x-opt-scheduled-enqueue-time": Timestamp(due_ms)})
        await bench.publish("t", encoded("now"), later)
        assert await bench.bodies("t/Subscriptions/s") == ["now"]
        assert (await bench.namespace.counts("t")).scheduled == 1
        await bench.subscription("t", "new")
        await bench.advance(61)
        assert await bench.bodies("t/Subscriptions/s") == ["now", "later"]
        assert await bench.bodies("t/Subscriptions/new") == ["later"]
        counts = await bench.namespace.counts("t")
        assert counts.scheduled == 0
        sizes = [
            (await bench.namespace.counts(f"t/Subscriptions/{name}")).size_bytes for name in ("s", "new")
        ]
        assert counts.size_bytes == sum(sizes)

    on_a_topic_bench(test)


def test_a_scheduled_message_of_a_topic_can_be_cancelled() -> None:
    """S-33: a scheduled message of a topic can be cancelled."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        due_ms = bench.clock.wall_ms() + 60_000
        later = encoded("later", annotations={"x-opt-scheduled-enqueue-time": Timestamp(due_ms)})
        await bench.publish("t", later)
        await bench.namespace.sender("t").cancel_scheduled([1])
        await bench.advance(61)
        assert await bench.bodies("t/Subscriptions/s") == []

    on_a_topic_bench(test)


def test_a_topic_detects_duplicates_and_its_subscriptions_do_not() -> None:
    """S-48, E-61: an action that makes ids equal makes no duplicate."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t", requires_duplicate_detection=True)
        await bench.subscription("t", "s", sql("1=1", "SET sys.MessageId = 'same'"))
        payloads = [encoded(text, message_id=text) for text in ("a", "b", "a")]
        await bench.publish("t", *payloads)
        await bench.publish("t", payloads[0])
        seen = await bench.peek("t/Subscriptions/s")
        assert [(copy.body, copy.fields.message_id) for copy in seen] == [("a", "same"), ("b", "same")]

    on_a_topic_bench(test)


def test_the_shortest_time_to_live_counts() -> None:
    """E-63: of message, topic and subscription."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t", default_message_time_to_live_ms=20_000)
        await bench.subscription("t", "short", default_message_time_to_live_ms=10_000)
        await bench.subscription("t", "long", default_message_time_to_live_ms=90_000)
        await bench.publish("t", encoded("x"))
        now_ms = bench.clock.wall_ms()
        expiries = [
            (await bench.peek(f"t/Subscriptions/{name}"))[0].message.expires_at_ms - now_ms
            for name in ("short", "long")
        ]
        assert expiries == [10_000, 20_000]
        await bench.change("t", default_message_time_to_live_ms=5_000)
        await bench.publish("t", encoded("y"))
        assert (await bench.peek("t/Subscriptions/short"))[1].message.expires_at_ms - now_ms == 5_000

    on_a_topic_bench(test)


def test_the_size_of_a_topic_is_that_of_all_copies() -> None:
    """E-56, S-9, D-3: and it counts against the topic's quota."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        for name in ("a", "b"):
            await bench.subscription("t", name)
        await bench.publish("t", encoded("x" * 1000))
        counts = await bench.namespace.counts("t")
        assert (counts.active, counts.total) == (0, 0)
        each = (await bench.namespace.counts("t/Subscriptions/a")).size_bytes
        assert counts.size_bytes == 2 * each > 2000
        big = [encoded("y" * 200_000)] * 100
        for _ in range(27):
            await bench.publish("t", *big)
        with pytest.raises(QuotaExceeded):
            await bench.publish("t", *big)

    on_a_topic_bench(test)


def test_nobody_receives_from_a_topic_or_sends_to_a_subscription() -> None:
    """E-9, E-10, D-7: and the sentence says where to go."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        with pytest.raises(InvalidOperation, match=r"'t/Subscriptions/s'"):
            bench.namespace.queue("t")
        with pytest.raises(InvalidOperation, match="send to its topic 't'"):
            bench.namespace.sender("t/Subscriptions/s").attach(Link(), sends=True)

    on_a_topic_bench(test)


def test_status_of_topic_and_subscription_are_independent() -> None:
    """E-80, E-82, E-83, E-84: status of topic and subscription are independent."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        link = Link()
        bench.namespace.sender("t").attach(link, sends=True)
        await bench.change("t/Subscriptions/s", status="Disabled")
        await bench.publish("t", encoded("copied all the same"))
        with pytest.raises(EntityDisabled):
            bench.namespace.queue("t/Subscriptions/s").main.add_receiver(Reader())
        assert link.error is None
        await bench.change("t", status="SendDisabled")
        assert isinstance(link.error, EntityDisabled)
        with pytest.raises(EntityDisabled):
            await bench.publish("t", encoded("no"))
        await bench.change("t/Subscriptions/s", status="Active")
        reader = Reader()
        main = bench.namespace.queue("t/Subscriptions/s").main
        main.add_receiver(reader)
        main.wake(reader)
        await settle()
        assert len(reader.taken) == 1
        for path, status in (("t", "ReceiveDisabled"), ("t/Subscriptions/s", "SendDisabled")):
            with pytest.raises(BadArgument):
                await bench.change(path, status=status)

    on_a_topic_bench(test)


def test_a_topic_goes_with_everything_it_has() -> None:
    """E-65, E-86: a topic of the same name is another one."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", sql("n = 1"))
        await bench.publish("t", encoded("x", properties={"n": 1}))
        sender, reader = Link(), Reader()
        bench.namespace.sender("t").attach(sender, sends=True)
        bench.namespace.queue("t/Subscriptions/s").main.add_receiver(reader)
        await bench.namespace.delete("t")
        assert isinstance(sender.error, EntityNotFound)
        assert isinstance(reader.error, EntityNotFound)
        assert not bench.namespace.exists("t/Subscriptions/s")
        await bench.topic("t")
        assert bench.namespace.subscriptions("t") == []
        await bench.subscription("t", "s")
        assert [entry.name for entry in bench.namespace.rules.of("t/Subscriptions/s")] == ["$Default"]
        assert await bench.bodies("t/Subscriptions/s") == []
        await bench.restart()
        assert [entry.name for entry in bench.namespace.rules.of("t/Subscriptions/s")] == ["$Default"]

    on_a_topic_bench(test)


def test_copies_go_to_the_subscription_that_has_the_name_now() -> None:
    """E-86, T-9: one that was deleted and created again is another one, and the topic keeps none that is gone."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "kept")
        for body in ("a", "b", "c"):
            await bench.subscription("t", "s")
            await bench.subscription("t", f"only-for-{body}")
            await bench.publish("t", encoded(body))
            assert await bench.bodies("t/Subscriptions/s") == [body]
            await bench.namespace.delete("t/Subscriptions/s")
            await bench.namespace.delete(f"t/Subscriptions/only-for-{body}")
        assert await bench.bodies("t/Subscriptions/kept") == ["a", "b", "c"]
        intake = bench.namespace.contents.entities.topic(
            bench.namespace.contents.entities.rows["t"]
        ).main.intake
        assert isinstance(intake, Distribution)
        assert len(intake._mains) <= 4

    on_a_topic_bench(test)


def test_limits_of_subscriptions_and_filters() -> None:
    """L-9, E-72, E-73: each has its own number."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "a")
        await bench.subscription("t", "b", rule(CorrelationFilter(label="x")))
        with pytest.raises(TooManySubscriptions):
            await bench.subscription("t", "c")
        await bench.namespace.rules.add("t/Subscriptions/b", sql("x = 1", name="second"))
        with pytest.raises(TooManySqlFilters):
            await bench.namespace.rules.add("t/Subscriptions/b", rule(TrueFilter(), "third"))
        await bench.namespace.rules.add("t/Subscriptions/b", rule(CorrelationFilter(label="y"), "y"))
        with pytest.raises(TooManyCorrelationFilters):
            await bench.namespace.rules.add("t/Subscriptions/b", rule(CorrelationFilter(label="z"), "z"))
        assert bench.namespace.rules.filter_counts("t") == (2, 2)
        with pytest.raises(TooManySqlFilters):
            await bench.namespace.rules.replace("t/Subscriptions/b", sql("x = 1", name="y"))
        await bench.namespace.rules.replace("t/Subscriptions/b", rule(CorrelationFilter(label="w"), "y"))
        await bench.restart()
        assert bench.namespace.rules.filter_counts("t") == (2, 2)
        await bench.namespace.rules.remove("t/Subscriptions/b", "y")
        await bench.namespace.delete("t/Subscriptions/a")
        assert bench.namespace.rules.filter_counts("t") == (1, 1)

    limits = Limits(
        subscriptions_per_topic_max=2, sql_filters_per_topic_max=2, correlation_filters_per_topic_max=2
    )
    on_a_topic_bench(test, limits=limits)


@pytest.mark.parametrize("text", ["color =", "sys.Nothing = 1", "x" * 1025, "((((" * 100])
def test_a_rule_that_is_not_valid_is_refused_and_nothing_is_stored(text: str) -> None:
    """T-36, E-71, ERR-28: a rule that is not valid is refused and nothing is stored."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        with pytest.raises(BadArgument):
            await bench.subscription("t", "s", sql(text))
        assert bench.namespace.subscriptions("t") == []
        await bench.subscription("t", "s")
        with pytest.raises(BadArgument):
            await bench.namespace.rules.add("t/Subscriptions/s", sql(text))
        with pytest.raises(BadArgument):
            await bench.namespace.rules.replace("t/Subscriptions/s", sql(text, name="$Default"))
        assert len(bench.namespace.rules.of("t/Subscriptions/s")) == 1

    on_a_topic_bench(test)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 51, "..", "a b", "$x"])
def test_names_of_subscriptions_and_rules(name: str) -> None:
    """E-3, E-6: names of subscriptions and rules are short and plain."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        with pytest.raises((BadArgument, EntityNotFound)):
            await bench.subscription("t", name)
        await bench.subscription("t", "s" * 50)
        with pytest.raises(BadArgument):
            await bench.namespace.rules.add("t/Subscriptions/" + "s" * 50, rule(TrueFilter(), name))

    on_a_topic_bench(test)


def test_queues_and_topics_share_one_name_space() -> None:
    """E-1: queues and topics share one name space."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("Name")
        await bench.queue("other")
        for make in (bench.topic("OTHER"), bench.queue("name")):
            with pytest.raises(EntityAlreadyExists):
                await make
        with pytest.raises(EntityNotFound):
            await bench.subscription("other", "s")

    on_a_topic_bench(test)


def test_a_subscription_is_used_by_receiving_and_not_by_copies() -> None:
    """E-110, E-111: a topic is used by everything that happens to its subscriptions."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t", auto_delete_on_idle_ms=900_000)
        await bench.subscription("t", "unread", auto_delete_on_idle_ms=300_000)
        await bench.subscription("t", "ruled", auto_delete_on_idle_ms=300_000)
        for _ in range(4):
            await bench.advance(100)
            await bench.publish("t", encoded("x"))
            await bench.namespace.rules.replace("t/Subscriptions/ruled", sql("n = 1", name="$Default"))
        assert [entry.name for entry in bench.namespace.subscriptions("t")] == ["ruled"]
        await bench.advance(1_000)
        assert bench.namespace.topics() == []

    on_a_topic_bench(test)
