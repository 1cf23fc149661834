"""Admission of bulk work: memory, turns and work are given out caller by caller, and to nobody who has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from busway.gateway.connection_budget import ConnectionBudget
from busway.gateway.http.bulk import admission as bulk_admission
from busway.gateway.http.bulk import admission as bulk_work
from busway.gateway.http.bulk import answer as bulk_answer
from busway.gateway.http.bulk.admission import CORES, SLICE_BYTES, WORKING_MAX, BulkAdmission, BulkPlace
from busway.gateway.http.bulk.answer import BulkAnswer, slices
from busway.gateway.http.bulk.bulk_route import _looked_at
from busway.gateway.http.presence import ClientPresence
from busway.model.errors import OperationCancelled, ServerBusy

MIB = 1 << 20


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def settled() -> None:
    """Everything that can happen has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


def entered(admission: BulkAdmission, caller: str = "a", presence: ClientPresence | None = None) -> BulkPlace:
    return admission.enter(caller, presence or ClientPresence())


# -- memory


def test_all_together_hold_no_more_than_the_budget() -> None:
    """Admission: whoever comes then waits until somebody gives back; the server's budget knows of it."""

    async def work() -> None:
        budget = ConnectionBudget()
        admission = BulkAdmission(4 * MIB, budget)
        places = [entered(admission, f"caller {n}") for n in range(5)]
        held = [asyncio.create_task(place.hold(MIB)) for place in places]
        await settled()
        assert [task.done() for task in held] == [True] * 4 + [False]
        assert (admission.held_bytes, budget.held_bytes, admission.is_short) == (4 * MIB, 4 * MIB, True)
        places[0].holds(MIB // 2)
        await settled()
        assert not held[4].done()
        places[0].holds(0)
        await held[4]
        assert admission.held_bytes == 4 * MIB
        for place in places:
            place.close()
            place.close()
        assert (admission.held_bytes, budget.held_bytes, admission.requests) == (0, 0, 0)

    run(work)


def test_a_caller_with_many_connections_leaves_room_for_a_newcomer() -> None:
    """Admission: its share is that of one caller more than there are."""

    async def work() -> None:
        admission = BulkAdmission(8 * MIB)
        crowd = [asyncio.create_task(entered(admission, "crowd").hold(MIB)) for _ in range(64)]
        await settled()
        assert sum(task.done() for task in crowd) == 4
        newcomer = entered(admission, "newcomer")
        await asyncio.wait_for(newcomer.hold(4 * MIB), 1)
        for task in crowd:
            task.cancel()

    run(work)


def test_callers_take_turns_and_each_of_them_in_order_of_arrival() -> None:
    """Admission: sixty requests of one do not stand before the first one of another."""

    async def work() -> None:
        admission = BulkAdmission(MIB)
        first = entered(admission, "first")
        await first.hold(MIB)
        order: list[str] = []

        async def one(caller: str, number: int) -> None:
            with entered(admission, caller) as place:
                await place.hold(MIB)
                order.append(f"{caller}{number}")

        waiting = [asyncio.create_task(one("a", n)) for n in range(3)]
        await settled()
        waiting += [asyncio.create_task(one("b", n)) for n in range(2)]
        await settled()
        first.close()
        await asyncio.gather(*waiting)
        assert order == ["a0", "b0", "a1", "b1", "a2"]

    run(work)


def test_a_large_request_is_not_overtaken_for_ever_and_one_that_is_too_large_gets_all() -> None:
    """Admission: whoever is first is served first, also when smaller ones would fit."""

    async def work() -> None:
        admission = BulkAdmission(4 * MIB)
        small, large, later = (entered(admission, name) for name in ("small", "large", "later"))
        await small.hold(MIB)
        asked = asyncio.create_task(large.hold(100 * MIB))
        behind = asyncio.create_task(later.hold(1))
        await settled()
        assert not asked.done()
        assert not behind.done()
        small.close()
        await asked
        assert admission.held_bytes == 4 * MIB
        large.close()
        await behind

    run(work)


def test_nobody_waits_while_he_holds() -> None:
    """Admission: else two that hold could wait for each other for ever; more is given only where nobody waits."""

    async def work() -> None:
        admission = BulkAdmission(4 * MIB)
        place, other = entered(admission), entered(admission, "b")
        await place.hold(MIB)
        with pytest.raises(AssertionError):
            await place.hold(1)
        assert place.extend(MIB)
        assert not place.extend(1)  # its share
        await other.hold(MIB)
        waiting = asyncio.create_task(entered(admission, "c").hold(2 * MIB))
        await settled()
        assert not other.extend(1)  # somebody waits
        place.holds(1)
        await asyncio.wait_for(waiting, 1)

    run(work)


def test_more_requests_than_may_be_inside_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admission: the queue is bounded."""
    monkeypatch.setattr(bulk_admission, "REQUESTS_MAX", 2)

    async def work() -> None:
        admission = BulkAdmission()
        first = entered(admission)
        entered(admission)
        with pytest.raises(ServerBusy, match="2 requests move data in bulk"):
            entered(admission)
        first.close()
        entered(admission)

    run(work)


# -- turns and work


def test_each_turn_of_the_loop_has_one_piece_of_bulk_work() -> None:
    """Admission: by counted turns; whoever does something else is served in each of them."""

    async def work() -> None:
        admission = BulkAdmission()
        loop = asyncio.get_running_loop()
        turn = 0
        at: list[int] = []

        def next_turn() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(next_turn)

        async def pieces(caller: str) -> None:
            with entered(admission, caller) as place:
                for _ in range(10):
                    await place.turn()
                    at.append(turn)

        next_turn()
        await asyncio.gather(*(pieces(f"caller {n % 3}") for n in range(30)))
        assert len(at) == 300
        assert len(set(at)) == 300
        assert turn < 330

    run(work)


def test_chunks_whose_events_are_looked_at_have_a_turn_each_and_are_let_go_of() -> None:
    """B11: answers without bodies cost the loop a chunk at a time, and no chunk is there twice."""

    async def work() -> None:
        admission = BulkAdmission()
        chunks = [b"a" * 10, b"b" * 10, b"c" * 10]
        seen: list[tuple[bytes, list[int]]] = []

        def encode(data: bytes) -> tuple[bytes, ...]:
            seen.append((data[:1], [len(chunk) for chunk in chunks]))
            return (data[:1],)

        coming = asyncio.ensure_future(_looked_at(chunks, encode, entered(admission)))
        counts = []
        while not coming.done():
            await asyncio.sleep(0)
            counts.append(len(seen))
        assert await coming == [b"a", b"b", b"c"]
        assert seen == [(b"a", [10, 10, 10]), (b"b", [0, 10, 10]), (b"c", [0, 0, 10])]
        assert {after - before for before, after in pairwise([0, *counts])} == {0, 1}

    run(work)


def test_no_more_work_at_once_than_there_are_cores_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admission: threads that read and write take cores from everybody else."""
    monkeypatch.setattr(bulk_work, "SLOW_S", 3_600)

    async def work() -> None:
        admission, end, working = BulkAdmission(), asyncio.Event(), set[int]()

        async def read(number: int) -> None:
            with entered(admission) as place:
                async with place.working(f"store {number % 3}"):
                    working.add(number)
                    await end.wait()

        tasks = [asyncio.create_task(read(number)) for number in range(9)]
        await settled()
        assert len(working) == CORES
        end.set()
        await asyncio.gather(*tasks)
        assert len(working) == 9

    run(work)


def test_a_slow_store_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admission: what waits for a dead disk takes no core, and waits there."""
    monkeypatch.setattr(bulk_work, "SLOW_S", 0.01)

    async def work() -> None:
        admission = BulkAdmission()
        end, others, began = asyncio.Event(), asyncio.Event(), list[str]()

        async def read(store: str) -> None:
            with entered(admission) as place:
                async with place.working(store):
                    began.append(store)
                    if "quick" in began and len(began) > WORKING_MAX:
                        others.set()
                    await end.wait()

        tasks = [asyncio.create_task(read("slow")) for _ in range(20)]
        tasks.append(asyncio.create_task(read("quick")))
        async with asyncio.timeout(5):
            await others.wait()
        assert (began.count("slow"), began.count("quick")) == (WORKING_MAX, 1)
        end.set()
        await asyncio.gather(*tasks)
        assert (len(began), admission._works._places, admission._works._counted) == (21, {}, set())

    run(work)


def test_stores_work_in_turn_however_many_wait_at_one() -> None:
    """Admission: sixty readers of one store leave the others their share of the cores."""

    async def work() -> None:
        admission, order = BulkAdmission(), list[str]()

        async def read(store: str) -> None:
            with entered(admission) as place:
                async with place.working(store):
                    order.append(store)
                    await asyncio.sleep(0)

        await asyncio.gather(*[read("many") for _ in range(60)], *[read("few") for _ in range(3)])
        assert order.index("few") <= CORES + 1
        assert len(order) - order[::-1].index("few") <= 3 * (CORES + 1) + 1

    run(work)


# -- leaving


@pytest.mark.parametrize("what", ["memory", "turn", "work"])
@pytest.mark.parametrize("how", ["hangs up", "is cancelled", "is cancelled when it is its turn"])
def test_whoever_goes_leaves_the_line_and_nothing_behind(what: str, how: str) -> None:
    """Admission: at once, also in the very moment in which it was given what it waited for."""

    async def work() -> None:
        admission = BulkAdmission(MIB)
        presence = ClientPresence()
        first, place, last = entered(admission), entered(admission, "b", presence), entered(admission, "c")
        release = await _occupied(admission, first, what)
        task = asyncio.create_task(_wanted(place, what))
        await settled() if what != "turn" else await asyncio.sleep(0)
        if how == "hangs up":
            presence.lost()
        elif how == "is cancelled":
            task.cancel()
        else:
            release()
            task.cancel()
        with pytest.raises((OperationCancelled, asyncio.CancelledError)):
            await task
        if how != "is cancelled when it is its turn":
            release()
        await asyncio.wait_for(_wanted(last, what), 1)
        for each in (first, place, last):
            each.close()
        assert (admission.held_bytes, admission._works._places, admission.is_short) == (0, {}, False)
        await settled()
        assert not admission._is_turning

    run(work)


async def _wanted(place: BulkPlace, what: str) -> None:
    if what == "memory":
        await place.hold(MIB)
    elif what == "turn":
        await place.turn()
    else:
        async with place.working("store"):
            pass


async def _occupied(admission: BulkAdmission, place: BulkPlace, what: str) -> Callable[[], None]:
    """Somebody else has it; the answer gives it back."""
    if what == "memory":
        await place.hold(MIB)
        return place.close
    if what == "turn":
        return lambda: None
    end = asyncio.Event()

    async def working() -> None:
        async with entered(admission).working("store"):
            await end.wait()

    tasks = [asyncio.create_task(working()) for _ in range(WORKING_MAX)]
    await settled()
    assert not any(task.done() for task in tasks)

    def release() -> None:
        end.set()

    return release


def test_whoever_has_gone_is_not_let_in_a_line_but_may_finish() -> None:
    """Admission: what was begun, such as holding a claim, goes on at its pace."""

    async def work() -> None:
        presence = ClientPresence()
        place = entered(BulkAdmission(), "a", presence)
        presence.lost()
        with pytest.raises(OperationCancelled):
            await place.turn()
        await place.pace()

    run(work)


# -- answers


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_slices_are_the_same_bytes(size: int) -> None:
    """Admission: whatever the pieces are, no slice is larger."""
    page = [b"", b"ab", b"cdefghijkl", b"m", b"", b"nopqrstuvwxyz"]
    found = list(slices(page, size))
    assert b"".join(found) == b"".join(page)
    assert all(0 < len(each) <= size for each in found)
    assert len(found) == -(-26 // size)


class Client:
    """Takes an answer as uvicorn hands it on."""

    def __init__(self) -> None:
        self.body = b""
        self.largest = 0
        self.presence = ClientPresence(room=self._room, abort=self._abort)
        self.is_slow = False
        self.was_aborted = False
        self._has_room = asyncio.Event()

    async def send(self, message: Any) -> None:
        data = message.get("body", b"")
        self.body += data
        self.largest = max(self.largest, len(data))

    def _room(self) -> Awaitable[None] | None:
        return self._waited() if self.is_slow else None

    async def _waited(self) -> None:
        await self._has_room.wait()

    def _abort(self) -> None:
        self.was_aborted = True
        self.presence.lost()
        self._has_room.set()

    async def take(self, answer: BulkAnswer) -> None:
        async def receive() -> Any:
            await asyncio.Event().wait()

        await answer({"type": "http", "method": "GET"}, receive, self.send)


async def _pages(*pages: list[bytes]) -> AsyncGenerator[list[bytes], None]:
    for page in pages:
        yield page


def test_an_answer_is_written_in_slices_and_gives_its_place_back() -> None:
    """Admission: also when a page breaks off, which the client notices."""

    async def work() -> None:
        admission, client = BulkAdmission(), Client()
        page = [b"x" * (SLICE_BYTES + 5), b"y"]
        place = entered(admission, "a", client.presence)
        await client.take(BulkAnswer(place, _pages(page, page), "application/x"))
        assert client.body == b"".join(page) * 2
        assert (client.largest, admission.requests) == (SLICE_BYTES, 0)

        async def broken() -> AsyncGenerator[list[bytes], None]:
            yield [b"z"]
            raise ServerBusy("The store is away.")

        with pytest.raises(ServerBusy):
            await client.take(BulkAnswer(entered(admission), broken(), "application/x"))
        assert admission.requests == 0

    run(work)


def test_a_client_that_hangs_up_ends_its_answer() -> None:
    """Admission: nothing more is read for it."""

    async def work() -> None:
        admission, client, read = BulkAdmission(), Client(), list[int]()

        async def pages() -> AsyncGenerator[list[bytes], None]:
            for number in range(100):
                read.append(number)
                if number == 3:
                    client.presence.lost()
                yield [b"x"]

        await client.take(BulkAnswer(entered(admission, "a", client.presence), pages(), "application/x"))
        assert (read, admission.requests) == ([0, 1, 2, 3], 0)

    run(work)


def test_a_client_that_takes_nothing_is_hung_up_on_only_when_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: slow readers hold the memory of all, each for ten seconds at most."""
    monkeypatch.setattr(bulk_answer, "STALLED_S", 0.01)

    async def work() -> None:
        admission, client = BulkAdmission(MIB), Client()
        client.is_slow = True
        place = entered(admission, "slow", client.presence)
        await place.hold(MIB)
        answer = asyncio.create_task(client.take(BulkAnswer(place, _pages([b"x"]), "application/x")))
        await asyncio.sleep(0.05)
        assert not answer.done()
        await asyncio.wait_for(entered(admission, "other").hold(MIB), 5)
        await answer
        assert (client.was_aborted, client.body) == (True, b"")

    run(work)
