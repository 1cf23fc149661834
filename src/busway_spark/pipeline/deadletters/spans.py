"""Many dead letters of one queue are browsed by several tasks: each walks a span of sequence numbers.

Numbers of dead letters have gaps and no known end. A peek from a number on tells whether there is one, so the end is
found by halving, with some forty questions; a queue with few dead letters costs two. Spans reach from nothing to the
last number there can be: whatever comes meanwhile is in one of them. A partitioned entity is left to the format,
which has a task for each fragment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from busway.client.errors import ClientError
from busway_spark.given_options import NUMBER_MAX
from busway_spark.servicebus.message_arrays import FRAGMENT_SHIFT
from busway_spark.servicebus.peek import number_of
from busway_spark.wire.bus import Bus

#: Numbers of one span, and spans, at most: then they are wider.
WIDTH: Final = 100_000
SPANS_MAX: Final = 32
WHOLE: Final = (0, NUMBER_MAX)

#: The lowest number from this one on; None when there is none.
Look = Callable[[int], Awaitable[int | None]]


def spans_of(bus: Bus, address: str) -> list[tuple[int, int]]:
    """(first, last) of each, ascending, without a gap. What is wrong with the address is told by whoever browses."""
    try:
        return asyncio.run(_spans_of(bus, address))
    except ClientError:
        return [WHOLE]


async def _spans_of(bus: Bus, address: str) -> list[tuple[int, int]]:
    async with bus.client() as client:
        management = client.get_management(address)

        async def look(number: int) -> int | None:
            found = await management.peek_messages(1, number)
            return number_of(found[0]) if found else None

        return await spans(look)


async def spans(look: Look) -> list[tuple[int, int]]:
    first = await look(0)
    low = None if first is None else await look(first + WIDTH)
    if first is None or low is None or low >> FRAGMENT_SHIFT:
        return [WHOLE]
    high = 1 << FRAGMENT_SHIFT
    if await look(high) is not None:
        return [WHOLE]
    while high - low > WIDTH:  # there is one from `low` on, and none from `high` on
        middle = (low + high) // 2
        found = await look(middle)
        if found is None:
            high = middle
        else:
            low = found
    count = min(SPANS_MAX, -(-(high - first) // WIDTH))
    width = -(-(high - first) // count)
    cuts = [first + at * width for at in range(1, count)]
    return [(begin, end - 1) for begin, end in zip([0, *cuts], [*cuts, NUMBER_MAX + 1], strict=True)]
