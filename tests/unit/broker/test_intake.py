"""Which messages a queue takes, and what happens when it cannot write."""

import pytest

from busway.model.errors import (
    BadArgument,
    InvalidOperation,
    MessageTooLarge,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from busway.store.contract import CommitRefused, CommitUnknown
from tests.unit.broker.rig import Answer, Rig, bodies, numbers, play, text


def test_refused_messages_are_named_and_the_others_stored() -> None:
    """S-4, S-8: each for itself; M-35: no gap."""

    async def scenario(rig: Rig) -> None:
        refused = await rig.send(text("a"), text("x" * 101), text("b"), text("y" * 102))
        assert [(index, type(error)) for index, error in refused] == [
            (1, MessageTooLarge),
            (3, MessageTooLarge),
        ]
        assert "101 bytes" in refused[0][1].sentence
        assert numbers(await rig.receive()) == [1, 2]

    play(scenario, Limits(message_bytes_max=100))


def test_an_atomic_batch_is_all_or_nothing() -> None:
    """S-20, S-22: the error is reported for index 0 and nothing is stored."""

    async def scenario(rig: Rig) -> None:
        answer = Answer()
        rig.queue.send_atomically([text("a"), text("x" * 101)], answer)
        await rig.calm()
        assert answer.refused is not None
        assert [(index, type(error)) for index, error in answer.refused] == [(0, MessageTooLarge)]
        answer = Answer()
        rig.queue.send_atomically([text("x" * 60), text("y" * 60)], answer)
        assert answer.errors() == [MessageTooLarge]
        assert rig.queue.counts().total == 0
        answer = Answer()
        rig.queue.send_atomically([text("a"), text("b")], answer)
        await rig.calm()
        assert answer.refused == []
        assert bodies(await rig.receive()) == ["a", "b"]

    play(scenario, Limits(message_bytes_max=100))


def test_session_id_and_partition_key_must_agree() -> None:
    """S-6, M-3: refused everywhere, also without sessions."""

    async def scenario(rig: Rig) -> None:
        refused = await rig.send(
            text("a", session_id="s", partition_key="k"),
            text("b", session_id="s", partition_key="s"),
            text("c", session_id="s"),
        )
        assert [(index, type(error)) for index, error in refused] == [(0, InvalidOperation)]

    play(scenario)


def test_a_session_id_is_ignored_on_a_queue_without_sessions() -> None:
    """M-2: a session id is ignored on a queue without sessions."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("a", session_id="s"), text("b"))
        got = await rig.receive()
        assert [delivery.message.session_id for delivery in got] == ["s", None]

    play(scenario)


def test_a_session_queue_needs_a_session_id() -> None:
    """S-7: null is none; the empty string is a session id like any other."""

    async def scenario(rig: Rig) -> None:
        refused = await rig.send(text("a"), text("b", session_id=""))
        assert [(index, type(error)) for index, error in refused] == [(0, InvalidOperation)]
        sentence = "The SessionId was not set on a message, and it cannot be sent to the entity."
        assert refused[0][1].sentence.startswith(sentence)

    play(scenario, requires_session=True)


@pytest.mark.parametrize("field", ["message_id", "session_id", "partition_key"])
def test_keys_have_a_greatest_length(field: str) -> None:
    """L-8: 128 characters."""

    async def scenario(rig: Rig) -> None:
        refused = await rig.send(text("a", **{field: "ä" * 128}), text("b", **{field: "b" * 129}))
        assert [(index, type(error)) for index, error in refused] == [(1, BadArgument)]

    play(scenario)


def test_a_full_queue_refuses_and_says_how_full_it_is() -> None:
    """S-9, L-3, D-3: dead letters, deferred and scheduled ones count."""

    async def scenario(rig: Rig) -> None:
        big = "x" * 262_144
        await rig.send(text(big), text(big), text(big))
        got = await rig.receive()
        await rig.settle(got[:1], Verb.DEAD_LETTER)
        await rig.settle(got[1:2], Verb.DEFER)
        refused = await rig.send(text("a"), text(big), text("b"))
        assert [(index, type(error)) for index, error in refused] == [(1, QuotaExceeded)]
        assert "'orders'" in refused[0][1].sentence
        assert "1048576" in refused[0][1].sentence
        await rig.settle(got[2:])
        assert await rig.send(text(big)) == []

    play(scenario, max_size_in_megabytes=1)


def test_a_full_disk_refuses_sends_and_nothing_else() -> None:
    """S-9: settlement goes on."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        rig.store.accepts_new_payload = False
        assert [type(error) for _, error in await rig.send(text("b"))] == [QuotaExceeded]
        assert await rig.settle(await rig.receive()) == []
        rig.store.accepts_new_payload = True
        assert await rig.send(text("c")) == []

    play(scenario)


def test_a_refused_commit_is_a_certain_failure() -> None:
    """S-1: the sender is told to try again, and everybody is evicted so that memory can be loaded anew."""

    async def scenario(rig: Rig) -> None:
        receiver = rig.receiver(10)
        await rig.calm()
        rig.store.refuse_next_commit()
        refused = await rig.send(text("a"))
        assert [type(error) for _, error in refused] == [ServerBusy]
        assert [type(error) for error in receiver.evicted_with] == [ServerBusy]
        assert [type(error) for error in rig.store_failures] == [CommitRefused]
        assert [type(error) for _, error in await rig.send(text("b"))] == [ServerBusy]
        with pytest.raises(ServerBusy):
            rig.receiver(1)
        await rig.store.reopen()
        await rig.load()
        await rig.send_texts("c")
        got = await rig.receive()
        assert (bodies(got), numbers(got)) == (["c"], [1])

    play(scenario)


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_lost_commit_is_never_called_a_refusal(is_applied: bool) -> None:
    """S-1, S-2: no outcome, the link goes; the reopened store knows the truth."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive()
        rig.store.lose_next_commit(is_applied=is_applied)
        sent, settled = Answer(), Answer()
        rig.queue.send([text("b")], sent)
        rig.main.settle([got[0].token, b"?" * 16], Settlement(Verb.COMPLETE), settled)
        await rig.calm()
        assert sent.errors() == [StoreOutcomeUnknown]
        assert settled.errors()[0] is StoreOutcomeUnknown
        assert [type(error) for error in rig.store_failures] == [CommitUnknown]
        await rig.store.reopen()
        await rig.load()
        assert bodies(await rig.receive()) == (["b"] if is_applied else ["a"])

    play(scenario)


def test_after_a_failure_nothing_answers_as_if_all_were_well() -> None:
    """S-1: every call on the dead fragment fails cleanly."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive()
        rig.main.failed(ServerBusy())
        assert await rig.settle(got) == [ServerBusy]
        with pytest.raises(ServerBusy):
            await rig.main.renew([got[0].token])
        with pytest.raises(ServerBusy):
            await rig.main.peek(0, 1)
        rig.main.undeliver(got)
        await rig.advance(100)
        assert rig.budget.bytes_used == 0

    play(scenario)
