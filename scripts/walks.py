"""Prints which of our functions a message goes through, between the socket and the answer: `python scripts/walks.py`.

Three walks: a message that is sent, one that is received and completed, one that is published to a topic with one
subscription. The real gateway, broker and store in one process, as plain Python; the client is the tests'. Before
a walk the same is done once, so that nothing is counted that happens once for a connection. What the loop does
for everybody (deadlines, meters) is no step of a message.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

os.environ["BUSWAY_PURE"] = "1"
HOUSE: Final = Path(__file__).parents[1]
SOURCES: Final = str(HOUSE / "src" / "busway") + os.sep
CLIENT: Final = str(HOUSE / "tests") + os.sep
sys.path.insert(0, str(HOUSE))

from busway.amqp.performatives import Accepted  # noqa: E402
from busway.model.descriptions import (  # noqa: E402
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tests.unit.gateway.amqp_peer import Room, in_room, payload  # noqa: E402

#: Of everybody, not of a message.
FOR_ALL: Final = ("clock.py", "event_loop.py", "timers.py")

#: Storeys by their folders: those that decide, and those that only carry out.
STOREYS: Final = {
    "gateway and broker": ("gateway", "broker"),
    "engine": ("amqp",),
    "rules": ("rules",),
    "store": ("store",),
    "words": ("message", "model"),
}

#: Of each walk.
_TRIES: Final = 4

#: (file, function), in the order in which they are entered first.
Walk = dict[tuple[str, str], None]


def is_servers(frame: FrameType | None) -> bool:
    """Not on behalf of the client, which has the same engine."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(CLIENT):
            return False
        if name.startswith(SOURCES) and not name.startswith(SOURCES + "amqp" + os.sep):
            return True
        frame = frame.f_back
    return True


@contextmanager
def walked(walk: Walk) -> Iterator[None]:
    def entered(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCES) and is_servers(frame):
            file = name.removeprefix(SOURCES)
            if file not in FOR_ALL and not frame.f_code.co_name.startswith("<"):
                walk[file, frame.f_code.co_qualname] = None

    threading.setprofile(entered)
    sys.setprofile(entered)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def walk_of(do: Callable[[], Awaitable[object]]) -> Walk:
    """The shortest of some: on a busy machine one may have to wait, and goes the way of those who wait."""
    await do()
    walks: list[Walk] = []
    for _ in range(_TRIES):
        walk: Walk = {}
        with walked(walk):
            await do()
        walks.append(walk)
    return min(walks, key=len)


def walks() -> dict[str, Walk]:
    """By name."""
    found: dict[str, Walk] = {}

    async def scenario(room: Room) -> None:
        await room.namespace.create([NewEntity(TopicDescription("t"))])
        await room.namespace.create([NewEntity(SubscriptionDescription("t/Subscriptions/s"))])
        peer = await room.client()
        sender, publisher = await peer.sender("q"), await peer.sender("t")
        found["sent"] = await walk_of(lambda: peer.sent(sender, payload(b"one")))
        receiver = await peer.receiver("q")
        taken = 0

        async def take() -> None:
            nonlocal taken
            taken += 1
            receiver.grant_credit(1)
            delivery = (await peer.received(receiver, taken))[-1]
            await peer.settle(receiver, [delivery], Accepted())

        found["received and completed"] = await walk_of(take)
        found["published"] = await walk_of(lambda: peer.sent(publisher, payload(b"one")))

    with tempfile.TemporaryDirectory() as folder:
        in_room(scenario, QueueDescription("q"), sqlite_folder=Path(folder))
    return found


def files_of(walk: Walk) -> list[str]:
    return list(dict.fromkeys(file for file, _ in walk))


def by_storey(walk: Walk) -> dict[str, int]:
    """How many files of each."""
    return {
        name: len([file for file in files_of(walk) if file.split(os.sep)[0] in folders])
        for name, folders in STOREYS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--functions", action="store_true", help="each function, not files alone")
    given = parser.parse_args()
    for name, walk in walks().items():
        counts = ", ".join(f"{storey} {count}" for storey, count in by_storey(walk).items())
        print(f"{name}: {len(walk)} functions in {len(files_of(walk))} files ({counts})")
        for file in files_of(walk):
            functions = [function for of, function in walk if of == file]
            print(
                f"    {file}" + (f": {', '.join(functions)}" if given.functions else f" ({len(functions)})")
            )


if __name__ == "__main__":
    main()
