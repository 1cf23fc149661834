"""A store that hangs in a commit: who can choose goes elsewhere, who cannot is told at once."""

from __future__ import annotations

from busway.broker.entity.fragment_choice import fragment_of_key
from busway.model.errors import ServerBusy
from tests.unit.broker.partition_bench import COUNT, PartitionBench, index_of, on_partitions, text

KEYS = {fragment_of_key(f"key-{number}", COUNT): f"key-{number}" for number in range(100)}


def test_a_key_whose_store_hangs_is_refused_at_once() -> None:
    """P-25, P-65: and nobody else is."""

    async def test(bench: PartitionBench) -> None:
        bench.stores[1].seems_stuck = True
        assert (await bench.try_send(text(partition_key=KEYS[1]))).errors() == [ServerBusy]
        (number,) = await bench.put(text(partition_key=KEYS[2]))
        assert index_of(number) == 2
        bench.stores[1].seems_stuck = False
        (number,) = await bench.put(text(partition_key=KEYS[1]))
        assert index_of(number) == 1

    on_partitions(test)
