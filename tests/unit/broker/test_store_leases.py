"""While it is not certain that a store is ours, nothing is handed out, renewed or granted. Commits go on."""

from __future__ import annotations

from typing import Any

import pytest

from busway.broker.fragment.message_sessions import MessageSession
from busway.broker.fragment.runtime import StoreLease
from busway.model.errors import ServerBusy
from busway.model.settlement import Verb
from tests.unit.broker.rig import Recorder, Rig, bodies, play, text

SESSIONS: dict[str, Any] = {"requires_session": True}


class Ending(StoreLease):
    """Over when a test says so."""

    is_bounded = True
    ended = False

    def is_over(self) -> bool:
        return self.ended


def with_lease(rig: Rig) -> Ending:
    lease = Ending()
    for fragment in rig.main.fragments():
        fragment.lease = lease
    return lease


@pytest.mark.parametrize("deletes", [False, True], ids=["locks", "deletes"])
def test_nothing_is_handed_out_past_the_end_of_a_lease(deletes: bool) -> None:
    """S-1: sends are accepted; what waits is served when the lease is renewed."""

    async def scenario(rig: Rig) -> None:
        lease = with_lease(rig)
        receiver = Recorder(10, deletes=deletes)
        rig.main.add_receiver(receiver)
        rig.main.wake(receiver)
        lease.ended = True
        await rig.send(text("one"), text("two"))
        rig.main.wake(receiver)
        await rig.calm()
        assert receiver.deliveries == []
        lease.ended = False
        rig.main.resume()
        await rig.calm()
        assert bodies(receiver.deliveries) == ["one", "two"]

    play(scenario)


def test_locks_are_not_renewed_past_the_end_and_can_be_settled() -> None:
    """S-1, R-30: they live on when the lease is renewed in time; a settlement is a commit, and decided by it."""

    async def scenario(rig: Rig) -> None:
        lease = with_lease(rig)
        await rig.send(text("one"), text("two"))
        first, second = await rig.receive(2)
        lease.ended = True
        with pytest.raises(ServerBusy, match="nothing can be locked"):
            await rig.main.renew([first.token])
        assert await rig.settle([first], Verb.COMPLETE) == []
        lease.ended = False
        assert await rig.main.renew([second.token]) == [rig.clock.wall_ms() + 60_000]

    play(scenario)


def test_deferred_messages_are_not_locked_past_the_end() -> None:
    """S-1, R-51: they are when the lease is renewed."""

    async def scenario(rig: Rig) -> None:
        lease = with_lease(rig)
        await rig.send(text("one"))
        await rig.settle(await rig.receive(1), Verb.DEFER)
        lease.ended = True
        with pytest.raises(ServerBusy):
            await rig.main.receive_by_number([1], deletes=False)
        lease.ended = False
        assert bodies(await rig.main.receive_by_number([1], deletes=False)) == ["one"]

    play(scenario)


def test_sessions_are_neither_granted_nor_renewed_past_the_end() -> None:
    """S-1, X-4, X-9: by name or the next one; whoever waits in line gets it when the lease is renewed."""

    async def scenario(rig: Rig) -> None:
        lease = with_lease(rig)
        await rig.send(text("one", session_id="a"), text("two", session_id="b"))
        held = await rig.main.accept_session(Recorder(1), "a", 65.0)
        lease.ended = True
        with pytest.raises(ServerBusy):
            await rig.main.accept_session(Recorder(1), "b", 65.0)
        with pytest.raises(ServerBusy):
            await rig.main.renew_session("a")
        found: list[MessageSession] = []

        async def wait_for_next() -> None:
            found.append(await rig.main.accept_session(Recorder(1), None, 65.0))

        rig.spawn(wait_for_next())
        await rig.calm()
        assert found == []
        lease.ended = False
        rig.main.resume()
        await rig.calm()
        assert [session.session_id for session in found] == ["b"]
        assert await rig.main.renew_session("a") == held.locked_until_ms

    play(scenario, **SESSIONS)
