"""A TCP proxy between client and server that hurts: it slices, delays, stalls and cuts.

Latency and loss cannot be had from the kernel everywhere; from a proxy they can, and they are repeatable by seed.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from socket import SO_LINGER, SOL_SOCKET
from threading import Thread
from typing import Self

#: How the performative begins in a frame.
_DETACH = b"\x00\x53\x16"


class CuttingProxy:
    """`async with CuttingProxy(port, seed=1) as proxy:` then connect to `proxy.port`.

    `slice_bytes_max` passes the stream on in pieces of at most so many bytes; `cut_after_bytes` resets a connection
    after a random number of bytes up to that, in the middle of a frame more often than not. `cut_after`
    resets all connections once so many bytes more have passed in one direction.
    """

    def __init__(
        self,
        target_port: int,
        *,
        seed: int = 1,
        slice_bytes_max: int | None = None,
        delay_s: float = 0.0,
        cut_after_bytes: int | None = None,
    ) -> None:
        self.port = 0
        self.cuts = 0
        #: Whoever comes is sent away, as behind a firewall that resets.
        self.refuses = False
        #: Bytes are taken and kept, as on a line that is half open; they go on when it is False again.
        self.holds = False
        self.slice_bytes_max = slice_bytes_max
        self.delay_s = delay_s
        self.cut_after_bytes = cut_after_bytes
        self._target_port = target_port
        self._random = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._cut = asyncio.Event()
        #: Bytes that passed towards the target, and back; where all is cut.
        self.passed = {True: 0, False: 0}
        self._cut_at: dict[bool, int | None] = {True: None, False: None}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self.refuses = True
        self._server.close()
        await asyncio.sleep(0)  # who was accepted just now is sent away, too
        for pair in list(self._pairs):
            pair.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def cut_all(self) -> None:
        """Reset every connection now."""
        for pair in list(self._pairs):
            pair.cancel()
            self._count_cut()

    def cut_after(self, count: int, *, towards_target: bool) -> None:
        self._cut_at[towards_target] = self.passed[towards_target] + count

    async def wait_for_cuts(self, count: int) -> None:
        while self.cuts < count:
            self._cut.clear()
            await self._cut.wait()

    def _count_cut(self) -> None:
        self.cuts += 1
        self._cut.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        task.add_done_callback(self._pairs.discard)
        if self.refuses:
            _reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        budget = _Budget(self._random.randrange(1, self.cut_after_bytes) if self.cut_after_bytes else None)
        try:
            await _first_of(
                self._pass_on(reader, far_writer, budget, True),
                self._pass_on(far_reader, writer, budget, False),
            )
            if budget.is_spent():
                self._count_cut()
        except asyncio.CancelledError:
            pass
        finally:
            _reset(writer)
            _reset(far_writer)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        budget: _Budget,
        towards_target: bool,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                while self.holds:  # noqa: ASYNC110 (set by another thread)
                    await asyncio.sleep(0.01)
                for piece in self._pieces(data):
                    passing = budget.take(piece)
                    cut_at = self._cut_at[towards_target]
                    if cut_at is not None and self.passed[towards_target] + len(passing) >= cut_at:
                        self._cut_at[towards_target] = None
                        writer.write(passing[: cut_at - self.passed[towards_target]])
                        await writer.drain()
                        self.cut_all()
                        return
                    self.passed[towards_target] += len(passing)
                    writer.write(passing)
                    await writer.drain()
                    if budget.is_spent():
                        return

    def _pieces(self, data: bytes) -> list[bytes]:
        if self.slice_bytes_max is None:
            return [data]
        pieces, start = [], 0
        while start < len(data):
            end = start + self._random.randint(1, self.slice_bytes_max)
            pieces.append(data[start:end])
            start = end
        return pieces


class LateProxy(CuttingProxy):
    """The first answer with these bytes in it arrives when whoever asked has detached its link or gone."""

    def __init__(self, target_port: int, late: bytes) -> None:
        super().__init__(target_port)
        self.was_late = False
        self._late = late
        self._gone = asyncio.Event()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        _budget: _Budget,
        towards_target: bool,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not towards_target and not self.was_late and self._late in data:
                    self.was_late = True
                    await self._gone.wait()
                writer.write(data)
                await writer.drain()
                if towards_target and self.was_late and _DETACH in data:
                    self._gone.set()
        if towards_target and self.was_late:
            self._gone.set()


@contextmanager
def proxied(target_port: int) -> Iterator[CuttingProxy]:
    """One with a loop and a thread of its own, for tests that wait themselves. Its flags may be set at any time;
    `cut` resets what is open."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Coroutine[None, None, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(30)

    proxy = CuttingProxy(target_port)
    run(proxy.__aenter__())
    try:
        yield proxy
    finally:
        run(proxy.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def cut(proxy: CuttingProxy) -> None:
    """From another thread than the proxy's: everything that is open is reset, and nobody gets in."""
    proxy.refuses = True
    assert proxy._server is not None
    proxy._server.get_loop().call_soon_threadsafe(proxy.cut_all)


class _Budget:
    """Bytes a connection may still carry before it is cut."""

    def __init__(self, left: int | None) -> None:
        self._left = left

    def take(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        allowed = data[: self._left]
        self._left -= len(allowed)
        return allowed

    def is_spent(self) -> bool:
        return self._left == 0


async def _first_of(*work: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN: the peer sees a broken connection, not an end of file."""
    socket = writer.get_extra_info("socket")
    if socket is not None:
        with suppress(OSError):
            socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
