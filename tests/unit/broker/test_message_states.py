"""The life of a message, by hand: what becomes of one in each state at each thing that can happen to it.

The table is what a real queue has to do; it knows nothing of the table that the broker has of its own. A cell says
the state afterwards, `+1` that the delivery was counted, `#` that the number is a new one; `=` that nothing changed;
`lost` and `missing` that whoever asked was told that the lock is lost or that there is no such message, and nothing
changed. "held" is deferred under the stamp of a claim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from busway.broker.bulk.claims import Claims
from busway.broker.fragment.locks import Delivery
from busway.message.message import Message
from busway.model.errors import BrokerError, MessageLockLost, MessageNotFound
from busway.model.settlement import Verb
from tests.unit.broker.rig import Rig, play, text

LIFE: Final = """
                                  scheduled  active     locked     deferred         locked-deferred  held
its scheduled time comes          active#    =          =          =                =                =
it is cancelled                   gone       missing    missing    missing          missing          missing
it is received                    =          locked     =          =                =                =
it is received and deleted        =          gone       =          =                =                =
it is fetched by number           missing    missing    missing    locked-deferred  missing          locked-held
it is fetched and deleted         missing    missing    missing    gone             missing          gone
it is completed                   lost       lost       gone       lost             gone             lost
it is abandoned                   lost       lost       active+1   lost             deferred+1       lost
it is released                    lost       lost       active     lost             deferred         lost
it is deferred                    lost       lost       deferred+1 lost             deferred+1       lost
it is dead-lettered               lost       lost       dead       lost             dead             lost
its lock has ended                =          =          active+1   =                deferred+1       =
it is abandoned a last time       lost       lost       dead+1     lost             dead+1           lost
its lock has ended a last time    =          =          dead+1     =                dead+1           =
a claim takes and holds it        =          held       =          =                =                =
its claim is settled              =          =          =          =                =                gone
its claim is released             =          =          =          =                =                active
it expires                        =          gone       =          =                =                =
it expires to the dead letters    =          dead       =          =                =                =
it expires, then its lock ends    =          gone       gone       =                deferred+1       =
it is deleted with all others     =          gone       =          =                =                =
the broker starts anew            =          =          active     =                deferred         =
"""

LOCK_S: Final = 60
SCHEDULED_S: Final = 600
TTL_MS: Final = 20_000
STAMP: Final = "claim-1"
REFUSALS: Final[dict[type[BrokerError], str]] = {MessageLockLost: "lost", MessageNotFound: "missing"}


class Life:
    """One message on one queue."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.claims = Claims(rig.clock)
        self.number = 0
        #: The last delivery of it; before one, of a message that is gone.
        self.delivery: Delivery

    async def begin(self, state: str, **fields: int) -> None:
        await self.rig.send_texts("another")
        [self.delivery] = await self.rig.receive()
        await self.rig.settle([self.delivery])
        at_ms = self.rig.clock.wall_ms() + 1000 * SCHEDULED_S if state == "scheduled" else 0
        assert await self.rig.send(text("it", scheduled_at_ms=at_ms, **fields)) == []
        self.number = (await self._row()).sequence_number
        await REACHED[state](self)

    async def receive(self, *, deletes: bool = False) -> None:
        self.delivery = next(iter(await self.rig.receive(1, deletes=deletes)), self.delivery)

    async def fetch(self, *, deletes: bool = False) -> None:
        [self.delivery] = await self.rig.main.receive_by_number([self.number], deletes=deletes)

    async def settle(self, verb: Verb) -> None:
        for error in await self.rig.settle([self.delivery], verb):
            raise error("refused")

    async def defer(self) -> None:
        await self.receive()
        await self.settle(Verb.DEFER)

    async def hold(self) -> None:
        taken = await self.claims.take(self.rig.queue, self.rig.main, STAMP, 1, 0.0)
        await self.claims.hold(
            self.rig.main, STAMP, [number for part in taken.parts for number in part.numbers]
        )

    async def describe(self) -> tuple[str, int, int]:
        """Its state, its number, how many deliveries are counted."""
        counts = self.rig.queue.counts()
        found = {
            "scheduled": counts.scheduled,
            "active": counts.active,
            "deferred": counts.deferred,
            "dead": counts.dead_letter,
        }
        assert sum(found.values()) <= 1, "it is in two places"
        place = next((word for word, count in found.items() if count), "gone")
        if place == "gone":
            return place, 0, 0
        row = await self._row(dead_letter=place == "dead")
        if place == "deferred" and await self.claims.hold(self.rig.main, STAMP, [row.sequence_number]):
            place = "held"
        if self.rig.main.locked_number(self.delivery.token) is not None:
            place = "locked" if place == "active" else f"locked-{place}"
        return place, row.sequence_number, row.delivery_count

    async def _row(self, *, dead_letter: bool = False) -> Message:
        [row] = await self.rig.queue.outlet(dead_letter).peek(0, 10)
        return row


async def _nothing(life: Life) -> None:
    del life


async def _deferred_and_fetched(life: Life) -> None:
    await life.defer()
    await life.fetch()


REACHED: Final[dict[str, Callable[[Life], Awaitable[None]]]] = {
    "scheduled": _nothing,
    "active": _nothing,
    "locked": Life.receive,
    "deferred": Life.defer,
    "locked-deferred": _deferred_and_fetched,
    "held": Life.hold,
}

HAPPENS: Final[dict[str, Callable[[Life], Awaitable[object]]]] = {
    "its scheduled time comes": lambda life: _until(life, SCHEDULED_S),
    "it is cancelled": lambda life: life.rig.queue.cancel_scheduled([life.number]),
    "it is received": Life.receive,
    "it is received and deleted": lambda life: life.receive(deletes=True),
    "it is fetched by number": Life.fetch,
    "it is fetched and deleted": lambda life: life.fetch(deletes=True),
    "it is completed": lambda life: life.settle(Verb.COMPLETE),
    "it is abandoned": lambda life: life.settle(Verb.ABANDON),
    "it is released": lambda life: life.settle(Verb.RELEASE),
    "it is deferred": lambda life: life.settle(Verb.DEFER),
    "it is dead-lettered": lambda life: life.settle(Verb.DEAD_LETTER),
    "its lock has ended": lambda life: life.rig.advance(LOCK_S),
    "it is abandoned a last time": lambda life: life.settle(Verb.ABANDON),
    "its lock has ended a last time": lambda life: life.rig.advance(LOCK_S),
    "a claim takes and holds it": Life.hold,
    "its claim is settled": lambda life: life.claims.settle(life.rig.main, STAMP, [life.number]),
    "its claim is released": lambda life: life.claims.release(life.rig.main, STAMP),
    "it expires": lambda life: life.rig.advance(TTL_MS / 1000),
    "it expires to the dead letters": lambda life: life.rig.advance(TTL_MS / 1000),
    "it expires, then its lock ends": lambda life: life.rig.advance(LOCK_S),
    "it is deleted with all others": lambda life: life.rig.main.delete_messages(10, 1 << 50),
    "the broker starts anew": lambda life: life.rig.restart(),
}


async def _until(life: Life, seconds: float) -> None:
    """Time passes while locks are renewed, so that nothing else comes with it."""
    for _ in range(round(seconds / 30)):
        if life.rig.main.locked_number(life.delivery.token) is not None:
            await life.rig.main.renew([life.delivery.token])
        await life.rig.advance(30)


def cells() -> list[tuple[str, str, str]]:
    head, *lines = LIFE.strip("\n").splitlines()
    at = head.index("scheduled")
    return [
        (state, line[:at].strip(), cell)
        for line in lines
        for state, cell in zip(head.split(), line[at:].split(), strict=True)
    ]


@pytest.mark.parametrize(("state", "happened", "expected"), cells())
def test_what_becomes_of_a_message(state: str, happened: str, expected: str) -> None:
    """M-38, M-43, M-45, M-50, R-10, R-11, R-12, R-13, R-14, R-40, R-41, R-44, R-53: every state, every event."""

    async def scenario(rig: Rig) -> None:
        life = Life(rig)
        await life.begin(state, **({"ttl_ms": TTL_MS} if "expires" in happened else {}))
        before = await life.describe()
        assert before[0] == state
        refusal = ""
        try:
            await HAPPENS[happened](life)
        except (MessageLockLost, MessageNotFound) as error:
            refusal = REFUSALS[type(error)]
        await rig.calm()
        after = await life.describe()
        if refusal:
            assert after == before, "it was refused and happened"
        assert (refusal or _cell(before, after)) == expected

    deliveries = (1 + ("deferred" in state)) if "last time" in happened else 10  # a deferral was one
    expires = "dead letters" in happened
    play(scenario, max_delivery_count=deliveries, dead_lettering_on_message_expiration=expires)


def _cell(before: tuple[str, int, int], after: tuple[str, int, int]) -> str:
    if after == before:
        return "="
    place, number, count = after
    if place == "gone":
        return place
    assert count - before[2] in (0, 1)
    return f"{place}{'#' if number != before[1] else ''}{'+1' if count > before[2] else ''}"


def test_the_table_has_everything_that_can_happen() -> None:
    """House style: no line of the table is without its deed, and no deed without its line."""
    assert [happened for _, happened, _ in cells()][:: len(REACHED)] == list(HAPPENS)


@pytest.mark.parametrize("verb", [Verb.ABANDON, Verb.DEFER, None])
def test_nothing_counts_in_a_dead_letter_queue(verb: Verb | None) -> None:
    """R-43: neither an abandoned delivery, nor a deferred one, nor a lock that ended."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("it")
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        got = await rig.receive(dead_letter=True)
        if verb is None:
            await rig.advance(LOCK_S)
        else:
            await rig.settle(got, verb, dead_letter=True)
        [row] = await rig.dead_letter.peek(0, 10)
        assert row.delivery_count == got[0].message.delivery_count

    play(scenario, max_delivery_count=1)
