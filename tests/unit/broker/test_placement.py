"""Where new queues go."""

from dataclasses import dataclass

import pytest

from busway.broker.namespace.entity_creation import choose_store, spread_over
from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.errors import ServerBusy
from tests.unit.broker.namespace_bench import NamespaceBench, on_a_bench


@dataclass
class _Place:
    name: str
    fragment_count: int
    is_open: bool = True
    url: str = ""


def test_the_store_with_the_fewest_fragments_is_chosen_then_the_first_by_name() -> None:
    """Placement: a stable rule, whatever the order of the list."""
    places = [_Place("c", 4), _Place("b", 2), _Place("a", 2), _Place("z", 0, is_open=False)]
    assert choose_store(places).name == "a"
    assert choose_store(reversed(places)).name == "a"


def test_without_any_store_the_answer_is_busy() -> None:
    """ERR-17: try again later."""
    with pytest.raises(ServerBusy):
        choose_store([_Place("a", 0, is_open=False)])


def in_databases(**counts: int) -> list[_Place]:
    return [
        _Place(f"{name}-{number}", 0, url=f"postgresql://{name}/bus?store={name}-{number}")
        for name, count in counts.items()
        for number in range(count)
    ]


def spread(stores: list[_Place], count: int) -> str:
    return " ".join(store.name for store in spread_over(stores, count))


def test_fragments_are_spread_over_databases_first_and_then_over_their_stores() -> None:
    """P-1: a database is one thing that can fail or be busy, however many stores it holds."""
    assert spread(in_databases(a=3, b=3), 4) == "a-0 b-0 a-1 b-1"
    assert spread(in_databases(a=3, b=3), 7) == "a-0 b-0 a-1 b-1 a-2 b-2 a-0"
    assert spread(in_databases(a=1, b=3), 4) == "a-0 b-0 b-1 b-2"


def test_the_fragments_of_an_entity_use_all_stores_of_a_database() -> None:
    """P-1: sixteen fragments lie in the sixteen stores of one database, eight in each half of two."""
    assert len(set(spread(in_databases(a=16), 16).split())) == 16
    halves = spread(in_databases(a=16, b=16), 16).split()
    assert (len(set(halves)), sum(name.startswith("a") for name in halves)) == (16, 8)


def test_files_are_databases_of_their_own() -> None:
    """P-1: stores with an address each are taken in their order."""
    files = [_Place(f"store-{number}", 0, url=f"sqlite:{number}") for number in range(3)]
    assert spread(files, 4) == "store-0 store-1 store-2 store-0"


def test_spreading_begins_where_a_plain_entity_would_go() -> None:
    """P-1: many entities with few fragments fill all stores."""
    stores = in_databases(a=2, b=2)
    stores[0].fragment_count = stores[1].fragment_count = 5
    assert spread(stores, 2) == "b-0 a-1"


def test_queues_spread_over_the_stores_and_stay_where_they_are() -> None:
    """Placement: also when many are made at once; a restart finds them in the same store."""

    async def test(bench: NamespaceBench) -> None:
        await bench.namespace.create([NewEntity(QueueDescription(f"q{number}")) for number in range(10)])
        before = [store["fragments"] for store in bench.namespace.stores.shown()]
        assert before == [6, 6, 4, 4]
        await bench.create("next")
        assert bench.namespace.stores.shown()[2]["fragments"] == 6
        namespace = await bench.restart()
        assert [store["fragments"] for store in namespace.stores.shown()] == [6, 6, 6, 4]

    on_a_bench(test, 4)
