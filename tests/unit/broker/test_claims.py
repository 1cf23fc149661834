"""Claims: many messages taken, held and settled together, on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from busway.broker.bulk import claims as claims_module
from busway.broker.bulk.claims import Claims, OpenClaim
from busway.broker.entity.entity import Queue
from busway.broker.fragment.locks import Delivery
from busway.broker.fragment.outlet import Outlet
from busway.broker.fragment.property_changes import CLAIM_PROPERTY, read_changes, stamp_of
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, Message
from busway.model.errors import (
    EntityDisabled,
    MessageLockLost,
    MessageNotFound,
    ServerBusy,
    SessionCannotBeLocked,
)
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from busway.store.sqlite.store import SqliteStore
from tests.harness.scene import play as play_scene
from tests.harness.skipping_loop import SkippingLoop
from tests.unit.broker.namespace_bench import NamespaceBench, settle
from tests.unit.broker.rig import Answer, Recorder

QUEUE = "orders"
STAMP = "claim-1"
Scenario = Callable[["ClaimBench"], Awaitable[None]]


class ClaimBench(NamespaceBench):
    """One queue, and its claims; a restart forgets what only memory knew. Inside `play` only: no time passes by
    itself, neither the clock's nor the loop's."""

    def __init__(self, kind: str, folder: Path, store_count: int) -> None:
        super().__init__(store_count, Limits(partition_count=4))
        if kind == "sqlite":
            self.files = [
                SqliteStore(f"store-{at}", folder / f"store-{at}.db", self.clock, read_threads=1)
                for at in range(store_count)
            ]
            self.stores: Any = self.files
            self.namespace = self.new_namespace()
        self.claims = Claims(self.clock)

    @property
    def queue(self) -> Queue:
        return self.namespace.queue(QUEUE)

    def outlet(self, dead_letter: bool = False) -> Outlet:
        return self.queue.outlet(dead_letter)

    async def put(self, *messages: Message) -> list[int]:
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.queue.send(list(messages), answer.set_result)
        assert await answer == []
        return [message.sequence_number for message in messages]

    async def put_texts(self, count: int, **fields: Any) -> list[int]:
        return await self.put(*[text(f"{at}", **fields) for at in range(count)])

    async def take(self, count: int = 100, stamp: str = STAMP, **where: bool) -> OpenClaim:
        return await self.patiently(self.claims.take(self.queue, self.outlet(**where), stamp, count, 0.0))

    async def patiently(self, work: Awaitable[OpenClaim]) -> OpenClaim:
        """Time passes while it waits for more messages, or for the next session."""
        task = asyncio.ensure_future(work)
        while True:
            await self.calm()
            if task.done():
                return await task
            self.pass_moment()

    def pass_moment(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        loop.skip(0.01)
        if self.outlet().requires_session:
            self.clock.advance(0.01)
            self.namespace.tick()

    async def hold(self, numbers: list[int], stamp: str = STAMP, **where: bool) -> list[int]:
        return await self.claims.hold(self.outlet(**where), stamp, numbers)

    async def held(self, count: int = 100, stamp: str = STAMP) -> list[int]:
        """Takes and holds."""
        return await self.hold(numbers_of(await self.take(count, stamp)), stamp)

    async def read(self, numbers: list[int], stamp: str = STAMP) -> list[Message]:
        return [m async for page in self.claims.read(self.outlet(), stamp, numbers) for m in page]

    async def settle(self, numbers: list[int], stamp: str = STAMP) -> tuple[int, int]:
        return await self.claims.settle(self.outlet(), stamp, numbers)

    async def release(self, stamp: str = STAMP) -> tuple[int, int]:
        return await self.claims.release(self.outlet(), stamp)

    async def receive(self, credit: int = 100, *, dead_letter: bool = False) -> list[Delivery]:
        recorder = Recorder(credit)
        self.outlet(dead_letter).add_receiver(recorder)
        self.outlet(dead_letter).wake(recorder)
        await self.calm()
        self.outlet(dead_letter).remove_receiver(recorder)
        return recorder.deliveries

    async def finish(self, deliveries: list[Delivery], verb: Verb, **fields: Any) -> Answer:
        answer = Answer()
        self.outlet().settle([each.token for each in deliveries], Settlement(verb, **fields), answer)
        await self.calm()
        assert answer.is_done
        return answer

    async def pass_time(self, seconds: float) -> None:
        """And everything that it brings."""
        await self.advance(seconds)
        for _ in range(5):
            self.namespace.tick()
            await self.calm()

    async def calm(self) -> None:
        """Commits, reads and what follows from them come to an end. A file's one reader takes one read after the
        other, so the answer to a last one says that those before it are answered, too."""
        for _ in range(6):
            await settle()
            for store in self.stores:
                await store.flush()
                await store.catalogue()

    async def forget(self) -> None:
        """The process dies, as far as claims can tell, and comes back."""
        await self.restart()
        self.claims = Claims(self.clock)

    def counts(self) -> tuple[int, int, int]:
        counts = self.queue.counts()
        return counts.active, counts.deferred, counts.size_bytes


def text(body: str, **fields: Any) -> Message:
    return Message(b"", body.encode(), **fields)


def numbers_of(claim: OpenClaim) -> list[int]:
    return sorted(number for part in claim.parts for number in part.numbers)


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def play(kind: str, tmp_path: Path) -> Callable[..., None]:
    def run(scenario: Scenario, store_count: int = 1, **description: object) -> None:
        async def with_queue(bench: ClaimBench) -> None:
            await bench.create(QUEUE, **description)
            await scenario(bench)

        play_scene(
            lambda: ClaimBench(kind, tmp_path, store_count),
            with_queue,
            loop_factory=lambda: SkippingLoop(stands_still=True),
        )

    return run


Play = Callable[..., None]


def test_what_is_taken_is_locked_and_taking_again_gives_the_same(play: Play) -> None:
    """R-2, M-50: only memory knows of it; a lost answer can be asked for once more."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(5)
        first, again = await bench.take(3), await bench.take(3)
        assert numbers_of(first) == numbers_of(again) == numbers[:3]
        assert [each.message.sequence_number for each in await bench.receive()] == numbers[3:]
        assert bench.counts()[:2] == (5, 0)
        await bench.forget()
        assert numbers_of(await bench.take()) == numbers

    play(scenario)


def test_the_locks_of_a_claim_that_is_never_held_end_by_themselves(play: Play) -> None:
    """R-5, R-40: available again, with a failed delivery; holding then holds nothing."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(2)
        await bench.take()
        await bench.pass_time(61)
        assert await bench.hold(numbers) == []
        got = await bench.receive()
        assert [each.message.sequence_number for each in got] == numbers
        assert [each.message.delivery_count for each in got] == [1, 1]

    play(scenario)


def test_what_is_held_is_deferred_for_everybody_and_stays_so_over_a_restart(play: Play) -> None:
    """R-50, R-13: skipped by receivers, seen by peek; holding again tells the same."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(4)
        assert await bench.held(3) == numbers[:3]
        for _ in range(2):
            assert await bench.hold(numbers) == numbers[:3]
            peeked = await bench.outlet().peek(0, 10)
            assert [each.state for each in peeked] == [PLACE_DEFERRED] * 3 + [PLACE_ACTIVE]
            assert [stamp_of(each.changes) for each in peeked] == [STAMP] * 3 + [None]
            assert bench.counts()[:2] == (1, 3)
            assert [each.bare for each in await bench.read(numbers)] == [b"0", b"1", b"2"]
            await bench.forget()
        assert [each.message.bare for each in await bench.receive()] == [b"3"]

    play(scenario)


def test_two_that_hold_at_once_are_told_the_same(play: Play) -> None:
    """Whoever comes second waits until it is decided what the claim holds."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(2_500)
        taken = numbers_of(await bench.take(2_500))
        answers = await asyncio.gather(*[bench.hold(taken) for _ in range(3)])
        assert answers == [numbers] * 3

    play(scenario)


def test_what_is_not_asked_for_is_not_held(play: Play) -> None:
    """Nothing is ever marked that no batch knows of."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(4)
        await bench.take()
        assert await bench.hold(numbers[:2]) == numbers[:2]
        assert [each.message.sequence_number for each in await bench.receive()] == numbers[2:]

    play(scenario)


def test_settling_deletes_what_is_held_and_nothing_else(play: Play) -> None:
    """R-10: durable, and again without effect; rows of others stay, whatever their state."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(6)
        await bench.finish(await bench.receive(1), Verb.DEFER, properties={"mine": 1})
        assert await bench.held(2) == numbers[1:3]
        assert await bench.held(1, "claim-2") == [numbers[3]]
        assert await bench.settle(numbers) == (2, 0)
        assert await bench.settle(numbers) == (0, 0)
        await bench.forget()
        assert await bench.claims.stamps(bench.outlet()) == {"claim-2": 1}
        assert bench.counts()[:2] == (2, 2)
        assert await bench.settle(numbers, "claim-2") == (1, 0)
        assert await bench.outlet().receive_by_number(numbers[:1], deletes=True)
        for delivery in await bench.receive():
            await bench.finish([delivery], Verb.COMPLETE)
        assert bench.counts() == (0, 0, 0)

    play(scenario)


def test_what_somebody_else_has_locked_by_number_is_read_and_left_to_him(play: Play) -> None:
    """R-51, R-52: neither settled nor released, and told."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(3)
        await bench.held()
        (lock,) = await bench.outlet().receive_by_number([numbers[1]], deletes=False)
        assert len(await bench.read(numbers)) == 3
        assert await bench.settle(numbers[:2]) == (1, 1)
        assert await bench.release() == (1, 1)
        await bench.finish([lock], Verb.COMPLETE)
        assert await bench.settle(numbers) == (0, 0)
        assert bench.counts()[:2] == (1, 0)

    play(scenario)


def test_a_message_does_not_expire_while_it_is_held(play: Play) -> None:
    """M-45: a claim stops its time for everybody; without one it is gone when it is asked for."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(3, ttl_ms=10_000)
        assert await bench.held(2) == numbers[:2]
        await bench.finish(await bench.receive(), Verb.DEFER)
        await bench.pass_time(3_600)
        await bench.forget()
        await bench.pass_time(3_600)
        assert [each.bare for each in await bench.read(numbers)] == [b"0", b"1"]
        (fetched,) = await bench.outlet().receive_by_number([numbers[0]], deletes=False)
        await bench.finish([fetched], Verb.RELEASE)
        with pytest.raises(MessageNotFound):
            await bench.outlet().receive_by_number([numbers[2]], deletes=False)
        assert await bench.settle(numbers) == (2, 0)
        await bench.calm()
        assert bench.counts() == (0, 0, 0)

    play(scenario)


@pytest.mark.parametrize("dead_letters", [False, True])
def test_the_time_of_a_released_message_counts_again(play: Play, dead_letters: bool) -> None:
    """M-42, M-45, D-11: what has expired meanwhile leaves, dropped or dead-lettered; the rest leaves in its time."""

    async def scenario(bench: ClaimBench) -> None:
        short = await bench.put_texts(2, ttl_ms=10_000)
        (longer,) = await bench.put_texts(1, ttl_ms=100_000)
        assert await bench.held() == [*short, longer]
        await bench.pass_time(30)
        assert await bench.release() == (3, 0)
        await bench.calm()
        assert bench.counts()[:2] == (1, 0)
        assert [(each.sequence_number, each.state) for each in await bench.outlet().peek(0, 10)] == [
            (longer, PLACE_ACTIVE)
        ]
        await bench.pass_time(80)
        await bench.calm()
        assert bench.counts()[:2] == (0, 0)
        dead = await bench.outlet(dead_letter=True).peek(0, 10)
        assert [each.sequence_number for each in dead] == ([*short, longer] if dead_letters else [])
        for each in dead:
            assert read_changes(each.changes)["DeadLetterReason"] == "TTLExpiredException"
            assert stamp_of(each.changes) is None

    play(scenario, dead_lettering_on_message_expiration=dead_letters)


def test_what_is_released_is_received_under_its_number_without_a_mark(play: Play) -> None:
    """An operator gets the messages of a stream back that is no more."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(4)
        before = bench.counts()
        await bench.held(3)
        await bench.forget()
        assert await bench.claims.stamps(bench.outlet()) == {STAMP: 3}
        assert await bench.release("another") == (0, 0)
        assert await bench.release() == (3, 0)
        assert await bench.release() == (0, 0)
        got = await bench.receive()
        assert [each.message.sequence_number for each in got] == numbers
        assert [each.message.delivery_count for each in got] == [0] * 4
        assert all(CLAIM_PROPERTY not in read_changes(each.message.changes) for each in got)
        assert await bench.claims.stamps(bench.outlet()) == {}
        await bench.finish(got, Verb.ABANDON)
        assert bench.counts()[:2] == before[:2]
        await bench.finish(await bench.receive(), Verb.COMPLETE)
        assert bench.counts() == (0, 0, 0)

    play(scenario)


def test_releasing_what_is_only_taken_unlocks_it(play: Play) -> None:
    """R-12: at once, without a failed delivery."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(2)
        await bench.take()
        assert await bench.release() == (0, 0)
        got = await bench.receive()
        assert [(each.message.sequence_number, each.message.delivery_count) for each in got] == [
            (number, 0) for number in numbers
        ]

    play(scenario)


def test_earlier_changes_of_properties_stay_beside_the_mark(play: Play) -> None:
    """R-11, R-14: what an abandoned delivery changed is still there, held and released."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(1)
        await bench.finish(await bench.receive(), Verb.ABANDON, properties={"tried": "once"})
        assert await bench.held() == numbers
        (message,) = await bench.read(numbers)
        assert read_changes(message.changes) == {"tried": "once", CLAIM_PROPERTY: STAMP}
        await bench.release()
        (delivery,) = await bench.receive()
        assert read_changes(delivery.message.changes) == {"tried": "once"}

    play(scenario)


def test_locks_are_renewed_until_they_are_held(play: Play) -> None:
    """R-30: one whole duration from now on; what is over cannot be renewed."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(2)
        claim = await bench.take()
        for _ in range(3):
            await bench.pass_time(40)
            until_ms = await bench.claims.renew(bench.outlet(), STAMP)
            assert until_ms == claim.locked_until_ms == bench.clock.wall_ms() + 60_000
        assert await bench.hold(numbers) == numbers
        with pytest.raises(MessageLockLost):
            await bench.claims.renew(bench.outlet(), STAMP)

    play(scenario)


def test_a_claim_goes_over_all_fragments(play: Play) -> None:
    """R-55, P-40: taken from all, each held and settled where it lies, also after a restart."""

    async def scenario(bench: ClaimBench) -> None:
        numbers: list[int] = []
        for at in range(12):
            numbers += await bench.put(text(f"{at}"))
        assert len({number >> 48 for number in numbers}) == 4
        assert await bench.held(10) == sorted(await bench.hold(sorted(numbers)))
        held = await bench.hold(sorted(numbers))
        assert len(held) == 10
        await bench.forget()
        assert [each.sequence_number for each in await bench.read(sorted(numbers))] == held
        far = [*held, 99 << 48 | 1]
        assert await bench.settle(far[:4]) == (4, 0)
        assert await bench.release() == (6, 0)
        assert bench.counts()[:2] == (8, 0)
        assert len(await bench.read(far)) == 0

    play(scenario, store_count=4, enable_partitioning=True)


def test_dead_letters_are_claimed_as_other_messages_are(play: Play) -> None:
    """D-3: and their time does not count at all (M-46)."""

    async def scenario(bench: ClaimBench) -> None:
        await bench.put_texts(2, ttl_ms=1_000)
        await bench.finish(await bench.receive(), Verb.DEAD_LETTER, dead_letter_reason="bad")
        taken = numbers_of(await bench.take(dead_letter=True))
        assert await bench.hold(taken, dead_letter=True) == taken
        await bench.pass_time(100)
        outlet = bench.outlet(dead_letter=True)
        pages = [page async for page in bench.claims.read(outlet, STAMP, taken)]
        assert [read_changes(each.changes)["DeadLetterReason"] for page in pages for each in page] == [
            "bad"
        ] * 2
        assert await bench.claims.release(outlet, STAMP) == (2, 0)
        assert len(await bench.receive(dead_letter=True)) == 2

    play(scenario)


def test_sessions_are_claimed_as_a_whole_and_kept_until_they_are_settled(play: Play) -> None:
    """X-4, X-11, X-13: nobody gets later messages of a session meanwhile; then the next ones may."""

    async def scenario(bench: ClaimBench) -> None:
        for at in range(6):
            await bench.put(text(f"{at}", session_id="ab"[at % 2]))
        claim = await bench.take(4)
        assert sorted((part.session_id, len(part.numbers)) for part in claim.parts) == [("a", 3), ("b", 3)]
        await bench.put(text("later", session_id="a"))
        taken = numbers_of(claim)
        assert await bench.hold(taken) == taken
        with pytest.raises(SessionCannotBeLocked):
            await bench.outlet().accept_session(Recorder(10), "a", 0.0)
        for _ in range(3):
            await bench.pass_time(40)
            await bench.claims.renew(bench.outlet(), STAMP)
        assert [each.bare for each in await bench.read(taken)] == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert await bench.settle(taken) == (6, 0)
        later = await bench.take(4, "claim-2")
        assert [part.session_id for part in later.parts] == ["a"]
        assert bench.counts()[:2] == (1, 0)

    play(scenario, requires_session=True)


def test_sessions_that_nobody_renews_are_free_again_and_what_is_held_stays(play: Play) -> None:
    """X-10: the driver is gone; its batch is not."""

    async def scenario(bench: ClaimBench) -> None:
        await bench.put(text("1", session_id="a"))
        taken = numbers_of(await bench.take())
        assert await bench.hold(taken) == taken
        await bench.put(text("2", session_id="a"))
        await bench.pass_time(61)
        with pytest.raises(MessageLockLost):
            await bench.claims.renew(bench.outlet(), STAMP)
        later = await bench.take(1, "claim-2")
        assert len(numbers_of(later)) == 1
        assert await bench.hold(taken) == taken
        assert await bench.release() == (1, 0)
        assert bench.counts()[:2] == (2, 0)

    play(scenario, requires_session=True)


def test_an_empty_taking_is_not_remembered(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often somebody asks, nothing piles up; and open claims have a bound."""
    monkeypatch.setattr(claims_module, "OPEN_MAX", 2)

    async def scenario(bench: ClaimBench) -> None:
        for at in range(10):
            assert (await bench.take(stamp=f"none-{at}")).parts == []
        await bench.put_texts(3)
        for at in range(2):
            assert len(numbers_of(await bench.take(1, f"some-{at}"))) == 1
        with pytest.raises(ServerBusy):
            await bench.take(1, "some-2")
        await bench.pass_time(61)
        assert len(numbers_of(await bench.take(3, "some-2"))) == 3

    play(scenario)


def test_a_taking_that_is_cut_short_gives_back_what_it_had(play: Play) -> None:
    """R-19: nobody was told of it."""

    async def scenario(bench: ClaimBench) -> None:
        numbers = await bench.put_texts(2)
        task = asyncio.ensure_future(bench.claims.take(bench.queue, bench.outlet(), STAMP, 10, 30.0))
        await bench.calm()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        got = await bench.receive()
        assert [each.message.sequence_number for each in got] == numbers

    play(scenario)


def test_a_taking_waits_for_the_first_message(play: Play) -> None:
    """R-8: it stands in line as any receiver."""

    async def scenario(bench: ClaimBench) -> None:
        task = asyncio.ensure_future(bench.claims.take(bench.queue, bench.outlet(), STAMP, 10, 30.0))
        await bench.calm()
        assert not task.done()
        numbers = await bench.put_texts(3)
        assert numbers_of(await bench.patiently(task)) == numbers

    play(scenario)


def test_nothing_is_claimed_where_nobody_may_receive(play: Play) -> None:
    """E-82: nothing is claimed where nobody may receive."""

    async def scenario(bench: ClaimBench) -> None:
        with pytest.raises(EntityDisabled):
            await bench.take()

    play(scenario, status="ReceiveDisabled")
