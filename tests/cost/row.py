"""One line of the table: who may ask, by which way, for what, and for how much of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.cost.scene import Scene

NOBODY: Final = "Nobody"
AMQP: Final = "AMQP"
MANAGEMENT: Final = "$management"
HTTP: Final = "HTTP"
WEBSOCKET: Final = "WebSocket"

#: Steps follow what is asked for.
LINEAR: Final = "linear"
#: What there is more of concerns others: steps stay what they were.
FLAT: Final = "flat"

Play = Callable[["Scene", int], None]


@dataclass(frozen=True)
class Row:
    right: str
    way: str
    #: A performative, an operation, or the function behind a route: `test_every_verb` knows them.
    verb: str
    what: str
    #: What is asked for: as much as the limits allow, or as one read of a socket brings.
    n: int
    play: Play
    growth: str
    #: For how many steps are counted, and for four times as many; 0: a request that has no size.
    few: int
    memory_bytes_max: int
    #: It fills the namespace, where others would feel it: it is played in a world of its own.
    is_crowded: bool
    #: How often it is asked by a client that reads no answer, when memory is measured; 0: it is not, because neither
    #: the answer is long nor anything kept.
    unread: int

    def __str__(self) -> str:
        return f"{self.right}: {self.what.format(n=f'{self.n:,}')} over {self.way}"


ROWS: Final[list[Row]] = []
MIB: Final = 1 << 20
#: After login, for one connection (a request over HTTP is one).
MEMORY_BYTES_MAX: Final = 64 * MIB


def row(
    right: str,
    way: str,
    verb: str,
    what: str,
    n: int = 1,
    *,
    few: int = 0,
    growth: str = LINEAR,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
    is_crowded: bool = False,
    unread: int = 0,
) -> Callable[[Play], Play]:
    """`what` may hold {n}."""

    def put(play: Play) -> Play:
        ROWS.append(Row(right, way, verb, what, n, play, growth, few, memory_bytes_max, is_crowded, unread))
        return play

    return put
