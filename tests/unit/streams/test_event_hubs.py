"""Event hubs in a namespace: they come, change and go, and outlast restarts and failing stores."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from busway.broker.namespace.contents import NoHubs
from busway.broker.namespace.namespace import Namespace
from busway.message.event_record import Event
from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription, TopicDescription
from busway.model.errors import (
    BadArgument,
    BrokerError,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidOperation,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
    Unauthorized,
)
from busway.model.limits import Limits
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import (
    ConsumerGroupDescription,
    EventHubDescription,
    RetentionDescription,
)
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.harness.scene import NamespaceWorld, play
from tests.unit.gateway.http_exchange import sas_token


class Bus(NamespaceWorld):
    """A namespace with hubs over stores that outlast it."""

    def __init__(self, stores: list[MemoryStore], limits: Limits) -> None:
        self.stores = stores
        self.clock = ManualClock()
        self.namespace = Namespace("bus", stores, self.clock, SeededEntropy(), limits)
        self.hubs = EventHubs(self.namespace, self.clock, SeededEntropy(2))

    async def publish(self, path: str, partition: str, *bodies: bytes) -> None:
        ended: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        events = [Event(b"\x00Su\xa0" + bytes((len(body),)) + body, 5) for body in bodies]
        self.hubs.hub(path).partition(partition).append(events, ended.set_result)
        error = await ended
        if error is not None:
            raise error

    def last_numbers(self, path: str) -> list[int]:
        hub = self.hubs.hub(path)
        logs = [hub.present_partition(index) for index in range(hub.partition_count)]
        return [-2 if log is None else log.info().last_number for log in logs]


def run(work: Callable[[Bus], Awaitable[None]], *, limits: Limits | None = None, count: int = 2) -> None:
    play(lambda: Bus([MemoryStore(f"store-{index}") for index in range(count)], limits or Limits()), work)


def test_partitions_lie_in_different_stores() -> None:
    """H-4, P-1: placed over the stores as fragments are."""

    async def work(bus: Bus) -> None:
        await bus.hubs.create(EventHubDescription("h", partition_count=4))
        assert sorted(bus.hubs.store_names("h")) == ["store-0", "store-0", "store-1", "store-1"]
        assert len(set(bus.hubs.store_names("h")[:2])) == 2

    run(work)


def test_a_hub_its_groups_and_its_events_outlast_a_restart() -> None:
    """H-1, H-5, H-16: a hub its groups and its events outlast a restart."""

    async def whole() -> None:
        stores = [MemoryStore("store-0"), MemoryStore("store-1")]
        first = Bus(stores, Limits())
        await first.namespace.open()
        wanted = EventHubDescription(
            "Clicks",
            3,
            RetentionDescription("Compact", 5, 6, 7, 8),
            user_metadata="x",
            revoked_publishers=("p",),
        )
        made = await first.hubs.create(wanted, [ConsumerGroupDescription("", "billing", "y")])
        await first.publish("clicks", "1", b"a", b"b")
        await first.namespace.close()
        second = Bus(stores, Limits())
        await second.namespace.open()
        assert second.hubs.hubs() == [made]
        groups = second.hubs.groups("clicks")
        assert [(group.name, group.user_metadata) for group in groups] == [
            ("$Default", None),
            ("billing", "y"),
        ]
        assert second.last_numbers("clicks") == [-1, 1, -1]
        await second.publish("clicks", "1", b"c")
        assert second.last_numbers("clicks") == [-1, 2, -1]
        await second.namespace.close()

    asyncio.run(whole())


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_hub_whose_creation_has_an_unknown_outcome_can_be_used_if_it_turns_out_to_exist(
    is_applied: bool,
) -> None:
    """H-1, E-1: its logs lie in stores that never failed; only the catalogue's home did."""

    async def work(bus: Bus) -> None:
        namespace, stores = bus.namespace, bus.stores
        counted = {name: keeper.fragment_count for name, keeper in namespace.contents.keepers.items()}
        stores[0].lose_next_commit(is_applied=is_applied)
        with pytest.raises(StoreOutcomeUnknown):
            await bus.hubs.create(EventHubDescription("h", 4))
        for _ in range(10):
            bus.clock.advance(0.5)
            namespace.tick()
            for _ in range(50):
                await asyncio.sleep(0)
        assert bus.hubs.kind_of("h") == ("an event hub" if is_applied else None)
        if is_applied:
            for partition in range(4):
                await bus.publish("h", str(partition), b"a")
        else:
            assert counted == {
                name: keeper.fragment_count for name, keeper in namespace.contents.keepers.items()
            }

    run(work)


def test_a_deleted_hub_takes_its_events_along() -> None:
    """H-2, E-86: another one under its name starts from nothing."""

    async def work(bus: Bus) -> None:
        await bus.hubs.create(EventHubDescription("h", 2))
        await bus.publish("h", "0", b"a")
        await bus.hubs.delete("H")
        with pytest.raises(EntityNotFound):
            bus.hubs.hub("h")
        await bus.hubs.create(EventHubDescription("h", 2))
        assert bus.last_numbers("h") == [-1, -1]
        assert all(len(keeper.counters) == 1 for keeper in bus.namespace.contents.keepers.values())

    run(work)


def test_names_are_one_space_for_all_kinds() -> None:
    """E-7: and each kind says what the other is."""

    async def work(bus: Bus) -> None:
        await bus.hubs.create(EventHubDescription("h"))
        await bus.namespace.create([NewEntity(QueueDescription("q"))])
        with pytest.raises(EntityAlreadyExists):
            await bus.namespace.create([NewEntity(QueueDescription("H"))])
        with pytest.raises(EntityAlreadyExists):
            await bus.hubs.create(EventHubDescription("Q"))
        with pytest.raises(InvalidOperation, match="is an event hub"):
            bus.namespace.queue("h")
        with pytest.raises(EntityNotFound):
            bus.hubs.hub("q")

    run(work)


@pytest.mark.parametrize("path", ["h/publishers/x", "H/consumergroups/g/partitions/0", "h/anything"])
def test_no_queue_or_topic_lies_below_a_hub(path: str) -> None:
    """Attack: E-2, A-2: the key of a queue at a hub's address opened the hub."""

    async def work(bus: Bus) -> None:
        await bus.hubs.create(EventHubDescription("h"))
        for description in (QueueDescription(path), TopicDescription(path)):
            with pytest.raises(EntityAlreadyExists, match=r"event hub '[hH]'"):
                await bus.namespace.create([NewEntity(description)])
        await bus.namespace.create([NewEntity(QueueDescription("hh/publishers/x"))])
        await bus.hubs.delete("h")
        await bus.namespace.create([NewEntity(QueueDescription(path))])

    run(work)


def test_no_hub_lies_above_a_queue_or_topic() -> None:
    """Attack: E-2, A-2: the other way round."""

    async def work(bus: Bus) -> None:
        await bus.namespace.create([NewEntity(QueueDescription("h/publishers/x"))])
        await bus.namespace.create([NewEntity(TopicDescription("t/deep/er"))])
        for name in ("H", "t"):
            with pytest.raises(EntityAlreadyExists, match="below it"):
                await bus.hubs.create(EventHubDescription(name))
        await bus.namespace.delete("h/publishers/x")
        await bus.namespace.delete("t/deep/er")
        await bus.hubs.create(EventHubDescription("h"))
        await bus.hubs.create(EventHubDescription("t"))

    run(work)


def test_a_namespace_that_has_such_pairs_starts_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    """A-2: what earlier versions allowed; each entity's key opens that entity and not the other."""

    async def work(bus: Bus) -> None:
        rule = (AuthorizationRule("all", frozenset({"Manage", "Send", "Listen"}), "", ""),)
        await bus.hubs.create(EventHubDescription("h", authorization_rules=rule))
        bus.namespace.contents.hubs = NoHubs()
        queue = QueueDescription("h/publishers/x", authorization_rules=rule)
        await bus.namespace.create([NewEntity(queue), NewEntity(QueueDescription("h/other"))])
        await bus.namespace.close()
        again = Bus(bus.stores, Limits())
        await again.namespace.open()
        warned = [record.message for record in caplog.records if "h/publishers/x" in record.message]
        assert len(warned) == 1
        assert "'h'" in warned[0]
        authorizer, now_s = again.namespace.authorizer, again.clock.wall_ms() // 1000
        at = "h/publishers/x"
        key_of = {
            "h": again.hubs.description("h").authorization_rules[0].primary_key,
            at: again.namespace.description(at).authorization_rules[0].primary_key,
        }
        for owner, key in key_of.items():
            token = sas_token(f"sb://bus/{at}", "all", key, now_s + 60)
            grant = authorizer.grant_of_token(token, f"sb://bus/{at}")
            assert grant.level.key == owner
            for really, doors in (("h", [at]), (at, [at, f"{at}/$management", f"{at}/$deadletterqueue"])):
                for door in doors:
                    owner_key = "h" if really == "h" else None
                    if owner == really:
                        authorizer.authorise([grant], door, "Send", owner_key)
                    else:
                        with pytest.raises(Unauthorized):
                            authorizer.authorise([grant], door, "Send", owner_key)
        await again.namespace.close()

    run(work)


def test_a_failed_store_takes_only_its_partitions_down_and_all_is_back_with_it() -> None:
    """H-11, H-12, P-2: a failed store takes only its partitions down and all is back with it."""

    async def work(bus: Bus) -> None:
        await bus.hubs.create(EventHubDescription("h", 4))
        await bus.publish("h", "1", b"kept")
        await bus.namespace.stores.disable("store-1")
        assert bus.last_numbers("h") == [-1, -2, -1, -2]
        with pytest.raises(ServerBusy):
            await bus.publish("h", "1", b"refused")
        await bus.publish("h", "0", b"taken")
        await bus.namespace.stores.enable("store-1")
        assert bus.last_numbers("h") == [0, 0, -1, -1]

    run(work)


def test_a_hub_needs_all_its_stores_to_be_made() -> None:
    """P-60: all or nothing."""

    async def work(bus: Bus) -> None:
        await bus.namespace.stores.disable("store-1")
        with pytest.raises(ServerBusy, match="nothing was created"):
            await bus.hubs.create(EventHubDescription("h", 4))
        assert not bus.hubs.exists("h")
        await bus.namespace.stores.enable("store-1")
        await bus.hubs.create(EventHubDescription("h", 4))

    run(work)


def test_more_partitions_come_where_the_tier_allows_it_and_never_fewer() -> None:
    """H-3: Premium may grow; the old partitions keep what they have."""

    async def work(bus: Bus) -> None:
        made = await bus.hubs.create(EventHubDescription("h", 2))
        await bus.publish("h", "1", b"kept")
        await bus.hubs.update(EventHubDescription("h", 5))
        assert bus.last_numbers("h") == [-1, 0, -1, -1, -1]
        await bus.publish("h", "4", b"new")
        with pytest.raises(BadArgument, match="PartitionCount"):
            await bus.hubs.update(made)

    run(work, limits=Limits(sku="Premium"))


def test_there_are_as_many_hubs_as_one_likes_but_not_more_than_entities() -> None:
    """H-6, L-1: there are as many hubs as one likes but not more than entities."""

    async def work(bus: Bus) -> None:
        for number in range(12):
            await bus.hubs.create(EventHubDescription(f"h{number}", 1))
        await bus.namespace.create([NewEntity(QueueDescription("q"))])
        with pytest.raises(QuotaExceeded):
            await bus.hubs.create(EventHubDescription("one-more"))
        with pytest.raises(QuotaExceeded):
            await bus.namespace.create([NewEntity(QueueDescription("r"))])

    run(work, limits=Limits(entities_max=13))


@pytest.mark.parametrize("name", ["", "a/b", ".", "-a", "a-", "a b", "$x", "ä", "a" * 257])
def test_what_no_hub_can_be_called_is_refused(name: str) -> None:
    """H-2, E-6: one segment, so that what follows it in an address is never part of a name."""

    async def work(bus: Bus) -> None:
        with pytest.raises(BadArgument):
            await bus.hubs.create(EventHubDescription(name))

    run(work)


def test_the_rules_of_a_hub_open_everything_below_it() -> None:
    """A-2: partitions, publishers and consumer groups are addresses of the hub."""

    async def work(bus: Bus) -> None:
        rule = AuthorizationRule("r", frozenset({"Listen"}), "", "")
        made = await bus.hubs.create(EventHubDescription("h", authorization_rules=(rule,)))
        assert len(made.authorization_rules[0].primary_key) == 44
        for key in ("h", "h/consumergroups/$default/partitions/0", "h/partitions/1", "h/publishers/p"):
            assert bus.namespace.access.owner_key(key) == "h"
        assert bus.namespace.access.owner_key("h/orders") == "h/orders"
        found = bus.namespace.access.entity_rules("h")
        assert found is not None
        assert found[1] == made.authorization_rules

    run(work)


def test_nothing_is_throttled_unless_a_store_is_behind() -> None:
    """H-50: throughput units are off; more than one unit's thousand events in one instant are taken."""

    async def work(bus: Bus) -> None:
        await bus.hubs.create(EventHubDescription("h", 1))
        for _ in range(30):
            await bus.publish("h", "0", *(b"x" for _ in range(100)))
        assert bus.last_numbers("h") == [2_999]

    run(work)
