"""Limits that span a whole namespace or a whole entity, and what is said of a queue whose store is away."""

import pytest

from busway.broker.fragment.intake import namespace_fault
from busway.broker.fragment.runtime import NamespaceSize
from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.errors import QuotaExceeded
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.namespace_bench import NamespaceBench, Reader, on_a_bench, settle

_FULL_AT = Limits(namespace_bytes_max=1_000)


def test_a_full_namespace_takes_no_more_messages() -> None:
    """L-4, ERR-9: the sum over all entities counts, whichever is sent to; what is received makes room."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        await bench.create("b", requires_duplicate_detection=True)
        await bench.send("a", 9)
        with pytest.raises(QuotaExceeded, match="namespace, 1000 bytes"):
            await bench.send("b", 2)
        await bench.send("b", 1)
        with pytest.raises(QuotaExceeded, match="namespace"):
            await bench.send("a", 1)
        await _complete_all(bench, "a")
        await bench.send("b", 9)

    on_a_bench(test, store_count=2, limits=_FULL_AT)


def test_a_full_namespace_is_full_after_a_restart() -> None:
    """L-4: what lies in the stores counts from the first send on."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        await bench.send("a", 10)
        await bench.restart()
        with pytest.raises(QuotaExceeded, match="namespace"):
            await bench.send("a", 1)

    on_a_bench(test, limits=_FULL_AT)


def test_a_deleted_queue_makes_room_in_the_namespace() -> None:
    """L-4: a deleted queue makes room in the namespace."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        await bench.create("b")
        await bench.send("a", 10)
        await bench.namespace.delete("a")
        await bench.send("b", 10)

    on_a_bench(test, limits=_FULL_AT)


def test_a_session_state_counts_in_the_namespace() -> None:
    """L-4, X-15: a session state counts in the namespace."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a", requires_session=True)
        outlet = bench.namespace.queue("a").outlet(False)
        await outlet.accept_session(Reader(), "s", 1.0)
        await outlet.set_session_state("s", b"x" * 900)
        with pytest.raises(QuotaExceeded, match="namespace"):
            await outlet.set_session_state("s", b"x" * 1_001)
        await outlet.set_session_state("s", b"x" * 1_000)

    on_a_bench(test, limits=_FULL_AT)


def test_the_sum_is_taken_only_when_what_was_free_is_used_up() -> None:
    """L-4: a send costs a subtraction."""
    sums: list[int] = []

    def used() -> int:
        sums.append(1)
        return 100

    size = NamespaceSize(1_000, used)
    assert all(namespace_fault(size, 90) is None for _ in range(10))
    assert len(sums) == 1
    assert namespace_fault(size, 901) is not None
    assert len(sums) == 2


def test_only_so_many_sessions_of_an_entity_may_have_a_state() -> None:
    """L-14: one more is refused; a change of one is not; clearing one makes room."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a", requires_session=True)
        outlet = bench.namespace.queue("a").outlet(False)
        for number in range(7):
            await outlet.accept_session(Reader(), f"s{number}", 1.0)
        for number in range(5):
            await outlet.set_session_state(f"s{number}", b"state")
        with pytest.raises(QuotaExceeded, match="states of 5 sessions"):
            await outlet.set_session_state("s5", b"state")
        await outlet.set_session_state("s4", b"another state")
        await outlet.set_session_state("s5", None)
        await outlet.set_session_state("s0", None)
        await outlet.set_session_state("s6", b"state")
        with pytest.raises(QuotaExceeded):
            await outlet.set_session_state("s5", b"state")

    on_a_bench(test, limits=Limits(session_states_max=5))


def test_a_queue_is_available_or_nobody_knows() -> None:
    """E-90: Available; Unknown while its store is out of service."""

    async def test(bench: NamespaceBench) -> None:
        await bench.namespace.create(
            [NewEntity(each) for each in [QueueDescription("a"), QueueDescription("b")]]
        )
        assert {(await bench.namespace.counts(path)).availability for path in "ab"} == {"Available"}
        await bench.namespace.stores.disable("store-1")
        assert {(await bench.namespace.counts(path)).availability for path in "ab"} == {
            "Available",
            "Unknown",
        }

    on_a_bench(test, store_count=2)


async def _complete_all(bench: NamespaceBench, path: str) -> None:
    outlet = bench.namespace.queue(path).outlet(False)
    reader = Reader()
    outlet.add_receiver(reader)
    outlet.wake(reader)
    await settle()
    tokens = [delivery.token for delivery in reader.taken]
    outlet.settle(tokens, Settlement(Verb.COMPLETE), lambda _refused: None)
    outlet.remove_receiver(reader)
    await settle()
