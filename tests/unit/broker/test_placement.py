"""Where new queues go."""

from dataclasses import dataclass

import pytest

from busway.broker.namespace.entity_creation import choose_store
from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.errors import ServerBusy
from tests.unit.broker.namespace_bench import NamespaceBench, on_a_bench


@dataclass
class _Place:
    name: str
    fragment_count: int
    is_open: bool = True


def test_the_store_with_the_fewest_fragments_is_chosen_then_the_first_by_name() -> None:
    """Placement: a stable rule, whatever the order of the list."""
    places = [_Place("c", 4), _Place("b", 2), _Place("a", 2), _Place("z", 0, is_open=False)]
    assert choose_store(places).name == "a"
    assert choose_store(reversed(places)).name == "a"


def test_without_any_store_the_answer_is_busy() -> None:
    """ERR-17: try again later."""
    with pytest.raises(ServerBusy):
        choose_store([_Place("a", 0, is_open=False)])


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
