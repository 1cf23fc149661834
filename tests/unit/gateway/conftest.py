"""What several gateway tests share."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop

from tests.unit.gateway.http_exchange import Exchange


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    """The HTTP gateway over a namespace in memory."""
    with Exchange() as made:
        yield made


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Work with sockets runs on both event loops."""

    def running(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(work, 100))

    return running
