"""Transactions on one queue (TX-1, TX-2, TX-5…TX-10, TX-21, TX-23, TX-24, S-37, S-46, L-13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from busway.broker.fragment.locks import Delivery
from busway.broker.transaction.transactions import Transaction, Transactions
from busway.model.errors import (
    BrokerError,
    EntityDisabled,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    QuotaExceeded,
    SessionLockLost,
    StoreOutcomeUnknown,
    TransactionRolledBack,
    TransactionTimedOut,
    TransactionUnknown,
)
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.rig import Recorder, Rig, bodies, play, text

CONTROL = object()


class Outcome:
    """What a discharge led to."""

    def __init__(self) -> None:
        self.told: list[BrokerError | None] = []

    def __call__(self, error: BrokerError | None) -> None:
        self.told.append(error)


def declared(rig: Rig, among: Transactions | None = None) -> tuple[Transactions, Transaction]:
    transactions = Transactions(rig.runtime) if among is None else among
    return transactions, transactions.find(transactions.declare(CONTROL))


async def discharged(
    rig: Rig, transactions: Transactions, transaction: Transaction, *, fail: bool = False
) -> BrokerError | None:
    outcome = Outcome()
    transactions.discharge(CONTROL, transaction.txn_id, fail=fail, done=outcome)
    await rig.calm()
    [told] = outcome.told
    return told


def settle(
    transaction: Transaction, rig: Rig, deliveries: list[Delivery], verb: Verb = Verb.COMPLETE, **more: Any
) -> list[type[BrokerError]]:
    tokens = [delivery.token for delivery in deliveries]
    refused = transaction.settle(rig.main, tokens, Settlement(verb, **more), None)
    return [type(error) for _, error in refused]


def test_what_is_sent_in_a_transaction_is_seen_by_nobody_before_the_commit() -> None:
    """TX-1, TX-8: then all of it at once."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        transaction.send(rig.main, [text("a")])
        transaction.send(rig.main, [text("b"), text("c")])
        assert await rig.receive() == []
        assert await rig.main.peek(0, 10) == []
        assert rig.queue.counts().active == 0
        assert await discharged(rig, transactions, transaction) is None
        assert bodies(await rig.receive()) == ["a", "b", "c"]

    play(scenario)


def test_a_rolled_back_send_vanishes_and_leaves_no_gap() -> None:
    """TX-9, M-35: a rolled back send vanishes and leaves no gap."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        transaction.send(rig.main, [text("a")])
        assert await discharged(rig, transactions, transaction, fail=True) is None
        await rig.send_texts("next")
        [delivery] = await rig.receive()
        assert (delivery.message.bare, delivery.message.sequence_number) == (b"next", 1)
        assert rig.main.intake.pending_bytes == 0

    play(scenario)


def test_sends_and_settlements_are_one_commit() -> None:
    """TX-8: a message is worked off and its results appear in the same batch."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("job")
        [job] = await rig.receive()
        transactions, transaction = declared(rig)
        assert settle(transaction, rig, [job]) == []
        transaction.send(rig.main, [text("result")])
        rig.store.hold_commits()
        outcome = Outcome()
        transactions.discharge(CONTROL, transaction.txn_id, fail=False, done=outcome)
        await rig.calm()
        assert outcome.told == []
        assert await rig.receive() == []
        rig.store.release_commits()
        await rig.calm()
        assert outcome.told == [None]
        assert bodies(await rig.receive()) == ["result"]
        assert rig.queue.counts().active == 1

    play(scenario)


@pytest.mark.parametrize("verb", list(Verb))
def test_a_settlement_takes_effect_only_with_the_commit(verb: Verb) -> None:
    """TX-1, TX-8, TX-9: whatever the verb, a rollback leaves the lock as it was."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("m")
        [delivery] = await rig.receive()
        transactions, transaction = declared(rig)
        assert settle(transaction, rig, [delivery], verb) == []
        assert await rig.settle([delivery]) == [MessageLockLost]
        assert await discharged(rig, transactions, transaction, fail=True) is None
        assert rig.queue.counts().active == 1
        assert await rig.receive() == []  # still locked
        transactions, transaction = declared(rig)
        assert settle(transaction, rig, [delivery], verb) == []
        assert await discharged(rig, transactions, transaction) is None
        counts = rig.queue.counts()
        stays = verb in (Verb.ABANDON, Verb.RELEASE)
        assert (counts.active, counts.deferred, counts.dead_letter) == (
            int(stays),
            int(verb in (Verb.DEFER, Verb.HOLD)),
            int(verb is Verb.DEAD_LETTER),
        )
        again = await rig.receive()
        assert [d.message.delivery_count for d in again] == ([int(verb is Verb.ABANDON)] if stays else [])

    play(scenario)


def test_after_a_rollback_the_lock_keeps_its_old_end_and_the_count_is_not_raised_twice() -> None:
    """TX-9: after a rollback the lock keeps its old end and the count is not raised twice."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("m")
        [delivery] = await rig.receive()
        transactions, transaction = declared(rig)
        settle(transaction, rig, [delivery])
        await rig.advance(30)
        await discharged(rig, transactions, transaction, fail=True)
        await rig.advance(29)
        assert await rig.receive() == []
        await rig.advance(2)
        [again] = await rig.receive()
        assert again.message.delivery_count == 1

    play(scenario)


def test_a_lock_that_ends_before_the_commit_makes_it_fail() -> None:
    """TX-10: nothing of the transaction takes place."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        deliveries = await rig.receive()
        transactions, transaction = declared(rig)
        assert settle(transaction, rig, deliveries) == []
        transaction.send(rig.main, [text("result")])
        await rig.advance(61)
        error = await discharged(rig, transactions, transaction)
        assert isinstance(error, TransactionRolledBack)
        assert sorted(bodies(await rig.receive())) == ["a", "b"]

    play(scenario)


def test_a_lock_whose_time_is_over_but_was_not_collected_yet_makes_the_commit_fail_too() -> None:
    """TX-10: a lock whose time is over but was not collected yet makes the commit fail too."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        deliveries = await rig.receive()
        transactions, transaction = declared(rig)
        settle(transaction, rig, deliveries)
        rig.clock.advance(60)
        assert isinstance(await discharged(rig, transactions, transaction), TransactionRolledBack)
        await rig.advance(1)
        [again] = await rig.receive()
        assert again.message.delivery_count == 1

    play(scenario)


def test_a_claimed_lock_can_be_renewed_and_the_renewal_is_not_undone() -> None:
    """TX-1, TX-23: a claimed lock can be renewed and the renewal is not undone."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("m")
        deliveries = await rig.receive()
        transactions, transaction = declared(rig)
        settle(transaction, rig, deliveries)
        await rig.advance(40)
        await rig.main.renew([deliveries[0].token])
        await discharged(rig, transactions, transaction, fail=True)
        await rig.advance(40)
        assert await rig.settle(deliveries) == []

    play(scenario)


def test_a_second_transaction_cannot_have_the_same_lock() -> None:
    """TX-8: a second transaction cannot have the same lock."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("m")
        deliveries = await rig.receive()
        transactions, first = declared(rig)
        _, second = declared(rig, transactions)
        assert settle(first, rig, deliveries) == []
        assert settle(second, rig, deliveries) == [MessageLockLost]
        assert settle(first, rig, deliveries) == [MessageLockLost]
        assert await discharged(rig, transactions, second) is None
        assert await discharged(rig, transactions, first) is None
        assert rig.queue.counts().active == 0

    play(scenario)


def test_unknown_and_discharged_ids_are_refused() -> None:
    """TX-5: unknown and discharged ids are refused."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        with pytest.raises(
            TransactionUnknown, match="hasn't been declared yet, or has already been discharged"
        ):
            transactions.find(b"?" * 16)
        with pytest.raises(TransactionUnknown):
            transactions.discharge(object(), transaction.txn_id, fail=False, done=Outcome())
        assert await discharged(rig, transactions, transaction) is None
        with pytest.raises(TransactionUnknown):
            transactions.discharge(CONTROL, transaction.txn_id, fail=False, done=Outcome())
        with pytest.raises(TransactionUnknown):
            transaction.send(rig.main, [text("late")])

    play(scenario)


def test_when_its_control_link_goes_a_transaction_is_rolled_back() -> None:
    """TX-5: when its control link goes a transaction is rolled back."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("m")
        deliveries = await rig.receive()
        transactions, transaction = declared(rig)
        settle(transaction, rig, deliveries)
        transaction.send(rig.main, [text("gone")])
        transactions.owner_gone(CONTROL)
        assert len(transactions) == 0
        assert await rig.settle(deliveries) == []
        assert await rig.receive() == []

    play(scenario)


def test_two_minutes_after_its_first_operation_a_transaction_is_rolled_back() -> None:
    """TX-6: the discharge tells why; time before the first operation does not count."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        await rig.advance(600)
        transaction.send(rig.main, [text("a")])
        await rig.advance(119)
        transaction.send(rig.main, [text("b")])
        await rig.advance(2)
        with pytest.raises(TransactionTimedOut):
            transaction.send(rig.main, [text("c")])
        assert isinstance(await discharged(rig, transactions, transaction), TransactionTimedOut)
        assert await rig.receive() == []
        assert rig.main.intake.pending_bytes == 0

    play(scenario)


def test_a_transaction_takes_a_hundred_messages() -> None:
    """TX-7, L-13, ERR-29: a transaction takes a hundred messages."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        transaction.send(rig.main, [text("m") for _ in range(99)])
        with pytest.raises(InvalidOperation) as refusal:
            transaction.send(rig.main, [text("m"), text("m")])
        assert refusal.value.sentence == "Cannot send more than 100 messages in a single transaction"
        transaction.send(rig.main, [text("m")])
        assert await discharged(rig, transactions, transaction) is None
        assert rig.queue.counts().active == 100

    play(scenario)


def test_the_open_transactions_of_a_connection_hold_a_bounded_number_of_bytes() -> None:
    """TX-24: what was given back can be used again."""
    limits = Limits(transaction_bytes_per_connection_max=1_600)

    async def scenario(rig: Rig) -> None:
        transactions, first = declared(rig)
        _, second = declared(rig, transactions)
        first.send(rig.main, [text("x" * 600)])
        with pytest.raises(QuotaExceeded):
            second.send(rig.main, [text("x" * 600)])
        assert await discharged(rig, transactions, first) is None
        second.send(rig.main, [text("x" * 600)])
        transactions.owner_gone(CONTROL)
        assert declared(rig, transactions)[1] is not None

    play(scenario, limits)


def test_a_connection_has_a_bounded_number_of_open_transactions() -> None:
    """TX-24: ids cost memory too."""

    async def scenario(rig: Rig) -> None:
        transactions, _ = declared(rig)
        declared(rig, transactions)
        with pytest.raises(QuotaExceeded):
            transactions.declare(CONTROL)

    play(scenario, Limits(transactions_per_connection_max=2))


def test_basic_namespaces_have_no_transactions() -> None:
    """TX-21: Basic namespaces have no transactions."""

    async def scenario(rig: Rig) -> None:
        with pytest.raises(InvalidOperation):
            Transactions(rig.runtime).check_offered()

    play(scenario, Limits(sku="Basic"))


def test_messages_are_checked_when_they_are_sent_and_again_at_the_commit() -> None:
    """TX-11, S-6, S-8: a refused one changes nothing; who asked decides whether the transaction is doomed."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        with pytest.raises(MessageTooLarge):
            transaction.send(rig.main, [text("x" * 300_000)])
        transaction.send(rig.main, [text("small")])
        assert await discharged(rig, transactions, transaction) is None
        assert bodies(await rig.receive()) == ["small"]
        transactions, transaction = declared(rig)
        transaction.send(rig.main, [text("late")])
        rig.main.replace_settings(replace(rig.main.settings, allows_send=False))
        error = await discharged(rig, transactions, transaction)
        assert isinstance(error, TransactionRolledBack)
        assert EntityDisabled().sentence in error.sentence

    play(scenario)


def test_what_waits_for_a_commit_counts_against_the_size_of_the_queue() -> None:
    """S-9, TX-8: what waits for a commit counts against the size of the queue."""

    async def scenario(rig: Rig) -> None:
        _, transaction = declared(rig)
        for _ in range(4):
            transaction.send(rig.main, [text("x" * 250_000)])
        with pytest.raises(QuotaExceeded):
            transaction.send(rig.main, [text("x" * 250_000)])
        transaction.roll_back()
        assert await rig.send(text("x" * 250_000)) == []

    play(scenario, max_size_in_megabytes=1)


def test_a_refusal_that_could_not_be_told_makes_the_commit_fail() -> None:
    """TX-8: a client that wanted no outcomes does not believe in a part that is missing."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        transaction.send(rig.main, [text("a")])
        transaction.doom(MessageTooLarge())
        assert isinstance(await discharged(rig, transactions, transaction), TransactionRolledBack)
        assert await rig.receive() == []

    play(scenario)


@pytest.mark.parametrize("fate", ["refused", "lost", "lost but applied"])
def test_a_failed_commit_takes_all_or_nothing_and_the_client_is_told_the_truth(fate: str) -> None:
    """TX-8, S-1: an unknown outcome is not called a rollback."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("job")
        deliveries = await rig.receive()
        transactions, transaction = declared(rig)
        settle(transaction, rig, deliveries)
        transaction.send(rig.main, [text("result")])
        transaction.schedule(rig.main, [text("later", scheduled_at_ms=rig.clock.wall_ms() + 1_000)])
        if fate == "refused":
            rig.store.refuse_next_commit()
        else:
            rig.store.lose_next_commit(is_applied=fate == "lost but applied")
        told = await discharged(rig, transactions, transaction)
        assert isinstance(told, TransactionRolledBack if fate == "refused" else StoreOutcomeUnknown)
        assert rig.main.is_failed
        await rig.restart()
        await rig.advance(2)
        assert bodies(await rig.receive()) == (["result", "later"] if fate == "lost but applied" else ["job"])

    play(scenario)


def test_an_empty_transaction_can_be_discharged_either_way() -> None:
    """TX-5: an empty transaction can be discharged either way."""

    async def scenario(rig: Rig) -> None:
        for fail in (False, True):
            transactions, transaction = declared(rig)
            assert await discharged(rig, transactions, transaction, fail=fail) is None

    play(scenario)


# -- duplicates


def test_a_message_of_a_rolled_back_transaction_leaves_no_history() -> None:
    """S-46: a message of a rolled back transaction leaves no history."""

    async def scenario(rig: Rig) -> None:
        for fail in (True, False):
            transactions, transaction = declared(rig)
            transaction.send(rig.main, [text("a", message_id="1")])
            assert await discharged(rig, transactions, transaction, fail=fail) is None
        assert bodies(await rig.receive()) == ["a"]

    play(scenario, requires_duplicate_detection=True)


def test_of_two_equal_ids_in_one_transaction_the_second_is_dropped_at_the_commit() -> None:
    """S-46, S-43: of two equal ids in one transaction the second is dropped at the commit."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("before", message_id="0"))
        transactions, transaction = declared(rig)
        for body, message_id in (("a", "1"), ("b", "1"), ("c", "0"), ("d", "2")):
            transaction.send(rig.main, [text(body, message_id=message_id)])
        assert await discharged(rig, transactions, transaction) is None
        assert bodies(await rig.receive()) == ["before", "a", "d"]
        await rig.send(text("late", message_id="2"))
        assert await rig.receive() == []
        assert rig.main.intake.pending_bytes == 0

    play(scenario, requires_duplicate_detection=True)


def test_a_commit_that_fails_during_the_look_into_the_history_leaves_none() -> None:
    """S-46, TX-10: a commit that fails during the look into the history leaves none."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("job", message_id="0"))
        deliveries = await rig.receive()
        transactions, transaction = declared(rig)
        settle(transaction, rig, deliveries)
        transaction.send(rig.main, [text("a", message_id="1")])
        outcome = Outcome()
        transactions.discharge(CONTROL, transaction.txn_id, fail=False, done=outcome)
        rig.clock.advance(61)  # while the look is under way
        await rig.calm()
        [told] = outcome.told
        assert isinstance(told, TransactionRolledBack)
        assert await rig.send(text("again", message_id="1")) == []
        await rig.advance(1)
        assert sorted(bodies(await rig.receive())) == ["again", "job"]
        assert rig.main.intake.pending_bytes == 0

    play(scenario, requires_duplicate_detection=True)


# -- schedules


def test_what_a_transaction_schedules_has_its_number_at_once_and_exists_with_the_commit() -> None:
    """S-37, TX-8: what a transaction schedules has its number at once and exists with the commit."""

    async def scenario(rig: Rig) -> None:
        at_ms = rig.clock.wall_ms() + 10_000
        transactions, transaction = declared(rig)
        [number] = transaction.schedule(rig.main, [text("later", scheduled_at_ms=at_ms)])
        await rig.send_texts("between")
        assert [m.sequence_number for m in await rig.main.peek(0, 10)] == [number + 1]
        with pytest.raises(MessageNotFound):
            await rig.queue.cancel_scheduled([number])
        assert await discharged(rig, transactions, transaction) is None
        assert [m.sequence_number for m in await rig.main.peek(0, 10)] == [number, number + 1]
        assert rig.queue.counts().scheduled == 1
        await rig.advance(11)
        assert bodies(await rig.receive()) == ["between", "later"]

    play(scenario)


def test_a_rolled_back_schedule_is_forgotten() -> None:
    """S-37, TX-9: a rolled back schedule is forgotten."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        at_ms = rig.clock.wall_ms() + 1_000
        transaction.schedule(rig.main, [text("later", scheduled_at_ms=at_ms)])
        assert await discharged(rig, transactions, transaction, fail=True) is None
        await rig.advance(5)
        assert await rig.receive() == []
        assert not rig.main.horizon.arriving
        await rig.send_texts("on")
        assert bodies(await rig.receive()) == ["on"]

    play(scenario)


def test_a_schedule_whose_time_comes_before_the_commit_is_active_right_after_it() -> None:
    """S-37, S-34: a schedule whose time comes before the commit is active right after it."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        transaction.schedule(rig.main, [text("soon", scheduled_at_ms=rig.clock.wall_ms() + 1_000)])
        await rig.advance(5)
        assert await discharged(rig, transactions, transaction) is None
        await rig.advance(1)
        assert bodies(await rig.receive()) == ["soon"]

    play(scenario)


def test_a_cancellation_takes_effect_with_the_commit() -> None:
    """S-37, S-33: until then the message is there, but its time does not come and nobody else cancels it."""

    async def scenario(rig: Rig) -> None:
        [number] = await rig.queue.schedule([text("m", scheduled_at_ms=rig.clock.wall_ms() + 1_000)])
        transactions, transaction = declared(rig)
        await transaction.cancel(rig.main, [number])
        assert rig.queue.counts().scheduled == 1
        _, second = declared(rig, transactions)
        with pytest.raises(MessageNotFound):
            await second.cancel(rig.main, [number])
        with pytest.raises(MessageNotFound):
            await rig.queue.cancel_scheduled([number])
        rig.clock.advance(5)
        rig.timers.run(rig.clock.monotonic())
        await rig.calm()
        assert await rig.receive() == []
        assert await discharged(rig, transactions, transaction) is None
        assert rig.queue.counts().scheduled == 0

    play(scenario)


def test_a_rolled_back_cancellation_lets_the_message_come() -> None:
    """S-37, TX-9: a rolled back cancellation lets the message come."""

    async def scenario(rig: Rig) -> None:
        [number] = await rig.queue.schedule([text("m", scheduled_at_ms=rig.clock.wall_ms() + 1_000)])
        transactions, transaction = declared(rig)
        await transaction.cancel(rig.main, [number])
        rig.clock.advance(5)
        assert await discharged(rig, transactions, transaction, fail=True) is None
        await rig.advance(1)
        assert bodies(await rig.receive()) == ["m"]

    play(scenario)


def test_a_transaction_can_cancel_what_it_has_scheduled_itself() -> None:
    """S-37: a transaction can cancel what it has scheduled itself."""

    async def scenario(rig: Rig) -> None:
        transactions, transaction = declared(rig)
        at_ms = rig.clock.wall_ms() + 1_000
        numbers = transaction.schedule(
            rig.main, [text("a", scheduled_at_ms=at_ms), text("b", scheduled_at_ms=at_ms)]
        )
        await transaction.cancel(rig.main, numbers[:1])
        with pytest.raises(MessageNotFound):
            await transaction.cancel(rig.main, [numbers[0]])
        assert await discharged(rig, transactions, transaction) is None
        await rig.advance(2)
        assert bodies(await rig.receive()) == ["b"]
        assert rig.main.intake.pending_bytes == 0

    play(scenario)


# -- dead letters, sessions


def test_a_dead_letter_is_completed_and_its_message_sent_again_in_one_transaction() -> None:
    """TX-2: the dead-letter queue belongs to the same top-level entity."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("m")
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        [dead] = await rig.receive(dead_letter=True)
        transactions, transaction = declared(rig)
        assert transaction.settle(rig.dead_letter, [dead.token], Settlement(Verb.COMPLETE), None) == []
        transaction.send(rig.main, [text("m again")])
        assert await discharged(rig, transactions, transaction) is None
        counts = rig.queue.counts()
        assert (counts.active, counts.dead_letter) == (1, 0)
        assert transaction.txn_id

    play(scenario)


def test_a_session_that_is_closed_takes_its_messages_out_of_the_transaction() -> None:
    """TX-10, X-11: a session that is closed takes its messages out of the transaction."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("m", session_id="s"))
        recorder = Recorder(10)
        session = await rig.main.accept_session(recorder, "s", 1)
        rig.main.wake(recorder)
        await rig.calm()
        transactions, transaction = declared(rig)
        token = recorder.deliveries[0].token
        assert transaction.settle(rig.main, [token], Settlement(Verb.COMPLETE), "s") == []
        session.close()
        error = await discharged(rig, transactions, transaction)
        assert isinstance(error, TransactionRolledBack)
        assert SessionLockLost().sentence in error.sentence
        assert rig.queue.counts().active == 1

    play(scenario, requires_session=True)


def test_messages_of_a_session_are_settled_in_a_transaction() -> None:
    """TX-1, TX-9, X-13: messages of a session are settled in a transaction."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", session_id="s"), text("b", session_id="s"))
        recorder = Recorder(10)
        await rig.main.accept_session(recorder, "s", 1)
        rig.main.wake(recorder)
        await rig.calm()
        for fail in (True, False):
            transactions, transaction = declared(rig)
            assert transaction.settle(rig.main, recorder.tokens(), Settlement(Verb.COMPLETE), "s") == []
            assert await discharged(rig, transactions, transaction, fail=fail) is None
        assert rig.queue.counts().active == 0

    play(scenario, requires_session=True)


def test_a_deferred_message_is_settled_in_a_transaction() -> None:
    """TX-1, TX-9, R-53: a rollback leaves it locked and deferred."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("m")
        await rig.settle(await rig.receive(), Verb.DEFER)
        fetched = await rig.main.receive_by_number([1], deletes=False)
        for fail in (True, False):
            transactions, transaction = declared(rig)
            assert settle(transaction, rig, fetched) == []
            with pytest.raises(MessageNotFound):
                await rig.main.receive_by_number([1], deletes=False)
            assert await discharged(rig, transactions, transaction, fail=fail) is None
        assert rig.queue.counts().deferred == 0
        assert not rig.main.locks.deferred

    play(scenario)
