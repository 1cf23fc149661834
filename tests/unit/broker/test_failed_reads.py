"""Requests that begin with a read, on a store that fails while they read."""

from collections.abc import Awaitable, Callable

import pytest

from busway.broker.fragment.fragment import Fragment
from busway.model.errors import ServerBusy
from busway.store.contract import StoreUnavailable
from tests.unit.broker.namespace_bench import Reader
from tests.unit.broker.rig import Rig, play

REQUESTS: dict[str, Callable[[Fragment], Awaitable[object]]] = {
    "peek": lambda main: main.peek(0, 10),
    "receive by number": lambda main: main.receive_by_number([1], deletes=False),
    "batch delete": lambda main: main.delete_messages(10, 1 << 50),
    "cancel": lambda main: main.cancel_scheduled([1]),
    "state": lambda main: main.session_state("one"),
    "sessions": lambda main: main.list_sessions(None, 0, 10),
}


async def _fails(*arguments: object) -> object:
    raise StoreUnavailable(f"the disk is gone {len(arguments)}")


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_read_that_fails_asks_the_client_to_come_again(
    request_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-17: the client sees server-busy, which every SDK repeats, not a fault of ours."""

    needs_sessions = request_name in ("state", "sessions")

    async def scenario(rig: Rig) -> None:
        if needs_sessions:
            await rig.queue.main.accept_session(Reader(), "one", 1.0)
        for verb in ("peek", "by_number", "messages", "session_messages", "session", "sessions"):
            monkeypatch.setattr(rig.store, verb, _fails)
        with pytest.raises(ServerBusy):
            await REQUESTS[request_name](rig.queue.main)

    play(scenario, requires_session=needs_sessions)
