"""How chaos runs empty a queue in the end: what is stored is found, however late it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from tests.chaos.draining import drain
from tests.chaos.history import History
from tests.chaos.provision import create_queue
from tests.harness.cutting_proxy import LateProxy
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]

_BODIES = [f"late body {number}" for number in range(20)]


@pytest.mark.parametrize("sessions", [(), ("one",)], ids=["plain", "session"])
def test_a_look_that_ends_with_messages_on_their_way_has_lost_none(
    server: RunningServer, sessions: Sequence[str]
) -> None:
    """A run's end: the first deliveries arrive when their receiver has gone; the history has all messages."""
    create_queue(server, "orders", requires_session=bool(sessions))

    async def play() -> tuple[int, History]:
        history = History()
        async with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            await sender.send_messages(
                [ServiceBusMessage(body, session_id="one" if sessions else None) for body in _BODIES]
            )
        async with LateProxy(server.port, _BODIES[0].encode()) as proxy:
            through = server.connection_string.replace(f":{server.port};", f":{proxy.port};")
            server.ready["connection_string"] = through
            drained = await drain(server, "orders", history, sessions=sessions)
            assert proxy.was_late
        return drained, history

    drained, history = asyncio.run(play())
    assert sorted({operation.value for operation in history.of("drain")}) == sorted(_BODIES)
    assert drained == len(_BODIES)
