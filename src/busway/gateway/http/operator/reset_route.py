"""`POST /$reset`: the bus made as new, for test suites.

Guarded thrice: the server was started with `--allow-reset`, which it takes on loopback only, and the caller may
Manage the namespace (`router`). Whoever may not is told that first, so a stranger does not learn whether it would be
allowed.
"""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.responses import Response

from busway.gateway.http.call import Call
from busway.gateway.http.statuses import HttpRefusal
from busway.signals.pipelines import Pipelines

#: Raises BrokerError.
MakeNew = Callable[[], Awaitable[None]]


class ResetRoute:
    """`make_new`: None when the server does not allow it."""

    def __init__(self, make_new: MakeNew | None, pipelines: Pipelines) -> None:
        self._make_new = make_new
        self._pipelines = pipelines
        #: One after the other: each makes again what a configuration file describes.
        self._turn = asyncio.Lock()

    async def reset(self, _: Call) -> Response:
        if self._make_new is None:
            raise HttpRefusal(
                403, "This server does not empty its bus: it was started without busway serve --allow-reset."
            )
        async with self._turn:
            await self._make_new()
            self._pipelines.clear()
        return Response(status_code=204)
