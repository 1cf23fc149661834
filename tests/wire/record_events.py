"""Records what the Python SDK says to an event hub: `python -m tests.wire.record_events [NAME…]`. Replayed by
`test_event_transcripts`; recorded anew when an SDK changes, or when what we write shall change."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import ConnectionLostError, EventHubError

from tests.unit.gateway.amqp_peer import KEY
from tests.wire.hub_service import FOLDER, HUB, HubService, Step, save

WAIT_S = 20.0


class Recorder:
    """A socket before a `HubService`. The SDK runs in a thread of its own."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._service = HubService()
        self._writers: list[asyncio.StreamWriter] = []
        #: One for each connection.
        self._serving: list[asyncio.Task[None]] = []
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._port = 0

    async def play(self, scenario: Callable[[Recorder], None]) -> None:
        await self._service.open()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        await asyncio.to_thread(scenario, self)
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*self._serving)
        server.close()
        await self._service.close()

    async def _serve(self, incoming: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        self._writers.append(writer)
        number = len(self._writers)
        while data := await incoming.read(65_536):
            await self._do(("C", number, data))
            if self._service.is_closed(number):
                break
        writer.close()

    async def _do(self, step: Step) -> None:
        async with self._turn:
            self.steps.append(step)
            for answer in await self._service.do(step):
                self.steps.append(answer)
                self._writers[answer[1] - 1].write(answer[2])

    # -- for scenarios

    def somebody(self, kind: str, data: bytes) -> None:
        asyncio.run_coroutine_threadsafe(self._do((kind, 0, data)), self._loop).result(WAIT_S)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "conn_str": f"Endpoint=sb://127.0.0.1:{self._port};SharedAccessKeyName=RootManageSharedAccessKey;"
            f"SharedAccessKey={KEY};UseDevelopmentEmulator=true",
            "eventhub_name": HUB,
            "retry_total": 0,
        }


def produce(recorder: Recorder) -> None:
    """azure-eventhub publishes an event with a key, a batch of two for a partition, and one event without a key"""
    with EventHubProducerClient.from_connection_string(**recorder.options) as client:
        client.send_batch([EventData(b"keyed")], partition_key="a key")
        batch = client.create_batch(partition_id="1")
        batch.add(EventData(b"first"))
        second = EventData(b"second")
        second.properties = {"color": "red", "count": 7}
        batch.add(second)
        client.send_batch(batch)
        client.send_event(EventData(b"anywhere"))


def consume(recorder: Recorder) -> None:
    """azure-eventhub reads from a sequence number on, is told how far the partition is, and gets one event later"""
    for body in (b"0", b"1", b"2"):
        recorder.somebody("P", body)
    heard: list[bytes] = []
    has_all, has_both = threading.Event(), threading.Event()

    def on_event(_: object, event: EventData | None) -> None:
        assert event is not None
        heard.append(event.body_as_str().encode())
        if len(heard) == 2:
            has_both.set()
        if len(heard) == 3:
            has_all.set()

    with EventHubConsumerClient.from_connection_string(
        consumer_group="$Default", **recorder.options
    ) as client:
        receiving = threading.Thread(
            target=client.receive,
            kwargs={
                "on_event": on_event,
                "partition_id": "0",
                "starting_position": 1,
                "starting_position_inclusive": True,
                "track_last_enqueued_event_properties": True,
            },
        )
        receiving.start()
        assert has_both.wait(WAIT_S)
        recorder.somebody("P", b"later")
        assert has_all.wait(WAIT_S)
    receiving.join(WAIT_S)
    assert heard == [b"1", b"2", b"later"]


def lose_a_partition(recorder: Recorder) -> None:
    """azure-eventhub reads with an epoch, and a reader with a higher one takes the partition from it"""
    errors: list[Exception] = []
    has_event, has_error = threading.Event(), threading.Event()

    def on_error(_: object, error: Exception) -> None:
        errors.append(error)
        has_error.set()

    recorder.somebody("P", b"0")
    client = EventHubConsumerClient.from_connection_string(consumer_group="$Default", **recorder.options)
    receiving = threading.Thread(
        target=client.receive,
        kwargs={
            "on_event": lambda *_: has_event.set(),
            "on_error": on_error,
            "partition_id": "0",
            "owner_level": 3,
            "starting_position": "-1",
        },
    )
    receiving.start()
    assert has_event.wait(WAIT_S)
    recorder.somebody("E", b"\x04")
    assert has_error.wait(WAIT_S)
    client.close()
    receiving.join(WAIT_S)
    assert isinstance(errors[0], ConnectionLostError), errors


def ask(recorder: Recorder) -> None:
    """azure-eventhub asks what the hub and its partitions are like, and for one that is not there"""
    recorder.somebody("P", b"0")
    with EventHubConsumerClient.from_connection_string(
        consumer_group="$Default", **recorder.options
    ) as client:
        assert client.get_eventhub_properties()["partition_ids"] == ["0", "1"]
        assert client.get_partition_properties("0")["last_enqueued_sequence_number"] == 0
        assert client.get_partition_properties("1")["is_empty"]
        with pytest.raises(EventHubError, match="between 0 and 1"):
            client.get_partition_properties("7")


SCENARIOS: dict[str, Callable[[Recorder], None]] = {
    "python_producer": produce,
    "python_consumer": consume,
    "python_stolen_consumer": lose_a_partition,
    "python_questions": ask,
}


async def record(name: str) -> None:
    recorder = Recorder()
    await recorder.play(SCENARIOS[name])
    save(FOLDER / f"{name}.txt", (SCENARIOS[name].__doc__ or name).strip(), recorder.steps)
    sys.stdout.write(f"{name}: {len(recorder.steps)} steps\n")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or list(SCENARIOS):
        asyncio.run(record(chosen))
