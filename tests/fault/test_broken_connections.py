"""Connections that break in the middle of a frame, or carry one byte at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from tests.chaos.cuts import cut_connections
from tests.chaos.provision import create_queue
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]


def test_connections_cut_in_the_middle_of_frames_lose_nothing(tmp_path: Path) -> None:
    """F9: R-19: five cuts under load; every acknowledged message is there, none that was completed comes back."""
    result = cut_connections(tmp_path / "server", rounds=5, seed=11)
    assert result.violations == {}
    assert result.rounds >= 5
    assert result.sent > 0


def test_a_stream_of_single_bytes_is_still_amqp(server: RunningServer) -> None:
    """F9: frames may arrive in any pieces."""
    create_queue(server, "slices")

    async def play() -> list[str]:
        async with CuttingProxy(server.port, seed=5, slice_bytes_max=1) as proxy:
            through = server.connection_string.replace(f":{server.port};", f":{proxy.port};")
            async with ServiceBusClient.from_connection_string(through, retry_total=0) as client:
                async with client.get_queue_sender("slices") as sender:
                    await sender.send_messages([ServiceBusMessage(f"body {n}" * 20) for n in range(10)])
                async with client.get_queue_receiver("slices") as receiver:
                    found: list[str] = []
                    while len(found) < 10:
                        batch = await receiver.receive_messages(max_message_count=10, max_wait_time=5)
                        assert batch, f"only {len(found)} came"
                        for message in batch:
                            await receiver.complete_message(message)
                        found += [str(message) for message in batch]
                    return found

    assert asyncio.run(play()) == [f"body {n}" * 20 for n in range(10)]
