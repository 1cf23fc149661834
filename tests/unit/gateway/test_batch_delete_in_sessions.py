"""Batch delete with a session id: a session that somebody else holds is not touched."""

from busway.amqp.types import Int, Timestamp
from busway.client.messages import ServiceBusMessage
from busway.model.descriptions import QueueDescription
from tests.unit.gateway.node_bench import NodeBench, Taker, on_a_bench, status

SESSIONS = QueueDescription("orders", requires_session=True)


async def _filled(bench: NodeBench) -> None:
    await bench.queue(SESSIONS)
    await bench.send("orders", *[ServiceBusMessage(b"x", session_id="s") for _ in range(3)])
    bench.clock.advance(1)


async def _held(bench: NodeBench) -> Taker:
    taker = Taker(0)
    await bench.namespace.queue("orders").main.accept_session(taker, "s", 1.0)
    return taker


def _body(bench: NodeBench) -> dict[str, object]:
    now = Timestamp(bench.clock.wall_ms())
    return {"message-count": Int(100), "enqueued-time-utc": now, "session-id": "s"}


async def _left(bench: NodeBench) -> int:
    return (await bench.namespace.counts("orders")).active


def test_messages_of_a_session_that_somebody_else_holds_are_skipped() -> None:
    """R-81, X-13: the session's lock is the lock of its messages, also of those not delivered yet."""

    async def test(bench: NodeBench) -> None:
        await _filled(bench)
        taker = await _held(bench)
        assert status(await bench.ask("orders", "batch-delete-messages", _body(bench))) == 204
        assert await _left(bench) == 3
        bench.namespace.queue("orders").main.remove_receiver(taker)
        assert status(await bench.ask("orders", "batch-delete-messages", _body(bench))) == 200
        assert await _left(bench) == 0

    on_a_bench(test)


def test_whoever_holds_the_session_may_delete_from_it() -> None:
    """R-80, X-13: a receiver of the session on the connection that asks."""

    async def test(bench: NodeBench) -> None:
        await _filled(bench)
        await _held(bench)
        bench.links.sessions["mine"] = ("orders", "s")
        assert status(await bench.ask("orders", "batch-delete-messages", _body(bench), "mine")) == 200
        assert await _left(bench) == 0

    on_a_bench(test)


def test_a_session_that_changes_hands_while_its_messages_are_read_is_not_touched() -> None:
    """R-81, X-13: asked at the moment of the deletion, not before."""

    async def test(bench: NodeBench) -> None:
        await _filled(bench)
        mine = await _held(bench)
        bench.links.sessions["mine"] = ("orders", "s")
        main = bench.namespace.queue("orders").main
        store = main.store
        whole = store.session_messages

        async def changes_hands(*arguments: object) -> object:
            page = await whole(*arguments)  # type: ignore[arg-type]
            main.remove_receiver(mine)
            del bench.links.sessions["mine"]
            await _held(bench)
            return page

        store.session_messages = changes_hands  # type: ignore[method-assign, assignment]
        assert status(await bench.ask("orders", "batch-delete-messages", _body(bench), "mine")) == 204
        assert await _left(bench) == 3

    on_a_bench(test)
