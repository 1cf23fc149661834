"""What partitioning costs where there are few messages, counted in looks into the store, not in time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from busway.broker.entity.fragment_group import FragmentGroup
from busway.model.descriptions import QueueDescription
from busway.store.contract import FragmentKey, Page
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, on_partitions, text
from tests.unit.broker.rig import Recorder
from tests.unit.broker.test_partitioned_topics import make

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "partitioning.md"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[FragmentKey]:
    """The fragment of every range read from now on."""
    seen: list[FragmentKey] = []
    read = MemoryStore.messages

    async def counted(
        store: MemoryStore, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> Page:
        seen.append(fragment)
        return await read(store, fragment, place, after, limit, bytes_max)

    monkeypatch.setattr(MemoryStore, "messages", counted)
    return seen


async def looks(bench: PartitionBench, path: str, reads: list[FragmentKey]) -> dict[str, int]:
    """The reads of one receiver that takes the one message of a backlog, finds nothing more, and is sent another."""
    outlet = bench.namespace.queue(path).outlet(False)
    receiver = Recorder(2, deletes=True)
    found = {}
    reads.clear()
    outlet.add_receiver(receiver)
    outlet.wake(receiver)
    await settle()
    found["backlog"], reads[:] = len(reads), []
    assert len(receiver.deliveries) == 1
    outlet.wake(receiver)
    await settle()
    found["nothing"], reads[:] = len(reads), []
    bench.namespace.queue(path).send([text()], lambda _refused: None)
    await settle()
    found["arrival"] = len(reads)
    assert len(receiver.deliveries) == 2
    return found


def test_few_messages_cost_a_partitioned_queue_no_more_reads(reads: list[FragmentKey]) -> None:
    """C-9, P-44, P-40: after a restart a receiver looks only where something lies; when nothing is there, and for a
    message that comes while it waits, it looks nowhere, as on a plain queue. What is left of the cost is that it
    stands on every fragment's lane."""

    async def test(bench: PartitionBench) -> None:
        await make(bench, QueueDescription("plain"))
        await bench.send("plain")
        await bench.put(text())
        await bench.restart()
        expected = {"backlog": 1, "nothing": 0, "arrival": 0}
        assert await looks(bench, "plain", reads) == expected
        assert await looks(bench, "orders", reads) == expected
        group = bench.outlet()
        assert isinstance(group, FragmentGroup)
        assert len(group.shares.of(group.receivers()[0])) == COUNT

    on_partitions(test)


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("low-volume", "use a plain entity"),
        ("consistency", "cannot be named"),
    ],
)
def test_the_page_gives_the_advice(heading: str, said: str) -> None:
    """C-9, P-44, P-34: advice is all that these rules ask for."""
    paragraphs = re.split(r"\n\s*\n|\n(?=- )", PAGE.read_text().lower())
    assert [
        paragraph for paragraph in paragraphs if heading in paragraph and said in " ".join(paragraph.split())
    ]
