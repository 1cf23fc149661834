"""Pages that go to the socket in a thread: whole, in order, and as fast as the client takes them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from busway.gateway.http.presence import DirectWriter
from busway.model.errors import OperationCancelled

MIB = 1 << 20


def run(work: Callable[[DirectWriter, socket.socket], Coroutine[Any, Any, None]]) -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        with ours, theirs, ThreadPoolExecutor(1) as threads:
            writer = DirectWriter(ours.fileno(), threads)
            try:
                await work(writer, theirs)
            finally:
                writer.close()

    asyncio.run(scene())


async def written(writer: DirectWriter, pieces: list[bytes], waits: asyncio.Event | None = None) -> None:
    writer.begin(pieces)
    while True:
        await writer.go_on()
        if writer.is_done:
            return
        room = writer.room()
        if waits is not None:
            waits.set()
        await room


@pytest.mark.parametrize(
    "sizes",
    [[3 * MIB], [1] * 2_000, [0, 5, 0], [64 * 1024 + 1] * 40, []],
    ids=["one", "many", "empty", "odd", "none"],
)
def test_pieces_arrive_whole_and_in_order_through_a_socket_that_takes_little_at_once(
    sizes: list[int],
) -> None:
    """Direct: what the socket does not take is written when there is room, from where it stopped."""
    pieces = [os.urandom(size) for size in sizes]
    whole = b"".join(pieces)

    async def work(writer: DirectWriter, theirs: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        writing = asyncio.create_task(written(writer, pieces))
        got = bytearray()
        while len(got) < len(whole):
            got += await loop.sock_recv(theirs, 10_007)
        await writing
        assert bytes(got) == whole

    run(work)


def test_one_page_follows_the_other() -> None:
    async def work(writer: DirectWriter, theirs: socket.socket) -> None:
        await written(writer, [b"one ", b"page, "])
        await written(writer, [b"then the next"])
        assert theirs.recv(100) == b"one page, then the next"

    run(work)


def test_a_client_that_goes_ends_the_wait_for_room_and_the_writing() -> None:
    """Direct: nobody waits for a client that never takes anything again."""

    async def work(writer: DirectWriter, theirs: socket.socket) -> None:
        waits = asyncio.Event()
        writing = asyncio.create_task(written(writer, [b"x" * (8 * MIB)], waits))
        await waits.wait()
        theirs.close()
        with pytest.raises(OperationCancelled):
            await asyncio.wait_for(writing, 5)

    run(work)


def test_closing_ends_a_wait_for_room_and_may_be_done_twice() -> None:
    """Direct: as the server does when the connection is ended on its side."""

    async def work(writer: DirectWriter, theirs: socket.socket) -> None:
        waits = asyncio.Event()
        writing = asyncio.create_task(written(writer, [b"x" * (8 * MIB)], waits))
        await waits.wait()
        writer.close()
        writer.close()
        with pytest.raises(OperationCancelled):
            await asyncio.wait_for(writing, 5)
        assert theirs.fileno() >= 0

    run(work)
