"""Remembered message ids."""

from typing import Any

from tests.store_contract.scenario import World, add_fragment


def test_ids_are_known_from_the_time_asked_for(world: World) -> None:
    """S-40, S-44: the window counts from acceptance."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        store.batch().duplicate_ids.extend([(fragment, "a", 100), (fragment, "b", 200), (other, "c", 300)])
        await store.flush()
        assert await store.known_ids(fragment, ["a", "b", "c", "d"], 0) == {"a", "b"}
        assert await store.known_ids(fragment, ["a", "b"], 101) == {"b"}
        assert await store.known_ids(fragment, [], 0) == set()

    world.run(play)


def test_an_id_accepted_again_counts_from_the_later_time(world: World) -> None:
    """S-44: after its window an id can be accepted anew."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        store.batch().duplicate_ids.append((fragment, "a", 100))
        await store.flush()
        store.batch().duplicate_ids.append((fragment, "a", 900))
        await store.flush()
        assert await store.known_ids(fragment, ["a"], 500) == {"a"}

    world.run(play)


def test_a_purge_forgets_older_ids_whatever_their_number(world: World) -> None:
    """S-40: far more ids than one batch removes are forgotten at once for every reader."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        names = [f"id-{number}" for number in range(3_000)]
        store.batch().duplicate_ids.extend((fragment, name, 100) for name in names)
        store.batch().duplicate_ids.extend([(fragment, "new", 200), (other, "id-1", 100)])
        await store.flush()
        store.batch().duplicate_purges.append((fragment, 200))
        await store.flush()
        assert await store.known_ids(fragment, [*names, "new"], 0) == {"new"}
        assert await store.known_ids(other, names, 0) == {"id-1"}

    world.run(play)


def test_ids_of_joined_batches_are_known_before_their_commit(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        await store.flush()
        store.hold_commits()
        store.batch().duplicate_ids.append((fragment, "a", 100))
        assert await store.known_ids(fragment, ["a", "b"], 0) == {"a"}
        store.batch().duplicate_purges.append((fragment, 150))
        assert await store.known_ids(fragment, ["a", "b"], 0) == set()

    world.run(play)
