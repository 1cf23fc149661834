"""The claim protocol at its seams: the driver or the bus falls over between any two of its steps.

The reader is called as Spark calls it, in this process; a crash is a reader that is not used any more. What follows
from the end of locks is played by Busway's own operations only, and by stock ones with `BUSWAY_TEST_CLAIMS=stock`.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.servicebus import claim_reader
from busway_spark.servicebus.bulk_claims import ClaimRoutes
from busway_spark.servicebus.claim import Claim
from busway_spark.servicebus.claim_reader import ClaimedNumbers, ClaimStreamReader, ReadingTarget
from busway_spark.servicebus.columns import readable_schema
from busway_spark.servicebus.options import ServiceBusOptions, read_options
from busway_spark.servicebus.stock_claims import ClaimSteps, StockClaims
from busway_spark.wire.bus import Bus, bridge, close_bridge
from tests.harness.running_server import RunningServer

QUEUE = "claims"
START: dict[str, object] = Claim(QUEUE).offset()
LIMIT = ReadMaxRows(10)
OPERATIONS = os.environ.get("BUSWAY_TEST_CLAIMS", "auto")
both_ways = pytest.mark.parametrize("operations", ["bulk", "stock"])
Offset = dict[str, object]


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[RunningServer]:
    """With a queue whose locks are short, and ten messages in it."""
    with RunningServer(tmp_path) as running:
        with ServiceBusAdministrationClient.from_connection_string(
            running.connection_string
        ) as administration:
            administration.create_queue(QUEUE, {"LockDuration": "PT5S"})
        asyncio.run(_send(running))
        yield running
        close_bridge()


async def _send(bus: RunningServer, queue: str = QUEUE, sessions: int = 0) -> None:
    async with (
        ServiceBusClient.from_connection_string(bus.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        await sender.send_messages(
            [
                ServiceBusMessage(
                    str(at).encode(), session_id=f"customer {at % sessions}" if sessions else None
                )
                for at in range(10)
            ]
        )


def _options(bus: RunningServer, operations: str = OPERATIONS, queue: str = QUEUE) -> ServiceBusOptions:
    given = {"connectionString": bus.connection_string, "queue": queue, "maxWaitSeconds": "20"}
    return read_options({**given, "columns": "sequenceNumber", "claimOperations": operations})


def _reader(
    bus: RunningServer, *, is_durable: bool = True, operations: str = OPERATIONS, queue: str = QUEUE
) -> ClaimStreamReader:
    options = _options(bus, operations, queue)
    schema: StructType = readable_schema(options)
    return ClaimStreamReader(schema, options, is_durable=is_durable)


def _rows(reader: ClaimStreamReader, start: Offset, end: Offset) -> list[int]:
    return [
        number
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for number in batch.column("sequenceNumber").to_pylist()
        if isinstance(number, int)
    ]


def _peeked(bus: RunningServer) -> dict[int | None, str]:
    client = bridge().client(_options(bus).bus)
    found = bridge().run(client.get_management(QUEUE).peek_messages(250))
    return {message.sequence_number: message.state for message in found}


def test_what_was_taken_but_never_logged_comes_again(bus: RunningServer) -> None:
    """R-19: only locks are held before Spark has logged the offset."""
    assert _reader(bus).latestOffset(START, LIMIT)["held"] == [[1, 10]]
    assert set(_peeked(bus).values()) == {"active"}
    second = _reader(bus)
    end = second.latestOffset(START, LIMIT)
    assert _rows(second, START, end) == list(range(1, 11))


@both_ways
def test_a_batch_whose_holding_was_cut_short_is_what_was_held(bus: RunningServer, operations: str) -> None:
    """The rest was never read: it comes in a later batch, and what was held does not."""
    first = _reader(bus, operations=operations)
    end = first.latestOffset(START, LIMIT)
    _hold_four(bus, first, Claim.of_offset(end, QUEUE))
    second = _reader(bus, operations=operations)
    assert _rows(second, START, end) == [1, 2, 3, 4]
    assert _rows(second, START, end) == [1, 2, 3, 4]
    later = second.latestOffset(end, LIMIT)
    assert _rows(second, end, later) == [5, 6, 7, 8, 9, 10]
    second.commit(later)
    assert _peeked(bus) == {}


def _hold_four(bus: RunningServer, reader: ClaimStreamReader, claim: Claim) -> None:
    claims = reader._claims
    if isinstance(claims, StockClaims):
        steps = ClaimSteps(bridge().client(_options(bus).bus), QUEUE, is_durable=True)
        bridge().run(steps.hold(claim, claims._taken[:4]))
    else:
        assert ClaimRoutes(Bus(bus.connection_string), QUEUE).hold(claim.stamp, [(1, 4)]) == [(1, 4, None)]


def test_a_message_that_somebody_else_deferred_meanwhile_is_left_alone(bus: RunningServer) -> None:
    """A lock that ended before the holding: whoever has the message now keeps it."""
    reader = _reader(bus)
    end = reader.latestOffset(START, LIMIT)
    bridge().run(_defer_some(bridge().client(_options(bus).bus), 3))
    assert _rows(reader, START, end) == []
    reader.commit(end)
    states = _peeked(bus)
    assert [states.pop(number) for number in (1, 2, 3)] == ["deferred"] * 3
    assert states == dict.fromkeys(range(4, 11), "active")


async def _defer_some(client: ServiceBusClient, count: int) -> None:
    async with client.get_queue_receiver(QUEUE) as receiver:
        found: list[ServiceBusReceivedMessage] = await receiver.receive_messages(count, 20)
        for message in found:
            await receiver.defer_message(message)


@both_ways
def test_settling_that_was_cut_short_is_finished_by_the_next_process(
    bus: RunningServer, operations: str
) -> None:
    """R-52: numbers that are gone already keep no other from being settled."""
    first = _reader(bus, operations=operations)
    end = first.latestOffset(START, LIMIT)
    assert len(_rows(first, START, end)) == 10
    management = bridge().client(_options(bus).bus).get_management(QUEUE)
    bridge().run(management.receive_deferred_messages([2, 3, 5], deletes=True))
    for reader in (_reader(bus, operations=operations), first):  # with and without knowing what was held
        reader.commit(end)
        assert _peeked(bus) == {}


@both_ways
def test_a_bus_that_falls_over_keeps_what_is_held(bus: RunningServer, operations: str) -> None:
    """Deferral and stamp are durable: after kill -9 the batch is read and settled as before."""
    reader = _reader(bus, operations=operations)
    end = reader.latestOffset(START, LIMIT)
    assert len(reader.partitions(START, end)) == 1
    bus.kill()
    bus.start()
    assert _rows(_reader(bus, operations=operations), START, end) == list(range(1, 11))
    assert _rows(reader, START, end) == list(range(1, 11))
    bus.kill()
    bus.start()
    reader.commit(end)
    assert _peeked(bus) == {}


@both_ways
def test_a_bus_that_forgets_the_locks_before_the_holding_empties_the_batch(
    bus: RunningServer, operations: str
) -> None:
    """R-17: what is not ours any more is not in the batch, and comes in the next one."""
    reader = _reader(bus, operations=operations)
    end = reader.latestOffset(START, LIMIT)
    bus.kill()
    bus.start()
    assert _rows(reader, START, end) == []
    later = reader.latestOffset(end, LIMIT)
    assert _rows(reader, end, later) == list(range(1, 11))


def test_locks_are_kept_while_a_batch_without_a_claim_runs(bus: RunningServer) -> None:
    """R-30: `mode=peekLock` renews; nobody else gets the messages, however long the batch takes."""
    reader = _reader(bus, is_durable=False)
    end = reader.latestOffset(START, LIMIT)
    assert _rows(reader, START, end) == list(range(1, 11))
    assert bridge().run(_received_within(bridge().client(_options(bus).bus), 6.0)) == []
    reader.commit(end)
    assert _peeked(bus) == {}


async def _received_within(client: ServiceBusClient, wait_s: float) -> list[ServiceBusReceivedMessage]:
    async with client.get_queue_receiver(QUEUE) as receiver:
        return await receiver.receive_messages(10, wait_s)


def test_a_claim_is_nobodys_to_receive_however_long_the_batch_takes(bus: RunningServer) -> None:
    """R-50: no lock has to be kept; the lock that was is long over."""
    reader = _reader(bus)
    end = reader.latestOffset(START, LIMIT)
    reader.partitions(START, end)
    assert bridge().run(_received_within(bridge().client(_options(bus).bus), 6.0)) == []
    assert _rows(reader, START, end) == list(range(1, 11))


def test_messages_that_expire_while_they_are_claimed_are_read_and_keep_no_other_from_settling(
    bus: RunningServer,
) -> None:
    """M-45: while Busway holds it its time does not count; elsewhere peeking shows it, and settling goes on."""
    reader = _reader(bus)
    first = reader.latestOffset(START, LIMIT)
    reader.partitions(START, first)
    bridge().run(_send_short_lived(bridge().client(_options(bus).bus)))
    end = reader.latestOffset(first, LIMIT)
    assert len(reader.partitions(first, end)) == 1
    bridge().run(_received_within(bridge().client(_options(bus).bus), 3.2))
    assert _rows(reader, first, end) == [11, 12, 13]
    reader.commit(end)
    assert _peeked(bus) == {}


async def _send_short_lived(client: ServiceBusClient) -> None:
    async with client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages(
            [ServiceBusMessage(b"a", time_to_live_ms=life) for life in (3000, 90_000, 3000)]
        )


def test_asking_again_before_the_batch_is_planned_takes_nothing_more(bus: RunningServer) -> None:
    reader = _reader(bus)
    end = reader.latestOffset(START, ReadMaxRows(4))
    assert reader.latestOffset(START, ReadMaxRows(4)) == end
    assert _rows(reader, START, end) == [1, 2, 3, 4]


def test_available_now_ends_with_what_was_there_at_its_start(bus: RunningServer) -> None:
    """M-38: numbers tell; what came later is nobody's the moment after, without a delivery that was none."""
    reader = _reader(bus, operations="bulk")
    reader.prepareForTriggerAvailableNow()
    asyncio.run(_send(bus))
    first = reader.latestOffset(START, ReadMaxRows(6))
    assert _rows(reader, START, first) == list(range(1, 7))
    second = reader.latestOffset(first, ReadMaxRows(6))
    assert _rows(reader, first, second) == list(range(7, 11))
    assert reader.latestOffset(second, ReadMaxRows(6)) == second
    assert reader.latestOffset(second, ReadMaxRows(6)) == second
    left = bridge().run(_received_within(bridge().client(_options(bus).bus), 20.0))
    assert [(message.sequence_number, message.delivery_count) for message in left] == [
        (number, 0) for number in range(11, 21)
    ]


def test_available_now_ends_by_the_clock_where_no_server_tells_numbers(
    bus: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M-38: a claim of messages that all came after the start is the last one."""
    reader = _reader(bus, operations="stock")
    monkeypatch.setattr(claim_reader, "_server_ms", lambda _: 1_000)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(START, ReadMaxRows(4))
    assert _rows(reader, START, end) == [1, 2, 3, 4]
    assert reader.latestOffset(end, ReadMaxRows(4)) == end


def test_the_time_of_a_server_is_what_its_door_tells(bus: RunningServer) -> None:
    """M-38: to the end of its second; without an answer this machine's, and a little more."""
    now_ms = time.time() * 1000
    assert abs(ReadingTarget.by_clock(Bus(bus.connection_string)).at_ms - now_ms) < 20_000
    gone = Bus(bus.connection_string.replace(str(bus.port), "1"))
    assert 1_000 < ReadingTarget.by_clock(gone).at_ms - now_ms < 20_000


@both_ways
def test_a_driver_that_knows_numbers_only_plans_the_same_sessions(
    bus: RunningServer, operations: str
) -> None:
    """X-13: ids of sessions are not in the offset; the bus tells them, to plan and to settle."""
    with ServiceBusAdministrationClient.from_connection_string(bus.connection_string) as administration:
        administration.create_queue("chat", {"RequiresSession": True, "LockDuration": "PT5S"})
    asyncio.run(_send(bus, "chat", sessions=3))
    before = Claim("chat").offset()
    first = _reader(bus, operations=operations, queue="chat")
    end = first.latestOffset(before, LIMIT)
    assert "customer" not in str(end)
    planned = [part.numbers for part in first.partitions(before, end) if isinstance(part, ClaimedNumbers)]
    first.stop()
    second = _reader(bus, operations=operations, queue="chat")
    again = [part.numbers for part in second.partitions(before, end) if isinstance(part, ClaimedNumbers)]
    assert again == planned == [list(range(1, 11))]
    assert {key: len(found) for key, found in (second._held or {}).items()} == {
        "customer 0": 4,
        "customer 1": 3,
        "customer 2": 3,
    }
    # As commit a3987cb wrote it, after a crash in the middle of the batch.
    runs = [[at, 1, f"customer {(at - 1) % 3}"] for at in range(1, 11)]
    old = {"entity": "chat", "claim": 1, "stamp": end["stamp"], "held": runs}
    third = _reader(bus, operations=operations, queue="chat")
    assert sorted(_rows(third, {**before, "held": []}, old)) == list(range(1, 11))
    third.stop()
    _reader(bus, operations=operations, queue="chat").commit(old if operations == "bulk" else end)
    client = bridge().client(_options(bus).bus)
    assert bridge().run(client.get_management("chat").peek_messages(250)) == []
