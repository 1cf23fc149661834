"""kill -9, SIGTERM and SIGSTOP while clients are at work."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.chaos.kill import kill_under_load
from tests.chaos.mixed_load import MixedLoad
from tests.chaos.provision import create_queue
from tests.chaos.stalls import settle_after_a_stop
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]


def test_a_killed_server_has_everything_it_acknowledged(tmp_path: Path) -> None:
    """F1: a plain queue, one with sessions and one that detects duplicates, recounted after kill -9 under load."""
    result = kill_under_load(tmp_path / "server", rounds=1, seed=3)
    assert result.violations == {}
    assert result.rounds == 1
    assert result.sent >= 60


def test_sigterm_under_load_is_a_clean_stop(server: RunningServer) -> None:
    """F1: status 0 within ten seconds, and what was acknowledged is there at the next start."""

    async def play() -> None:
        load = MixedLoad(server, "term")
        load.create_queues()
        load.start()
        assert await load.wait_for_work(40)
        load.note_restart()
        began = time.monotonic()
        assert await asyncio.to_thread(server.stop) == 0
        assert time.monotonic() - began < 10
        await asyncio.to_thread(server.start)
        assert await load.wait_for_work(40), "the clients did not find the new server"
        await load.stop()
        verdict = await load.verdict()
        assert dict(verdict.violations) == {}

    asyncio.run(play())


def test_clients_that_were_open_before_a_restart_go_on_after_it(server: RunningServer) -> None:
    """F1: the SDK's own retries find the restarted server; nobody has to make a new client."""
    create_queue(server, "again")
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_backoff_factor=0.1) as client,
        client.get_queue_sender("again") as sender,
        client.get_queue_receiver("again") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        receiver.complete_message(receiver.receive_messages(max_wait_time=5)[0])
        assert server.stop() == 0
        server.start()
        sender.send_messages(ServiceBusMessage("after"))
        found = receiver.receive_messages(max_wait_time=10)
        assert [str(message) for message in found] == ["after"]
        receiver.complete_message(found[0])


def test_a_lock_that_ended_while_the_server_stood_still_is_not_settled(server: RunningServer) -> None:
    """F7: R-17: the settlement was sent in time but is read too late: the message comes back, counted."""
    assert asyncio.run(settle_after_a_stop(server)) is None
