"""Nodes on real databases: who takes stores, who waits, who gives up, who is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from threading import Event

import psycopg
import pytest

from busway.clock import Clock, Entropy
from busway.cluster.cluster_node import ClusterNode
from busway.cluster.lease import boot_time
from busway.cluster.lease_keeper import Standing
from busway.store.contract import StoreError, StoreInUse, StoreUnavailable
from busway.store.postgres.database import PostgresDatabase, nobody
from busway.store.postgres.store import PostgresStore
from busway.store.postgres.url import parse
from tests.harness.postgres_server import PostgresServer
from tests.unit.cluster.conftest import LEASE_S, MakeNode, entered


@pytest.fixture
def urls(postgres: PostgresServer) -> Iterator[tuple[str, str]]:
    """Of two databases."""
    first, second = postgres.database(), postgres.database()
    yield f"{first}?name=first&stores=2", f"{second}?name=second&stores=2"
    postgres.drop(first)
    postgres.drop(second)


def asked(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


def do(url: str, statement: str) -> None:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute(statement.encode())


async def until(condition: Callable[[], bool], seconds_max: float = 60.0) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        await asyncio.sleep(0.01)


def silence(node: ClusterNode) -> None:
    """As kill -9 does: its threads do nothing any more, and its lease is not renewed."""
    for keeper in node._keepers.values():
        assert keeper._rows is not None
        keeper._is_stopping = True
        keeper._leave = keeper._rows.close  # type: ignore[method-assign]
        keeper.wake()


def test_the_first_node_takes_all_stores_and_the_second_waits(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: it knows for whom; the first one's leases go on ending later."""

    async def play() -> None:
        first, second = make_node("a", *urls), make_node("b", *urls)
        async with entered(first, second):
            await first.owned()
            await until(lambda: second.holder is not None)
            await asyncio.sleep(1.5 * LEASE_S)
            assert (first.owned_stores(), second.owned_stores()) == (4, 0)
            assert second.holder is not None
            assert second.holder.node == "a"
            assert 0 < first.lease_left_s() < LEASE_S
            assert second.lease_left_s() == 0
            assert [(node["name"], node["state"], node["stores"]) for node in first.nodes()] == [
                ("a", "owner", 4),
                ("b", "standby", 0),
            ]

    asyncio.run(play())


def test_the_second_database_decides_nothing_while_the_first_is_being_entered(
    urls: tuple[str, str], make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-60: else a start serves the second one's stores alone, and gives them up a moment later."""

    async def play() -> None:
        node = make_node("a", *urls)
        first, second = node._keepers.values()
        may_look = Event()
        enter_first = first._enter

        def enter_late() -> None:
            may_look.wait(60)
            enter_first()

        monkeypatch.setattr(first, "_enter", enter_late)
        async with entered(node):
            try:
                await until(lambda: bool(second.incarnation))
                await asyncio.sleep(0.5)
                assert not node.is_owner
            finally:
                may_look.set()
            await node.owned()
            assert node.owned_stores() == 4
            assert node.moves() == {"free": 4}

    asyncio.run(play())


def test_a_silent_nodes_stores_are_taken_and_its_commits_come_too_late(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: leases and epochs change together, after the end of its lease by its own clock."""

    async def play() -> None:
        first, second = make_node("a", *urls), make_node("b", *urls)
        async with entered(first, second):
            await first.owned()
            await until(lambda: second.holder is not None)
            epochs = asked(urls[0], "SELECT epoch FROM busway.stores ORDER BY store")
            silence(first)
            await second.owned()
            until_s = max(keeper.lease.until for keeper in first._keepers.values())
            assert until_s < boot_time()
            assert asked(urls[0], "SELECT epoch FROM busway.stores ORDER BY store") == [
                (int(str(epoch)) + 1,) for (epoch,) in epochs
            ]
            assert second.moves() == {"taken over": 4}

    asyncio.run(play())


def test_whoever_waits_waits_for_the_lease_of_the_node_that_has_the_stores(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: nodes may have been started with different leases; the owner believes in its own."""

    async def play() -> None:
        first, second = make_node("a", urls[0], lease_s=5.0), make_node("b", urls[0], lease_s=2.0)
        async with entered(first, second):
            await first.owned()
            await until(lambda: second.holder is not None)
            [keeper] = first._keepers.values()
            lease = keeper.lease
            silence(first)
            await second.owned()
            assert lease.until < boot_time()

    asyncio.run(play())


def test_a_node_that_stops_frees_its_stores_at_once(urls: tuple[str, str], make_node: MakeNode) -> None:
    """S-1: also when leases are long."""

    async def play() -> None:
        first, second = make_node("a", *urls, lease_s=30.0), make_node("b", *urls, lease_s=2.0)
        async with entered(first, second):
            await first.owned()
            await until(lambda: second.holder is not None)
            await first.stop()
            begun = time.monotonic()
            await second.owned()
            assert time.monotonic() - begun < 10.0
            assert second.moves() == {"free": 4}

    asyncio.run(play())


def test_of_many_nodes_that_come_at_once_one_has_everything(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: no store is between two of them."""

    async def play() -> None:
        nodes = [make_node(f"node-{number}", *urls) for number in range(4)]
        try:
            await asyncio.gather(*(node.enter() for node in nodes))
            await until(lambda: any(node.owned_stores() == 4 for node in nodes))
            await asyncio.sleep(LEASE_S)
            assert sorted(node.owned_stores() for node in nodes) == [0, 0, 0, 4]
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))

    asyncio.run(play())


def test_who_has_the_first_database_takes_the_others(urls: tuple[str, str], make_node: MakeNode) -> None:
    """P-2: in this version a node has all stores or none, and the home decides."""

    async def play() -> None:
        second_only, both = make_node("b", urls[1]), make_node("a", *urls)
        async with entered(second_only):
            await second_only.owned()
            async with entered(both):
                await both.owned()
                assert both.owned_stores() == 2  # it serves what there is
                await second_only.stop()
                await until(lambda: both.owned_stores() == 4)

    asyncio.run(play())


def test_a_node_without_the_first_database_gives_up_the_others(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """P-2: so nothing stays torn between two nodes that started at the same moment."""

    async def play() -> None:
        home_only, other_way, both = (
            make_node("a", urls[0]),
            make_node("c", urls[1]),
            make_node("b", *urls),
        )
        async with entered(home_only, other_way):
            await home_only.owned()
            await other_way.owned()
            async with entered(both):
                await until(lambda: both.holder is not None)
                await other_way.stop()
                await asyncio.sleep(2 * LEASE_S)
                assert both.owned_stores() == 0
                assert asked(urls[1], "SELECT count(*) FROM busway.leases WHERE holder IS NOT NULL") == [(0,)]

    asyncio.run(play())


def test_a_second_node_of_the_same_name_is_refused_while_the_first_one_lives(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """Start: and takes its place when it is dead."""

    async def play() -> None:
        first, second, third = make_node("a", *urls), make_node("a", *urls), make_node("a", *urls)
        async with entered(first):
            await first.owned()
            async with entered(second):
                with pytest.raises(StoreInUse, match="A node called a lives already at a:5672"):
                    await second.owned()
            silence(first)
            async with entered(third):
                await third.owned()
                assert asked(urls[0], "SELECT node FROM busway.members") == [("a",)]

    asyncio.run(play())


def test_what_a_life_held_that_is_certainly_over_is_taken_at_once(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """Start: however long the lease."""

    async def play() -> None:
        first = make_node("a", *urls, lease_s=60.0)
        async with entered(first):
            await first.owned()
            silence(first)
            heir = make_node("a", *urls, lease_s=60.0, last_life=first.settings.life)
            async with entered(heir):
                begun = time.monotonic()
                await heir.owned()
                assert time.monotonic() - begun < 15.0

    asyncio.run(play())


def test_a_node_whose_row_is_gone_has_lost_everything_and_enters_anew(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: with another incarnation: the old one is never used again."""

    async def play() -> None:
        node = make_node("a", urls[0])
        async with entered(node):
            await node.owned()
            [keeper] = node._keepers.values()
            before = keeper.incarnation
            do(urls[0], "DELETE FROM busway.members")
            assert "given up" in await node.lost()
            await node.owned()
            assert keeper.incarnation != before
            assert node.moves()["deposed"] == 2

    asyncio.run(play())


def test_a_loop_that_hangs_loses_its_stores_and_a_busy_one_does_not(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: beats go on for a second after the loop's last pulse."""

    async def play() -> None:
        first, second = make_node("a", urls[0], lease_s=2.0), make_node("b", urls[0], lease_s=2.0)
        async with entered(first, second):
            await first.owned()
            [keeper] = first._keepers.values()
            assert first._pulse is not None
            first._pulse.cancel()
            await asyncio.sleep(0.5)
            assert boot_time() < keeper.lease.until
            await second.owned()

    asyncio.run(play())


def test_stores_open_only_under_the_lease_of_whoever_has_them(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: neither without one, nor under another's; and who has them is named."""

    async def play() -> None:
        url = parse(urls[0])
        node = make_node("a", urls[0])
        async with entered(node):
            await node.owned()
            for holder in (nobody, lambda: b"somebody else"):
                other = PostgresStore(PostgresDatabase(url, Clock(), Entropy(), holder), 0, Clock())
                with pytest.raises(StoreUnavailable, match="first-0 is held by the node a at a:5672"):
                    await other.open()
                await other.close()
            own = PostgresStore(PostgresDatabase(url, Clock(), Entropy(), node.holder_of(url)), 0, Clock())
            await own.open()
            await own.close()

    asyncio.run(play())


def test_a_database_that_cannot_be_reached_keeps_a_node_from_entering(make_node: MakeNode) -> None:
    """Start: one sentence."""

    async def play() -> None:
        with pytest.raises(StoreError, match="cannot be used"):
            await make_node("a", "postgresql://busway@127.0.0.1:1/bus").enter()

    asyncio.run(play())


def free(url: str) -> None:
    """Somebody had the stores in between, and has given them up."""
    do(url, "UPDATE busway.leases SET holder = NULL")


def test_stores_that_were_lost_and_won_again_between_two_looks_count_as_lost(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: what memory knows of them is of the time before; its lease is over for good."""

    async def play() -> None:
        node = make_node("a", urls[0])
        async with entered(node):
            await node.owned()
            [keeper] = node._keepers.values()
            lease = node.leases()["first-0"].lease
            free(urls[0])
            time.sleep(1.6)  # the loop hangs: it sees only what is in the end  # noqa: ASYNC251
            assert keeper.standing is Standing.OWNER
            assert await node.lost() == "They are its own again, but somebody may have had them in between"
            assert lease.is_over()
            await node.owned()
            assert not node.leases()["first-0"].lease.is_over()

    asyncio.run(play())


def test_who_waited_is_served_after_each_lapse_however_short(
    urls: tuple[str, str], make_node: MakeNode
) -> None:
    """S-1: also when it was over before the loop looked."""

    async def play() -> None:
        node = make_node("a", urls[0])
        resumed: list[list[str]] = []
        async with entered(node):
            await node.owned()
            node.resumed = resumed.append
            [keeper] = node._keepers.values()
            keeper.lease.until = boot_time() - 0.001
            await until(lambda: bool(resumed))
            assert resumed == [["first-0", "first-1"]]
            assert not node.is_suspended

    asyncio.run(play())
