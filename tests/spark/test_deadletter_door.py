"""Dead letters moved through the server's own door, without Spark: each once, whatever is lost or killed between."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from busway.amqp.encode import encode_value
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.errors import ClientError
from busway.client.messages import ServiceBusMessage
from busway_spark.pipeline.deadletters.plan import GONE, LOCKED, PLANNED, REFUSED, RESUBMITTED, Plan
from busway_spark.pipeline.deadletters.tasks import (
    LettersClient,
    LettersOutcome,
    packed,
    parcels_left,
    unpacked,
)
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.deadletter_rig import bury, dead_letters_of, peek_all
from tests.spark.scripted_door import HANG_UP, answer, scripted

_ARRIVAL_S_MAX = 60.0
NOTHING: dict[str, list[object]] = {"gone": [], "locked": [], "refused": [], "later": [], "unknown": []}


def said(**more: object) -> bytes:
    return answer(body=json.dumps({**NOTHING, **more}).encode())


def plain(*numbers: int) -> bytes:
    return packed((number, b"") for number in numbers)


@pytest.mark.parametrize(
    ("answers", "is_first", "told"),
    [
        ([said(gone=[2])], True, {GONE: [2]}),
        ([said(gone=[2])], False, {}),
        ([HANG_UP, said(gone=[1, 2])], True, {}),
        ([said(later=[2, 3]), said(gone=[3])], True, {GONE: [3]}),
        ([said(later=[2, 3]), HANG_UP, said(gone=[3])], True, {}),
        ([said(unknown=[2, 3]), said(gone=[3])], True, {}),
        ([said(unknown=[2], later=[3]), said(gone=[2, 3])], True, {GONE: [3]}),
        ([said(locked=[1], refused=[[3, "no"]])], True, {LOCKED: [1], REFUSED: [3]}),
    ],
)
def test_what_is_gone_was_moved_if_somebody_had_tried_before(
    answers: list[bytes], is_first: bool, told: dict[str, list[int]]
) -> None:
    """Dead letters: a lost answer, a task that Spark repeats, a store that failed; and what others took. What is not
    told was moved."""
    with scripted(*answers) as door:
        found = LettersClient(door.bus, "q", "q", 20.0).move(plain(1, 2, 3), is_first=is_first)
    assert counted(found) == told


def counted(told: list[LettersOutcome]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in told:
        found.setdefault(each.outcome, []).extend(each.numbers)
    return {outcome: sorted(numbers) for outcome, numbers in found.items()}


def test_a_plan_is_cut_into_parcels_that_one_request_can_move(tmp_path: Path) -> None:
    """Dead letters: by their number and by the bytes of their changes, ascending, none twice."""
    with Plan(tmp_path / "plan") as plan:
        plan.add((0, number, False, {}) for number in range(1, 1_201))
        plan.add((1, number, False, {"body": bytes(900_000)}) for number in range(1, 8))
        plan.mark(0, range(1, 101), RESUBMITTED)
        small = list(parcels_left(plan, 0))
        assert [(each.first, each.last) for each in small] == [(101, 1_100), (1_101, 1_200)]
        assert [number for each in small for number, _ in unpacked(each.letters)] == list(range(101, 1_201))
        large = list(parcels_left(plan, 1))
        assert [(each.first, each.last) for each in large] == [(1, 4), (5, 7)]
        assert [len(changes) > 900_000 for each in large for _, changes in unpacked(each.letters)] == [
            True
        ] * 7


def test_all_that_is_left_of_a_parcel_is_marked_but_what_stays(tmp_path: Path) -> None:
    """Dead letters: not what was done before, not what is told apart, not what lies before or behind the parcel."""
    with Plan(tmp_path / "plan") as plan:
        plan.add_plain((source, number, False) for source in (0, 1) for number in range(1, 21))
        plan.mark(0, [4], GONE)
        assert plan.mark_between(0, 3, 10, RESUBMITTED, {3, 6, 7, 10}) == 3
        assert plan.counts() == {RESUBMITTED: 3, GONE: 1, PLANNED: 36}
        assert [plan.outcome_of(0, number) for number in (5, 8, 9)] == [(RESUBMITTED, None)] * 3
        assert plan.mark_between(0, 1, 20, RESUBMITTED) == 16
        assert [number for number, _ in plan.letters_left(1)] == list(range(1, 21))


def test_a_server_without_the_door_is_told_from_one_that_has_it(server: RunningServer) -> None:
    """Dead letters: an older Busway is moved by the driver, as before."""
    with scripted(answer(404, b"<Error><Detail>no</Detail></Error>")) as old:
        assert not LettersClient(old.bus, "q", "q", 5.0).is_there()
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        admin.create_queue("with-a-door")
    assert LettersClient(Bus(server.connection_string), "with-a-door", "with-a-door").is_there()


@pytest.mark.fault
def test_a_bus_that_is_killed_on_the_way_has_each_letter_in_one_place(tmp_path: Path) -> None:
    """Dead letters: kill -9 while two movers, who name the same letters, are at it; then once more."""
    count = 400
    with RunningServer(tmp_path / "bus") as server:
        with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
            for name in ("source", "target"):
                admin.create_queue(name)
        bus = Bus(server.connection_string)
        numbers = asyncio.run(_bury(bus, "source", count))
        changes = encode_value({"properties.again": 1})

        def move() -> None:
            door = LettersClient(bus, "source", "target", 1.0)
            for at in range(0, count, 20):
                try:
                    door.move(packed((number, changes) for number in numbers[at : at + 20]), is_first=False)
                except ClientError:
                    return

        movers = [threading.Thread(target=move) for _ in range(2)]
        for mover in movers:
            mover.start()
        movers[0].join(0.15)
        server.kill()
        for mover in movers:
            mover.join()
        server.start()
        bus = Bus(server.connection_string)
        dead, moved = asyncio.run(_both(bus, count))
        assert Counter(dead + moved).most_common(1)[0][1] == 1
        assert len(dead + moved) == count
        LettersClient(bus, "source", "target").move(plain(*numbers), is_first=False)
        dead, moved = asyncio.run(_both(bus, count))
        assert (dead, sorted(moved)) == ([], [str(at) for at in sorted(range(count), key=str)])


async def _bury(bus: Bus, queue: str, count: int) -> list[int]:
    async with bus.client() as client:
        await bury(client, queue, [ServiceBusMessage(str(at).encode()) for at in range(count)])
        return [each.sequence_number or 0 for each in await peek_all(client, dead_letters_of(queue))]


async def _both(bus: Bus, count: int) -> tuple[list[str], list[str]]:
    """Once what is on its way to the other queue has arrived: all are there, or will never be."""
    deadline = time.monotonic() + _ARRIVAL_S_MAX
    async with bus.client() as client:
        while True:
            dead = await peek_all(client, dead_letters_of("source"))
            moved = await peek_all(client, "target")
            await asyncio.sleep(0.3)
            is_still = len(await peek_all(client, "target")) == len(moved)
            if is_still and (len(dead) + len(moved) >= count or time.monotonic() > deadline):
                return [each.body.decode() for each in dead], [each.body.decode() for each in moved]
