"""F10: somebody sets the machine's clock while the server runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.chaos.provision import create_queue
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class SteppedServer(RunningServer):
    """Its wall clock can be moved while it runs; its monotonic clock goes on as ever."""

    def __init__(self, folder: Path) -> None:
        self._steps = folder / "clock"
        super().__init__(
            folder,
            environment={
                "LD_PRELOAD": str(LIBRARIES[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self._steps),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            },
        )
        folder.mkdir(parents=True)
        self.step(0)

    def step(self, seconds: int) -> None:
        """So far from the true time."""
        draft = self._steps.with_suffix(".new")
        draft.write_text(f"{seconds:+d}s\n")
        draft.replace(self._steps)


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[SteppedServer]:
    if not LIBRARIES:
        pytest.skip("faketime is not installed")
    server = SteppedServer(tmp_path / "server")
    with server:
        yield server


def test_a_clock_set_back_expires_nothing_and_breaks_no_lock(stepped: SteppedServer) -> None:
    """F10: messages keep their life, locks run on monotonic time, numbers go on."""
    create_queue(stepped, "clock")
    with (
        ServiceBusClient.from_connection_string(stepped.connection_string) as client,
        client.get_queue_sender("clock") as sender,
        client.get_queue_receiver("clock") as receiver,
    ):
        hour = timedelta(hours=1)
        sender.send_messages([ServiceBusMessage(f"old {n}", time_to_live=hour) for n in range(20)])
        held = receiver.receive_messages(max_message_count=1, max_wait_time=5)[0]
        stepped.step(-3_600)
        time.sleep(1.2)  # deadlines are looked at once a second
        receiver.complete_message(held)
        sender.send_messages(ServiceBusMessage("new", time_to_live=hour))
        found = receiver.peek_messages(max_message_count=50)
    assert [str(message) for message in found] == [*(f"old {n}" for n in range(1, 20)), "new"]
    times = [message.enqueued_time_utc for message in found]
    assert times == sorted(times), "the enqueued time of a queue never goes back"


def test_a_short_step_forward_expires_only_what_is_due(stepped: SteppedServer) -> None:
    """F10: ten minutes ahead: what lives an hour is still there, what lived a minute is gone."""
    create_queue(stepped, "clock")
    with (
        ServiceBusClient.from_connection_string(stepped.connection_string) as client,
        client.get_queue_sender("clock") as sender,
        client.get_queue_receiver("clock") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("short", time_to_live=timedelta(minutes=1)))
        sender.send_messages(ServiceBusMessage("long", time_to_live=timedelta(hours=1)))
        stepped.step(600)
        time.sleep(1.2)
        found = receiver.receive_messages(max_message_count=5, max_wait_time=5)
        assert [str(message) for message in found] == ["long"]
        receiver.complete_message(found[0])
