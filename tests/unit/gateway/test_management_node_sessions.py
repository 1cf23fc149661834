"""The management node: message sessions."""

from dataclasses import replace

import pytest

from busway.amqp.sections import decode_message, encode_message
from busway.amqp.types import Array, Int, Long, Timestamp
from busway.broker.fragment.fragment import Fragment
from busway.client.messages import ServiceBusMessage
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.node_bench import (
    NodeBench,
    Taker,
    condition,
    on_a_bench,
    sentence,
    status,
    uuid_of,
)

HELLO = ServiceBusMessage(b"hello")
WITH_SESSIONS = QueueDescription("orders", requires_session=True)
ANY_DATE = Timestamp(253_402_300_800_000)


async def accept(bench: NodeBench, session_id: str, count: int = 0) -> Taker:
    """A link of this connection holds the session."""
    taker = Taker(count)
    outlet: Fragment = bench.namespace.queue("orders").outlet(False)
    await outlet.accept_session(taker, session_id, 1.0)
    outlet.wake(taker)
    await taker.filled()
    bench.links.sessions["link-" + session_id] = ("orders", session_id)
    return taker


def test_a_renewed_session_lock_lasts_a_whole_duration_again() -> None:
    """X-9: the answer's expiration is a timestamp."""

    async def test(bench: NodeBench) -> None:
        await bench.queue(WITH_SESSIONS)
        await accept(bench, "s")
        bench.clock.advance(30)
        answer = await bench.ask("orders", "renew-session-lock", {"session-id": "s"}, "link-s")
        expiration = decode_message(encode_message(answer)).body["expiration"]
        assert (type(expiration), expiration) == (Timestamp, bench.clock.wall_ms() + 60_000)

    on_a_bench(test)


def test_session_state_is_bytes_or_null_and_null_clears_it() -> None:
    """X-15: the key is present also when there is no state."""

    async def test(bench: NodeBench) -> None:
        await bench.queue(WITH_SESSIONS)
        await accept(bench, "s")
        empty = await bench.ask("orders", "get-session-state", {"session-id": "s"})
        assert (status(empty), empty.body) == (200, {"session-state": None})
        body = {"session-id": "s", "session-state": b"\x00state"}
        assert status(await bench.ask("orders", "set-session-state", body)) == 200
        full = await bench.ask("orders", "get-session-state", {"session-id": "s"})
        assert full.body == {"session-state": b"\x00state"}
        cleared = {"session-id": "s", "session-state": None}
        assert status(await bench.ask("orders", "set-session-state", cleared)) == 200
        assert (await bench.ask("orders", "get-session-state", {"session-id": "s"})).body[
            "session-state"
        ] is None

    on_a_bench(test)


@pytest.mark.parametrize("operation", ["renew-session-lock", "get-session-state", "set-session-state"])
def test_only_the_holder_reaches_into_a_session(operation: str) -> None:
    """X-15, X-4, ERR-12: 410 com.microsoft:session-lock-lost for everybody else."""

    async def test(bench: NodeBench) -> None:
        await bench.queue(WITH_SESSIONS)
        await accept(bench, "s")
        bench.links.sessions.clear()  # another connection asks
        answer = await bench.ask("orders", operation, {"session-id": "s", "session-state": b"x"})
        assert (status(answer), condition(answer)) == (410, "com.microsoft:session-lock-lost")

    on_a_bench(test)


@pytest.mark.parametrize("operation", ["renew-session-lock", "get-session-state", "set-session-state"])
def test_a_queue_without_sessions_has_none_to_reach_into(operation: str) -> None:
    """ERR-6, X-2: amqp:not-allowed."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        answer = await bench.ask("orders", operation, {"session-id": "s"})
        assert (status(answer), condition(answer)) == (400, "amqp:not-allowed")

    on_a_bench(test)


def test_sessions_are_listed_by_messages_or_state() -> None:
    """X-17, ERR-15: any date from the year 9999 on lists all; a real date lists changed states; none is 204."""

    async def test(bench: NodeBench) -> None:
        await bench.queue(WITH_SESSIONS)
        everything = {"last-updated-time": ANY_DATE, "skip": Int(0), "top": Int(10)}
        none = await bench.ask("orders", "get-message-sessions", everything)
        assert (status(none), condition(none)) == (204, "com.microsoft:session-not-found")
        await bench.send("orders", replace(HELLO, session_id="a"), replace(HELLO, session_id="b"))
        await accept(bench, "c")
        await bench.ask("orders", "set-session-state", {"session-id": "c", "session-state": b"x"})
        answer = decode_message(encode_message(await bench.ask("orders", "get-message-sessions", everything)))
        assert sorted(answer.body["sessions-ids"].items) == ["a", "b", "c"]
        assert (type(answer.body["skip"]), answer.body["skip"]) == (Int, 3)
        page = await bench.ask("orders", "get-message-sessions", {**everything, "skip": Int(2)})
        assert len(page.body["sessions-ids"].items) == 1
        recent = {**everything, "last-updated-time": Timestamp(bench.clock.wall_ms() - 1)}
        assert (await bench.ask("orders", "get-message-sessions", recent)).body["sessions-ids"].items == ["c"]

    on_a_bench(test)


def test_locks_of_single_messages_are_the_sessions() -> None:
    """R-31: renew the session, not a message; amqp:not-allowed."""

    async def test(bench: NodeBench) -> None:
        await bench.queue(WITH_SESSIONS)
        await bench.send("orders", replace(HELLO, session_id="s"))
        taker = await accept(bench, "s", 1)
        body = {"lock-tokens": Array([uuid_of(taker.taken[0])], 0x98)}
        answer = await bench.ask("orders", "renew-lock", body)
        assert (status(answer), condition(answer)) == (400, "amqp:not-allowed")

    on_a_bench(test)


def test_deferred_messages_of_a_session_need_its_lock() -> None:
    """R-54, X-14: with the session id in the request, or the one of the link it names."""

    async def test(bench: NodeBench) -> None:
        await bench.queue(WITH_SESSIONS)
        await bench.send("orders", replace(HELLO, session_id="s"))
        taker = await accept(bench, "s", 1)
        deferral = {
            "disposition-status": "defered",
            "lock-tokens": Array([uuid_of(taker.taken[0])], 0x98),
            "session-id": "s",
        }
        assert status(await bench.ask("orders", "update-disposition", deferral)) == 200
        fetch: dict[str, object] = {"sequence-numbers": Array([Long(1)], 0x81)}
        nameless = await bench.ask("orders", "receive-by-sequence-number", fetch)
        assert (status(nameless), condition(nameless)) == (400, "amqp:not-allowed")
        assert "'session-id'" in sentence(nameless)
        foreign = await bench.ask("orders", "receive-by-sequence-number", {**fetch, "session-id": "t"})
        assert condition(foreign) == "com.microsoft:session-lock-lost"
        fetched = await bench.ask("orders", "receive-by-sequence-number", fetch, "link-s")
        assert status(fetched) == 200
        assert len(fetched.body["messages"]) == 1

    on_a_bench(test)
