"""The namespace over memory stores: what exists, what changes, what a restart finds."""

import asyncio
import base64
from dataclasses import replace

import pytest

from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription
from busway.model.errors import (
    AuthenticationFailed,
    BadArgument,
    BrokerError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    ForwardTargetNotFound,
    QuotaExceeded,
)
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import Link, NamespaceBench, Reader, on_a_bench, settle


def _rule(name: str, key: str = "") -> AuthorizationRule:
    return AuthorizationRule(name, frozenset({"Listen"}), key, key)


def test_a_queue_is_created_found_and_listed() -> None:
    """E-1, E-5, E-7: any case finds it, the spelling given at creation is returned."""

    async def test(bench: NamespaceBench) -> None:
        for path in ("Orders", "a/B/c", "z"):
            await bench.create(path)
        namespace = bench.namespace
        assert namespace.description("ORDERS").path == "Orders"
        assert namespace.queue("A/b/C").path == "a/B/c"
        assert namespace.exists("orders")
        assert [description.path for description in namespace.queues()] == ["a/B/c", "Orders", "z"]

    on_a_bench(test)


def test_a_missing_queue_is_named_in_the_sentence_that_clients_parse() -> None:
    """ERR-1: not found, for every verb."""

    async def test(bench: NamespaceBench) -> None:
        sentence = "The messaging entity 'sb://bus/nothing' could not be found."
        for verb in (bench.namespace.queue, bench.namespace.description):
            with pytest.raises(EntityNotFound) as caught:
                verb("nothing")
            assert caught.value.sentence == sentence
        for call in (
            bench.namespace.counts("nothing"),
            bench.namespace.delete("nothing"),
            bench.namespace.update(QueueDescription("nothing")),
        ):
            with pytest.raises(EntityNotFound):
                await call

    on_a_bench(test)


@pytest.mark.parametrize(
    "path", ["..", "a/../b", "a//b", "$cbs", "q\x00", "\u212a", "", "q/$DeadLetterQueue"]
)
def test_an_odd_path_finds_nothing_and_creates_nothing(path: str) -> None:
    """E-6, E-8: a look-alike of an existing name is another name."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q")
        await bench.create("k")
        with pytest.raises(EntityNotFound):
            bench.namespace.queue(path)
        with pytest.raises(BadArgument):
            await bench.create(path)
        assert len(bench.namespace.queues()) == 2

    on_a_bench(test)


def test_a_used_name_is_refused_in_any_case() -> None:
    """E-1, E-7, ERR-2: 409, also inside one request for several."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("orders")
        with pytest.raises(EntityAlreadyExists, match="Orders"):
            await bench.create("Orders")
        with pytest.raises(EntityAlreadyExists):
            await bench.namespace.create(
                [NewEntity(each) for each in [QueueDescription("a"), QueueDescription("A")]]
            )
        assert not bench.namespace.exists("a")

    on_a_bench(test)


def test_two_creations_at_once_give_one_queue() -> None:
    """E-1: changes wait for one another."""

    async def test(bench: NamespaceBench) -> None:
        results = await asyncio.gather(*(bench.create("q") for _ in range(5)), return_exceptions=True)
        assert sum(isinstance(result, QueueDescription) for result in results) == 1
        assert sum(isinstance(result, EntityAlreadyExists) for result in results) == 4

    on_a_bench(test, 3)


def test_the_number_of_entities_is_limited() -> None:
    """L-1, L-22: one more is a quota error, and deleting makes room."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        await bench.create("b")
        with pytest.raises(QuotaExceeded, match="2"):
            await bench.create("c")
        await bench.namespace.delete("a")
        await bench.create("c")

    on_a_bench(test, limits=Limits(entities_max=2))


def test_properties_are_checked_before_anything_is_made() -> None:
    """E-20, E-33, F-2: nothing is half created."""

    async def test(bench: NamespaceBench) -> None:
        with pytest.raises(BadArgument):
            await bench.create("q", lock_duration_ms=1)
        with pytest.raises(ForwardTargetNotFound):
            await bench.create("q", forward_to="r")
        good, bad = QueueDescription("good"), QueueDescription("bad", max_delivery_count=0)
        with pytest.raises(BadArgument):
            await bench.namespace.create([NewEntity(each) for each in [good, bad]])
        assert bench.namespace.queues() == []
        assert await bench.stores[0].fragments() == []

    on_a_bench(test)


def test_times_are_set_by_us() -> None:
    """E-40: whatever a client claims about creation and update."""

    async def test(bench: NamespaceBench) -> None:
        created = await bench.create("q", created_at_ms=5, updated_at_ms=6)
        now_ms = bench.clock.wall_ms()
        assert (created.created_at_ms, created.updated_at_ms) == (now_ms, now_ms)
        bench.clock.advance(9)
        updated = await bench.namespace.update(replace(created, created_at_ms=1, max_delivery_count=4))
        assert (updated.created_at_ms, updated.updated_at_ms) == (now_ms, now_ms + 9_000)
        assert bench.namespace.description("q") == updated

    on_a_bench(test)


def test_an_update_reaches_the_queue_in_use_and_keeps_its_links() -> None:
    """E-20, E-86: changing properties keeps links."""

    async def test(bench: NamespaceBench) -> None:
        description = await bench.create("q")
        queue, link = bench.namespace.queue("q"), Link()
        queue.attach(link, sends=True)
        await bench.namespace.update(replace(description, lock_duration_ms=30_000))
        assert queue.main.settings.lock_duration_ms == 30_000
        assert bench.namespace.queue("q") is queue
        assert link.error is None

    on_a_bench(test)


@pytest.mark.parametrize(
    ("status", "sender_goes", "receiver_goes"),
    [
        ("Active", False, False),
        ("Disabled", True, True),
        ("SendDisabled", True, False),
        ("ReceiveDisabled", False, True),
    ],
)
def test_a_change_of_status_detaches_the_links_it_forbids(
    status: str, sender_goes: bool, receiver_goes: bool
) -> None:
    """E-80, E-82, E-84: with entity-disabled; the messages are kept."""

    async def test(bench: NamespaceBench) -> None:
        description = await bench.create("q")
        await bench.send("q")
        queue, sender, reader = bench.namespace.queue("q"), Link(), Reader()
        queue.attach(sender, sends=True)
        queue.attach(reader, sends=False)
        queue.outlet(False).add_receiver(reader)
        await bench.namespace.update(replace(description, status=status))
        assert isinstance(sender.error, EntityDisabled) is sender_goes
        assert isinstance(reader.error, EntityDisabled) is receiver_goes
        assert (await bench.namespace.counts("q")).active == 1
        assert bench.namespace.description("q").status == status
        if sender_goes:
            with pytest.raises(EntityDisabled):
                queue.attach(Link(), sends=True)
            with pytest.raises(EntityDisabled):
                await bench.send("q")
        await bench.namespace.update(description)
        await bench.send("q")

    on_a_bench(test)


def test_fixed_properties_stay_fixed() -> None:
    """E-23, E-25: and the queue is as it was."""

    async def test(bench: NamespaceBench) -> None:
        description = await bench.create("q")
        with pytest.raises(BadArgument, match="RequiresSession"):
            await bench.namespace.update(replace(description, requires_session=True))
        assert bench.namespace.description("q") == description

    on_a_bench(test)


def test_deleting_a_queue_detaches_its_links_with_not_found() -> None:
    """E-86: links and waiting receivers, each once, with the sentence that clients parse."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q")
        queue, sender, reader, dead_reader = bench.namespace.queue("q"), Link(), Reader(), Reader()
        queue.attach(sender, sends=True)
        queue.attach(reader, sends=False)
        queue.outlet(False).add_receiver(reader)
        queue.outlet(True).add_receiver(dead_reader)
        await bench.namespace.delete("Q")
        for link in (sender, reader, dead_reader):
            assert isinstance(link.error, EntityNotFound)
            assert link.error.sentence == "The messaging entity 'sb://bus/q' could not be found."
        with pytest.raises(EntityNotFound):
            bench.namespace.queue("q")

    on_a_bench(test)


def test_a_name_created_again_is_a_new_entity() -> None:
    """E-86, M-35: no old message, number, lock or right survives; fragment keys are never reused."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q", authorization_rules=(_rule("own", "the-key"),))
        await bench.send("q", 5)
        old, reader = bench.namespace.queue("q"), Reader()
        old.outlet(False).add_receiver(reader)
        old.outlet(False).wake(reader)
        await settle()
        before = bench.namespace.access.entity_rules("q")
        await bench.namespace.delete("q")
        assert bench.namespace.access.entity_rules("q") is None
        await bench.create("q", authorization_rules=(_rule("own", "the-key"),))
        after = bench.namespace.access.entity_rules("q")
        assert before is not None
        assert after is not None
        assert before[0] != after[0]
        new = bench.namespace.queue("q")
        assert new is not old
        assert {new.main.key, new.dead_letter.key}.isdisjoint({old.main.key, old.dead_letter.key})
        refused: list[tuple[int, BrokerError]] = []
        tokens = [delivery.token for delivery in reader.taken]
        assert len(tokens) == 5
        new.outlet(False).settle(tokens, Settlement(Verb.COMPLETE), refused.extend)
        await settle()
        assert [index for index, _ in refused] == [0, 1, 2, 3, 4]
        assert (await bench.namespace.counts("q")).total == 0
        await bench.send("q")
        assert [message.sequence_number for message in await new.outlet(False).peek(0, 10)] == [1]

    on_a_bench(test)


def test_the_rows_of_a_deleted_queue_are_removed_in_slices() -> None:
    """E-86: in the background, without keeping the name."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q")
        await bench.send("q", 25)
        await bench.namespace.delete("q")
        await settle(200)
        assert await bench.stores[0].sweep_dropped(0) is False
        assert await bench.stores[0].fragments() == []

    on_a_bench(test, limits=Limits(sweep_rows_max=2))


def test_everything_is_there_after_a_restart() -> None:
    """E-40, M-35: descriptions, rules, counts and messages, in several stores."""

    async def test(bench: NamespaceBench) -> None:
        for number in range(8):
            await bench.create(
                f"q{number}", authorization_rules=(_rule("own"),), max_delivery_count=number + 1
            )
            await bench.send(f"q{number}", number)
        before = bench.namespace.queues()
        rules = bench.namespace.access.rules()
        after = await bench.restart()
        assert after.queues() == before
        assert after.access.rules() == rules
        for number in range(8):
            assert (await after.counts(f"q{number}")).active == number
        assert len(await after.queue("q7").outlet(False).peek(0, 10)) == 7

    on_a_bench(test, 3)


def test_a_restart_loads_no_idle_queue() -> None:
    """E-100: counts come from the fragments' rows; ten thousand queues cost no fragment object."""

    async def test(bench: NamespaceBench) -> None:
        await bench.namespace.create([NewEntity(QueueDescription(f"q{number}")) for number in range(2_000)])
        await bench.send("q7", 3)
        namespace = await bench.restart()
        await settle()
        counts = await namespace.counts_of([f"q{number}" for number in range(2_000)])
        assert sum(count.active for count in counts) == 3
        loaded = [row.key for row, _ in namespace.contents.entities.loaded()]
        assert len(loaded) <= 1  # the one with messages may be watched for expiry

    on_a_bench(test, 4)


def test_counts_say_what_lies_where() -> None:
    """E-100, E-101, E-102: active with locked ones, dead letters, scheduled; deferred only in the total."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q")
        await bench.send("q", 4)
        await bench.send("q", 2, scheduled_at_ms=bench.clock.wall_ms() + 3_600_000)
        outlet, reader = bench.namespace.queue("q").outlet(False), Reader()
        outlet.add_receiver(reader)
        outlet.wake(reader)
        await settle()
        assert len(reader.taken) == 4
        first, second, *_ = [delivery.token for delivery in reader.taken]
        outlet.settle([first], Settlement(Verb.DEFER), lambda _: None)
        outlet.settle([second], Settlement(Verb.DEAD_LETTER), lambda _: None)
        await settle()
        counts = await bench.namespace.counts("q")
        assert (counts.active, counts.deferred, counts.dead_letter, counts.scheduled) == (2, 1, 1, 2)
        assert counts.total == 6
        assert counts.size_bytes >= 600
        assert counts.accessed_at_ms == bench.clock.wall_ms()
        assert counts.availability == "Available"
        assert (await (await bench.restart()).counts("q")).total == 6

    on_a_bench(test)


def test_the_time_of_last_use_survives() -> None:
    """E-41: never used is 0; later uses are written at least once a minute and at the end."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q")
        assert (await bench.namespace.counts("q")).accessed_at_ms == 0
        reader = Reader()
        bench.namespace.queue("q").outlet(False).add_receiver(reader)
        await bench.advance(30)
        bench.namespace.queue("q").outlet(False).wake(reader)
        used_ms = bench.clock.wall_ms()
        await bench.advance(61)
        assert max(row.counters.accessed_at_ms for row in await bench.stores[0].fragments()) == used_ms
        assert (await (await bench.restart()).counts("q")).accessed_at_ms == used_ms

    on_a_bench(test)


def test_scheduled_messages_come_when_it_is_time() -> None:
    """S-34: the namespace starts the activator, also after a restart, for queues nobody has touched."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q")
        await bench.send("q", scheduled_at_ms=bench.clock.wall_ms() + 60_000)
        namespace = await bench.restart()
        await bench.advance(59)
        assert (await namespace.counts("q")).active == 0
        await bench.advance(2, 0.5)
        counts = await namespace.counts("q")
        assert (counts.active, counts.scheduled) == (1, 0)

    on_a_bench(test, 2)


def test_expired_messages_leave_although_nobody_touches_the_queue() -> None:
    """M-44: with a time to live of their own or of the queue, also after a restart."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("own")
        await bench.create("default", default_message_time_to_live_ms=60_000)
        await bench.send("own", 2)
        await bench.send("own", 1, ttl_ms=60_000)
        await bench.send("default", 2)
        namespace = await bench.restart()
        await bench.advance(130, 5)
        assert (await namespace.counts("own")).active == 2
        assert (await namespace.counts("default")).active == 0

    on_a_bench(test, 2)


# -- rules and keys


def test_a_new_namespace_has_a_root_rule_with_a_random_key() -> None:
    """A-1, A-3: 256 random bits in base64, all rights, different each time, the same after a restart."""

    async def test(bench: NamespaceBench) -> None:
        (rule,) = bench.namespace.access.rules()
        assert rule.name == "RootManageSharedAccessKey"
        assert rule.rights == {"Manage", "Send", "Listen"}
        assert len(base64.b64decode(rule.primary_key, validate=True)) == 32
        assert rule.primary_key != rule.secondary_key
        assert bench.namespace.access.root_key == rule.primary_key
        bench.namespace.authorizer.grant_of_key(rule.name, rule.primary_key)
        assert (await bench.restart()).access.root_key == rule.primary_key
        bench.stores = [MemoryStore("store-0")]
        assert (await bench.restart()).access.root_key != rule.primary_key

    on_a_bench(test)


def test_the_operators_own_key_is_the_root_key() -> None:
    """A-3, A-11: given at any start it replaces the primary key and ends what the old one signed."""

    async def test(bench: NamespaceBench) -> None:
        old = bench.namespace.access.root_key
        namespace = await bench.restart(root_key="operator-key")
        assert namespace.access.root_key == "operator-key"
        namespace.authorizer.grant_of_key("RootManageSharedAccessKey", "operator-key")
        with pytest.raises(AuthenticationFailed):
            namespace.authorizer.grant_of_key("RootManageSharedAccessKey", old)
        assert (await bench.restart()).access.root_key == "operator-key"

    on_a_bench(test)


def test_rules_of_the_namespace_can_be_set() -> None:
    """A-1, A-2, L-10: keys left out are drawn, twelve at most, the root rule stays."""

    async def test(bench: NamespaceBench) -> None:
        namespace = bench.namespace
        root = namespace.access.rules()[0]
        await namespace.access.set((root, _rule("reader")))
        assert len(base64.b64decode(namespace.access.rules()[1].primary_key)) == 32
        assert namespace.access.rules()[0] == root
        with pytest.raises(QuotaExceeded):
            await namespace.access.set((root, *(_rule(f"r{number}", "k") for number in range(12))))
        with pytest.raises(BadArgument, match="cannot be deleted"):
            await namespace.access.set((_rule("reader", "k"),))
        assert [rule.name for rule in namespace.access.rules()] == [root.name, "reader"]
        assert (await bench.restart()).access.rules() == namespace.access.rules()

    on_a_bench(test)


def test_a_rule_of_a_queue_gets_keys_and_is_limited() -> None:
    """E-37, L-10: the same for a queue's own rules."""

    async def test(bench: NamespaceBench) -> None:
        created = await bench.create("q", authorization_rules=(_rule("own"),))
        key = created.authorization_rules[0].primary_key
        assert len(base64.b64decode(key)) == 32
        kept = await bench.namespace.update(replace(created, authorization_rules=(_rule("own"),)))
        assert kept.authorization_rules[0].primary_key == key
        many = tuple(_rule(f"r{number}") for number in range(13))
        with pytest.raises(QuotaExceeded):
            await bench.create("r", authorization_rules=many)

    on_a_bench(test)


def test_regenerating_a_key_is_told_and_ends_its_grants() -> None:
    """A-8, A-10: whoever watches can drop the links at once."""

    async def test(bench: NamespaceBench) -> None:
        namespace, told = bench.namespace, 0

        def count() -> None:
            nonlocal told
            told += 1

        unwatch = namespace.access.watch(count)
        root = namespace.access.rules()[0]
        grant = namespace.authorizer.grant_of_key(root.name, root.primary_key)
        await namespace.access.set((replace(root, primary_key="another"),))
        assert told == 1
        assert not namespace.authorizer.is_valid(grant)
        await bench.create("q", authorization_rules=(_rule("own"),))
        description = namespace.description("q")
        before = told
        await namespace.update(replace(description, max_delivery_count=2))
        assert told == before
        await namespace.update(replace(description, authorization_rules=()))
        await namespace.delete("q")
        assert told == before + 2
        unwatch()
        unwatch()
        await namespace.access.set((root,))
        assert told == before + 2

    on_a_bench(test)


def test_a_change_goes_on_when_its_caller_goes_away() -> None:
    """Catalogue: a request that is cut off half way leaves memory and catalogue agreed."""

    async def test(bench: NamespaceBench) -> None:
        bench.stores[0].hold_commits()
        request = asyncio.get_running_loop().create_task(bench.create("q"))
        await settle()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        bench.stores[0].release_commits()
        await settle()
        assert bench.namespace.exists("q")
        await bench.send("q")

    on_a_bench(test)
