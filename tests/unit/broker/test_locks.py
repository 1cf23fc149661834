"""The table of locks."""

from busway.broker.fragment.locks import LockTable
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, Message
from tests.harness.manual_clock import SeededEntropy


def messages(*numbers: int) -> list[Message]:
    made = []
    for number in numbers:
        message = Message(b"h", b"body")
        message.sequence_number = number
        made.append(message)
    return made


def test_tokens_carry_the_fragment_index_and_differ() -> None:
    """M-19: tokens carry the fragment index and differ."""
    table = LockTable(0x0102, SeededEntropy(), 1_000)
    deliveries = table.lock_run(messages(*range(1, 1_001)), PLACE_ACTIVE, None, 5.0, 0)
    tokens = {delivery.token for delivery in deliveries}
    assert len(tokens) == 1_000
    assert {token[:2] for token in tokens} == {b"\x01\x02"}
    assert {len(token) for token in tokens} == {16}


def test_whoever_pops_a_lock_owns_it() -> None:
    """R-17: owner check and removal are one step."""
    table = LockTable(0, SeededEntropy(), 1_000)
    token = table.lock_run(messages(7), PLACE_ACTIVE, None, 5.0, 0)[0].token
    lock = table.pop(token, 4.9)
    assert lock is not None
    assert (lock.number, lock.size, lock.place) == (7, 5, PLACE_ACTIVE)
    assert table.pop(token, 4.9) is None
    assert table.take_ended(9.0, 10) == []


def test_a_lock_whose_time_is_over_waits_for_its_end() -> None:
    """R-17: it cannot be popped, and its end is not lost."""
    table = LockTable(0, SeededEntropy(), 1_000)
    token = table.lock_run(messages(7), PLACE_ACTIVE, None, 5.0, 0)[0].token
    assert table.get(token, 5.0) is None
    assert table.pop(token, 5.0) is None
    assert [lock.number for lock in table.take_ended(5.0, 10)] == [7]
    assert table.take_ended(5.0, 10) == []


def test_ended_locks_come_in_slices_and_by_number() -> None:
    """R-5, L-22: ended locks come in slices and by number."""
    table = LockTable(0, SeededEntropy(), 1_000)
    table.lock_run(messages(9, 3), PLACE_ACTIVE, None, 5.0, 0)
    table.lock_run(messages(1, 2), PLACE_ACTIVE, None, 6.0, 0)
    assert table.next_deadline() == 5.0
    assert [lock.number for lock in table.take_ended(7.0, 1)] == [3, 9]
    assert [lock.number for lock in table.take_ended(7.0, 1)] == [1, 2]
    assert table.next_deadline() is None


def test_a_renewed_lock_ends_at_its_new_time_only() -> None:
    """R-30: a renewed lock ends at its new time only."""
    table = LockTable(0, SeededEntropy(), 1_000)
    first, second = [d.token for d in table.lock_run(messages(1, 2), PLACE_ACTIVE, None, 5.0, 0)]
    table.renew([first], 8.0)
    assert [lock.number for lock in table.take_ended(5.0, 10)] == [2]
    assert table.get(first, 7.9) is not None
    assert [lock.number for lock in table.take_ended(8.0, 10)] == [1]
    assert table.get(second, 0.0) is None


def test_numbers_of_locked_deferred_messages_are_known_apart() -> None:
    """R-52: numbers of locked deferred messages are known apart."""
    table = LockTable(0, SeededEntropy(), 1_000)
    table.lock_run(messages(1), PLACE_ACTIVE, None, 5.0, 0)
    popped = table.lock_run(messages(2, 3), PLACE_DEFERRED, None, 5.0, 0)[0].token
    assert (table.numbers(), table.deferred) == ({1}, {2, 3})
    table.pop(popped, 0.0)
    assert table.deferred == {3}
    table.take_ended(5.0, 10)
    assert (table.numbers(), table.deferred) == (set(), set())


def test_settled_locks_leave_no_memory_behind() -> None:
    """L-22: the heap of deadlines follows the number of live locks."""
    table = LockTable(0, SeededEntropy(), 1_000)
    kept = table.lock_run(messages(1), PLACE_ACTIVE, None, 2.0, 0)[0].token
    for n in range(200):
        for delivery in table.lock_run(messages(*range(100)), PLACE_ACTIVE, None, 100.0 + n, 0):
            assert table.pop(delivery.token, 0.0) is not None
    assert sum(len(run[2]) for run in table._runs) < 5_000
    assert table.get(kept, 1.0) is not None
    assert [lock.number for lock in table.take_ended(3.0, 10)] == [1]
