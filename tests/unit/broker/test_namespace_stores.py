"""Stores that fail, come back, are taken out of service, are forgotten or mixed up."""

import asyncio
from dataclasses import replace

import pytest

from busway.broker.namespace.namespace import Namespace
from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.errors import (
    AuthenticationFailed,
    BrokerError,
    EntityNotFound,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.store.contract import StoreError, StoreState, StoreTooNew
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import Link, NamespaceBench, Reader, on_a_bench, settle


async def _two_queues(bench: NamespaceBench) -> None:
    """`a` lies in store-0, the home; `b` in store-1."""
    await bench.create("a")
    await bench.create("b")
    assert [store["fragments"] for store in bench.namespace.stores.shown()][:2] == [2, 2]
    await settle()  # the copy of the catalogue is up to date


def _states(namespace: Namespace) -> list[object]:
    return [store["state"] for store in namespace.stores.shown()]


def test_a_failed_store_takes_only_its_own_queues_with_it_and_comes_back() -> None:
    """ERR-17, E-91, E-104: links are evicted, others go on, and it heals by itself."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        await bench.send("a")
        await bench.send("b")
        sender, reader, untouched = Link(), Reader(), Link()
        bench.namespace.queue("b").attach(sender, sends=True)
        bench.namespace.queue("b").outlet(False).add_receiver(reader)
        bench.namespace.queue("a").attach(untouched, sends=True)
        bench.stores[1].refuse_next_commit()
        with pytest.raises(BrokerError):
            await bench.send("b")
        assert sender.error is not None
        assert reader.error is not None
        assert untouched.error is None
        assert _states(bench.namespace) == ["open", "failed"]
        with pytest.raises(ServerBusy):
            bench.namespace.queue("b")
        assert (await bench.namespace.counts("b")).availability == "Unknown"
        assert bench.namespace.description("b").path == "b"
        await bench.send("a")
        await bench.advance(0.2, 0.1)
        assert _states(bench.namespace) == ["open", "open"]
        assert (await bench.namespace.counts("b")).active == 1
        await bench.send("b")
        assert len(await bench.namespace.queue("b").outlet(False).peek(0, 10)) == 2

    on_a_bench(test, 2)


def test_a_lost_commit_is_told_as_unknown() -> None:
    """ERR-23: a commit whose outcome is unknown evicts with that, and what is true shows afterwards."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        link = Link()
        bench.namespace.queue("b").attach(link, sends=True)
        bench.stores[1].lose_next_commit(is_applied=True)
        with pytest.raises(StoreOutcomeUnknown):
            await bench.send("b")
        assert isinstance(link.error, StoreOutcomeUnknown)
        await bench.advance(0.2, 0.1)
        assert (await bench.namespace.counts("b")).active == 1

    on_a_bench(test, 2)


def test_a_store_that_stays_away_is_tried_again_and_again() -> None:
    """Stores: the pauses grow, the attempts do not end."""

    class Stubborn(MemoryStore):
        refusals = 0

        async def reopen(self) -> None:
            if self.refusals > 0:
                self.refusals -= 1
                raise StoreError("The disk is still gone.")
            await super().reopen()

    async def test() -> None:
        bench = NamespaceBench()
        store = Stubborn("store-0")
        bench.stores = [store]
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        await bench.create("q")
        store.refusals = 12
        store.refuse_next_commit()
        with pytest.raises(BrokerError):
            await bench.send("q")
        await bench.advance(60, 0.05)
        assert 0 < store.refusals < 12
        assert _states(bench.namespace) == ["failed"]
        await bench.advance(400, 1)
        assert _states(bench.namespace) == ["open"]
        await bench.send("q")
        await bench.namespace.close()

    asyncio.run(test())


def test_a_store_that_fails_unnoticed_is_found_by_looking() -> None:
    """Stores: nobody was waiting for its commit."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        bench.stores[1].state = StoreState.FAILED
        assert _states(bench.namespace) == ["open", "failed"]
        await bench.advance(1, 0.1)
        assert _states(bench.namespace) == ["open", "open"]

    on_a_bench(test, 2)


def test_without_the_home_nothing_can_be_changed_but_everything_else_works() -> None:
    """ERR-17: a change fails cleanly and succeeds when the home is back."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        description = bench.namespace.description("b")
        bench.stores[0].refuse_next_commit()
        with pytest.raises(BrokerError):
            await bench.send("a")
        for change in (
            bench.create("c"),
            bench.namespace.update(replace(description, max_delivery_count=3)),
            bench.namespace.delete("b"),
            bench.namespace.access.set(bench.namespace.access.rules()),
        ):
            with pytest.raises(ServerBusy, match="store-0"):
                await change
        await bench.send("b")
        assert bench.namespace.description("b") == description
        assert not bench.namespace.exists("c")
        await bench.advance(0.3, 0.1)
        await bench.create("c")
        await bench.namespace.delete("b")

    on_a_bench(test, 2)


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_change_of_unknown_outcome_is_settled_when_the_home_is_back(is_applied: bool) -> None:
    """Catalogue: memory follows what the home says, whichever it was."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("old")
        bench.stores[0].lose_next_commit(is_applied=is_applied)
        with pytest.raises(StoreOutcomeUnknown):
            await bench.create("new")
        assert not bench.namespace.exists("new")
        await bench.advance(0.3, 0.1)
        assert bench.namespace.exists("new") is is_applied
        if is_applied:
            await bench.send("new")
        await bench.namespace.delete("old")
        assert (await bench.restart()).exists("new") is is_applied

    on_a_bench(test)


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_deletion_of_unknown_outcome_evicts_when_it_had_taken_place(is_applied: bool) -> None:
    """E-86: the queue is gone, or as it was."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("home")
        await bench.create("q")
        assert bench.namespace.stores.shown()[1]["fragments"] == 2
        link = Link()
        bench.namespace.queue("q").attach(link, sends=True)
        bench.stores[0].lose_next_commit(is_applied=is_applied)
        with pytest.raises(StoreOutcomeUnknown):
            await bench.namespace.delete("q")
        await bench.advance(0.3, 0.1)
        assert bench.namespace.exists("q") is not is_applied
        assert isinstance(link.error, EntityNotFound) is is_applied

    on_a_bench(test, 2)


def test_a_creation_that_fails_half_way_leaves_nothing() -> None:
    """Catalogue: fragments that no row names are dropped when their store is opened next."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        bench.stores[0].refuse_next_commit()
        with pytest.raises(ServerBusy):
            await bench.create("b")
        assert len(await bench.stores[1].fragments()) == 2
        namespace = await bench.restart()
        await settle()
        assert not namespace.exists("b")
        assert await bench.stores[1].fragments() == []
        await bench.create("b")
        await bench.send("b")

    on_a_bench(test, 2)


def test_a_creation_whose_store_fails_is_refused_cleanly() -> None:
    """ERR-17: and can be repeated at once in another store."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        await settle()
        bench.stores[1].refuse_next_commit()
        with pytest.raises(ServerBusy, match="nothing was created"):
            await bench.create("b")
        await bench.create("b")
        assert [store["fragments"] for store in bench.namespace.stores.shown()] == [4, 0]

    on_a_bench(test, 2)


def test_a_queue_of_an_unavailable_store_can_be_deleted() -> None:
    """E-86: its rows go when the store is back."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        await bench.send("b", 3)
        bench.stores[1].refuse_next_commit()
        with pytest.raises(BrokerError):
            await bench.send("b")
        await bench.namespace.delete("b")
        await bench.advance(0.3, 0.1)
        await settle()
        assert await bench.stores[1].fragments() == []
        await bench.create("b")
        assert (await bench.namespace.counts("b")).total == 0

    on_a_bench(test, 2)


def test_an_operator_takes_a_store_out_of_service_and_back() -> None:
    """E-91: over a restart too; new queues go elsewhere meanwhile."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        await bench.send("b", 2)
        link = Link()
        bench.namespace.queue("b").attach(link, sends=True)
        await bench.namespace.stores.disable("store-1")
        await bench.namespace.stores.disable("store-1")
        assert isinstance(link.error, ServerBusy)
        assert _states(bench.namespace) == ["open", "disabled"]
        namespace = await bench.restart()
        assert _states(namespace) == ["open", "disabled"]
        assert bench.stores[1].state is StoreState.CLOSED
        with pytest.raises(ServerBusy):
            namespace.queue("b")
        await bench.create("c")
        assert namespace.stores.shown()[0]["fragments"] == 4
        await bench.advance(120, 10)
        assert _states(namespace) == ["open", "disabled"]
        await namespace.stores.enable("store-1")
        assert _states(namespace) == ["open", "open"]
        assert (await namespace.counts("b")).active == 2
        await bench.send("b")
        assert _states(await bench.restart()) == ["open", "open"]

    on_a_bench(test, 2)


def test_the_home_too_can_be_taken_out_and_back() -> None:
    """E-91: meanwhile nothing can be changed."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        await bench.namespace.stores.disable("store-0")
        namespace = await bench.restart()
        assert _states(namespace) == ["disabled", "open"]
        await bench.send("b")
        with pytest.raises(ServerBusy):
            await bench.create("c")
        await namespace.stores.enable("store-0")
        await bench.create("c")
        assert _states(await bench.restart()) == ["open", "open"]

    on_a_bench(test, 2)


def test_an_unknown_store_is_named_with_the_known_ones() -> None:
    """ERR-1: a clear sentence."""

    async def test(bench: NamespaceBench) -> None:
        with pytest.raises(EntityNotFound, match=r"'nope'.*store-0, store-1"):
            await bench.namespace.stores.disable("nope")

    on_a_bench(test, 2)


# -- which stores


def test_fewer_stores_than_before_are_refused_with_their_names() -> None:
    """Stores: a store left out would silently hide its queues."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        everything = bench.stores
        for left in (everything[:1], everything[1:], everything[:2]):
            bench.stores = left
            await bench.namespace.close()
            bench.namespace = bench.new_namespace()
            with pytest.raises(StoreError, match=r"lives on 3 stores.*not given"):
                await bench.namespace.open()
            assert all(store.state is StoreState.CLOSED for store in left)
        bench.stores = everything
        assert (await bench.restart()).exists("b")

    on_a_bench(test, 3)


def test_more_stores_extend_the_namespace_for_new_queues() -> None:
    """Stores: nothing moves; the order in which they are given does not matter later."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        await bench.create("b")
        bench.stores = [MemoryStore("store-1"), *bench.stores]
        namespace = await bench.restart()
        await bench.create("c")
        assert {store["name"]: store["fragments"] for store in namespace.stores.shown()} == {
            "store-0": 4,
            "store-1": 2,
        }
        bench.stores.reverse()
        namespace = await bench.restart()
        for path in ("a", "b", "c"):
            await bench.send(path)

    on_a_bench(test, 1)


def test_stores_of_two_namespaces_are_not_mixed() -> None:
    """Stores: a clear sentence instead of two half worlds."""

    async def test(bench: NamespaceBench) -> None:
        other = NamespaceBench()
        other.entropy.bytes(1)
        other.stores = [MemoryStore("store-1")]
        other.namespace = other.new_namespace()
        await other.namespace.open()
        await other.namespace.close()
        bench.stores.append(other.stores[0])
        await bench.namespace.close()
        bench.namespace = bench.new_namespace()
        with pytest.raises(StoreError, match="different namespaces"):
            await bench.namespace.open()

    on_a_bench(test)


def test_a_store_whose_file_was_replaced_is_kept_out_of_service() -> None:
    """E-104: its queues are unavailable, not silently empty, and the others work."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        await bench.send("a")
        bench.stores[1] = MemoryStore("store-1")
        namespace = await bench.restart()
        assert _states(namespace) == ["open", "failed"]
        with pytest.raises(ServerBusy):
            namespace.queue("b")
        assert (await namespace.counts("a")).active == 1
        assert await bench.stores[1].catalogue() == (0, {})

    on_a_bench(test, 2)


def test_a_lost_home_is_replaced_by_the_copies() -> None:
    """Catalogue: a versioned copy lies in every store; the highest version wins and its queues work."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        await bench.send("b")
        await settle()
        bench.stores[0] = MemoryStore("store-0")
        namespace = await bench.restart()
        assert _states(namespace) == ["failed", "open"]
        assert [description.path for description in namespace.queues()] == ["a", "b"]
        assert (await namespace.counts("b")).active == 1
        with pytest.raises(ServerBusy):
            await bench.create("c")

    on_a_bench(test, 2)


def test_a_copy_that_is_behind_catches_up() -> None:
    """Catalogue: after its store was away, and after a start with an older copy."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        bench.stores[1].refuse_next_commit()
        await bench.namespace.create([NewEntity(QueueDescription("b", user_metadata="x"))])
        await settle()
        home = await bench.stores[0].catalogue()
        await bench.advance(0.5, 0.1)
        await bench.create("c")
        await settle()
        home = await bench.stores[0].catalogue()
        assert await bench.stores[1].catalogue() == home
        bench.stores[1]._catalogue_version -= 1
        bench.stores[1]._catalogue.pop("queue:c")
        await bench.restart()
        await settle()
        assert await bench.stores[1].catalogue() == home

    on_a_bench(test, 2)


class Late(MemoryStore):
    """Cannot be opened while it is away."""

    is_away = False

    async def open(self) -> None:
        if self.is_away:
            raise StoreError("The disk is not there.")
        await super().open()


def test_the_operators_key_counts_although_the_home_is_away() -> None:
    """A-3, A-10: the old key is not accepted meanwhile, nor after the home has come back."""

    async def test() -> None:
        bench = NamespaceBench()
        home = Late("store-0")
        bench.stores = [home, MemoryStore("store-1")]
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        await _two_queues(bench)
        old = bench.namespace.access.root_key
        home.is_away = True
        namespace = await bench.restart(root_key="operator-key")
        assert namespace.access.root_key == "operator-key"
        home.is_away = False
        await bench.advance(1, 0.1)
        await bench.create("c")
        assert namespace.access.root_key == "operator-key"
        with pytest.raises(AuthenticationFailed):
            namespace.authorizer.grant_of_key("RootManageSharedAccessKey", old)
        await namespace.close()

    asyncio.run(test())


def test_a_store_that_cannot_be_opened_at_start_comes_later() -> None:
    """Stores: the start is not held up by it, unless it is the very first."""

    async def test() -> None:
        bench = NamespaceBench()
        late = Late("store-1")
        bench.stores.append(late)
        late.is_away = True
        bench.namespace = bench.new_namespace()
        with pytest.raises(StoreError, match="disk"):
            await bench.namespace.open()
        late.is_away = False
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        await _two_queues(bench)
        await bench.send("b")
        late.is_away = True
        namespace = await bench.restart()
        assert _states(namespace) == ["open", "failed"]
        await bench.send("a")
        late.is_away = False
        await bench.advance(1, 0.1)
        assert (await namespace.counts("b")).active == 1
        await namespace.close()

    asyncio.run(test())


def test_a_store_that_another_server_has_taken_is_not_opened_by_itself() -> None:
    """Stores: the two would take it from each other for ever. An operator's word opens it again."""

    async def test(bench: NamespaceBench) -> None:
        await _two_queues(bench)
        bench.stores[1].be_taken()
        with pytest.raises(BrokerError):
            await bench.send("b")
        await bench.advance(100, 10)
        assert _states(bench.namespace) == ["open", "taken"]
        owners = [store["owner"] for store in bench.namespace.stores.shown()]
        assert owners == ["this server", "another server"]
        with pytest.raises(ServerBusy):
            bench.namespace.queue("b")
        await bench.send("a")
        await bench.namespace.stores.disable("store-1")
        await bench.namespace.stores.enable("store-1")
        assert _states(bench.namespace) == ["open", "open"]
        await bench.send("b")

    on_a_bench(test, 2)


class Away(MemoryStore):
    """In a database with others, which does not answer at the start."""

    def __init__(self, name: str, database: str, opened: list[str]) -> None:
        super().__init__(name)
        self.url = f"postgresql://{database}/bus?store={name}"
        self.is_away = True
        self._opened = opened

    async def open(self) -> None:
        self._opened.append(self.name)
        if self.is_away:
            raise StoreError("Nobody answers.")
        await super().open()


def test_a_database_that_does_not_answer_is_waited_for_once_at_the_start() -> None:
    """Stores: its stores are opened later, by themselves; those of other databases are not kept waiting."""

    async def test(bench: NamespaceBench) -> None:
        opened: list[str] = []
        bench.stores += [Away(f"east-{number}", "east", opened) for number in range(3)]
        for store in bench.stores[2:]:
            store.is_away = False
        await bench.restart()
        for store in bench.stores[2:]:
            store.is_away = True
        opened.clear()
        await bench.restart()
        assert opened == ["east-0"]
        assert _states(bench.namespace) == ["open", "open", "failed", "failed", "failed"]
        for store in bench.stores[2:]:
            store.is_away = False
        await bench.advance(1, 0.1)
        assert _states(bench.namespace) == ["open"] * 5

    on_a_bench(test, 2)


def test_data_of_a_newer_version_is_not_touched() -> None:
    """Stores: this one would damage it."""

    class Newer(MemoryStore):
        async def open(self) -> None:
            raise StoreTooNew("Written by a newer version.")

    async def test() -> None:
        bench = NamespaceBench()
        await bench.namespace.open()
        bench.stores.append(Newer("store-1"))
        with pytest.raises(StoreTooNew):
            await bench.restart()

    asyncio.run(test())


def test_stores_need_names_of_their_own() -> None:
    """Stores: none, or two of one name, is a mistake of the caller."""
    for stores in ([], [MemoryStore("a"), MemoryStore("a")]):
        bench = NamespaceBench()
        bench.stores = stores
        with pytest.raises(StoreError):
            bench.new_namespace()
