"""F1, F5, F9 for stores in PostgreSQL: its processes are killed, stopped and cut off, again and again, under load.

What is over within the patience of a commit (5 s), nobody sees: no send fails, no store fails. What lasts longer
fails sends for the moment, and everything flows again by itself. After each run nothing is lost or double, and the
database's own books are right (`database_books`).
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg

from tests.chaos.checker import Verdict
from tests.chaos.database_books import wrong_books
from tests.chaos.history import OK, Operation
from tests.chaos.mixed_load import MixedLoad
from tests.chaos.scenario import Outcome, outcome
from tests.chaos.server_log import store_failures
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.postgres_server import NoPostgres, PostgresServer, programs
from tests.harness.running_server import RunningServer

#: A round counts only when at least so many sends were acknowledged before it and after it.
ACKNOWLEDGED_MIN: Final = 30
#: A fault that was over so soon is seen by nobody. Patience is 5 s from when a commit was sent.
UNSEEN_S: Final = 4.0
_PAUSE_S: Final = (0.2, 3.0)
_LONG_PAUSE_S: Final = (6.5, 9.0)
_BACK_S_MAX: Final = 40.0
#: What fails so soon behind a fault failed by it.
_AFTER_S: Final = 1.0
_STORES: Final = 4
#: A cut comes within so many bytes: several commits.
_SENT_BYTES: Final = 40_000
_ANSWERED_BYTES: Final = 2_000

#: When it began and when the database could be used again.
Span = tuple[float, float]
Fault = Callable[["_Run"], Awaitable[Span]]


def killed(folder: Path, rounds: int, seed: int) -> Outcome:
    """kill -9 of PostgreSQL, of the server, of both."""
    return _played(
        "PostgreSQL killed", (_kill_database, _kill_database, _kill_server, _kill_both), folder, rounds, seed
    )


def paused(folder: Path, rounds: int, seed: int) -> Outcome:
    """SIGSTOP of PostgreSQL, for less and for more than the patience, and of the one process that commits."""
    return _played(
        "PostgreSQL stopped", (_pause, _pause, _pause_committing, _pause_long), folder, rounds, seed
    )


def cut(folder: Path, rounds: int, seed: int) -> Outcome:
    """Connections between server and PostgreSQL cut: all at once, and in the middle of a message, either way."""
    return _played(
        "PostgreSQL cut off", (_cut_sent, _cut_answers, _cut_all, _unreachable), folder, rounds, seed
    )


def _played(name: str, faults: tuple[Fault, ...], folder: Path, rounds: int, seed: int) -> Outcome:
    try:
        programs()
    except NoPostgres as error:
        return Outcome(name, 0, rounds, skipped=str(error))
    with PostgresServer() as database:
        return asyncio.run(_Run(database, folder, random.Random(seed)).play(name, faults, rounds))


class _Run:
    def __init__(self, database: PostgresServer, folder: Path, chance: random.Random) -> None:
        self.database = database
        self.chance = chance
        self._folder = folder
        self.url = database.database()
        self.proxy: CuttingProxy
        self.server: RunningServer
        self.load: MixedLoad
        #: Of faults that nobody may see.
        self.unseen: list[Span] = []
        #: Of the others.
        self.seen: list[Span] = []
        self._kinds: Counter[str] = Counter()

    async def play(self, name: str, faults: tuple[Fault, ...], rounds: int) -> Outcome:
        async with CuttingProxy(self.database.port, seed=self.chance.randrange(1 << 30)) as self.proxy:
            parts = urlsplit(self.url)
            through = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.proxy.port}"))
            self.server = RunningServer(self._folder, "--store", f"{through}?stores={_STORES}&name=chaos")
            await asyncio.to_thread(self.server.start)
            try:
                return await self._play(name, faults, rounds)
            finally:
                await asyncio.to_thread(self.server.__exit__)

    async def _play(self, name: str, faults: tuple[Fault, ...], rounds: int) -> Outcome:
        self.load = MixedLoad(self.server, "database")
        await asyncio.to_thread(self.load.create_queues)
        self.load.start()
        done = 0
        for number in range(rounds):
            if not await self.load.wait_for_work(ACKNOWLEDGED_MIN, seconds_max=_BACK_S_MAX):
                continue
            await asyncio.sleep(self.chance.uniform(0.0, 0.3))
            fault = faults[number % len(faults)]
            span = await fault(self)
            self._kinds[fault.__name__.strip("_").replace("_", " ")] += 1
            done += await self.load.wait_for_work(ACKNOWLEDGED_MIN, seconds_max=_BACK_S_MAX)
            is_unseen = span[1] - span[0] <= UNSEEN_S and fault not in _ENDS_THE_SERVER
            (self.unseen if is_unseen else self.seen).append(span)
        await self.load.stop()
        failures = store_failures(self.server.log.read_text())
        for began, ended in [span for spans in failures.values() for span in spans]:
            self.load.note_restart(began, ended)
        failed = failed_sends(self.load.sends())
        verdict = await self.load.verdict()
        await asyncio.to_thread(self.server.stop)
        note_seen(
            verdict, self.unseen, self.seen, failed, [span for spans in failures.values() for span in spans]
        )
        for sentence in await asyncio.to_thread(wrong_books, self.url):
            verdict.found("the database's books are wrong", sentence)
        kinds = ", ".join(f"{count} {kind}" for kind, count in self._kinds.items())
        return outcome(name, done, rounds, verdict, f"({kinds}; {len(self.unseen)} to be seen by nobody)")


def failed_sends(sends: list[Operation]) -> list[Span]:
    """When each was under way."""
    return sorted({(send.invoked, send.done) for send in sends if send.result != OK})


def note_seen(
    verdict: Verdict, unseen: list[Span], seen: list[Span], sends: list[Span], failures: list[Span]
) -> None:
    """Sends and stores that failed by a fault that nobody may see, unless another one is to blame."""
    for what, spans in (("send", sends), ("store", failures)):
        for span in spans:
            by = [each for each in unseen if _meet(span, each)]
            if by and not any(_meet(span, other) for other in seen):
                began = by[0][0]
                text = f"from {span[0] - began:.2f} to {span[1] - began:.2f} s of one of {by[0][1] - began:.2f} s"
                verdict.found(f"a short fault of PostgreSQL fails no {what}", text)


def _meet(span: Span, fault: Span) -> bool:
    return fault[0] <= span[1] and span[0] <= fault[1] + _AFTER_S


# -- faults: each returns when the database can be used again


def _now() -> float:
    return time.monotonic()


async def _kill_database(run: _Run) -> Span:
    began = _now()
    await asyncio.to_thread(run.database.kill)
    await asyncio.sleep(run.chance.uniform(0.0, 1.0))
    await asyncio.to_thread(run.database.start)
    return began, _now()


async def _kill_server(run: _Run) -> Span:
    began = _now()
    await asyncio.to_thread(run.server.kill)
    run.load.note_restart(began, _now())
    await asyncio.to_thread(run.server.start)
    return began, _now()


async def _kill_both(run: _Run) -> Span:
    began = _now()
    await asyncio.to_thread(run.server.kill)
    run.load.note_restart(began, _now())
    await asyncio.to_thread(run.database.kill)
    await asyncio.to_thread(run.database.start)
    await asyncio.to_thread(run.server.start)
    return began, _now()


async def _pause(run: _Run) -> Span:
    return await _paused(run, run.chance.uniform(*_PAUSE_S))


async def _pause_long(run: _Run) -> Span:
    return await _paused(run, run.chance.uniform(*_LONG_PAUSE_S))


async def _paused(run: _Run, seconds: float) -> Span:
    began = _now()
    await asyncio.to_thread(run.database.pause)
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(run.database.resume)
    return began, _now()


async def _pause_committing(run: _Run) -> Span:
    """The server opens another session and goes on; what lies in the socket of this one comes too late."""
    began = _now()
    stopped = [psutil.Process(pid) for pid in await asyncio.to_thread(committing, run.url)]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(run.chance.uniform(*_LONG_PAUSE_S))
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
    return began, _now()


def committing(url: str) -> list[int]:
    """The processes of sessions that commit."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'busway' AND pid <> pg_backend_pid()"
            " AND query !~ '^SELECT'"
        ).fetchall()
    return [pid for (pid,) in rows]


async def _cut_sent(run: _Run) -> Span:
    return await _cut_within(run, towards_target=True)


async def _cut_answers(run: _Run) -> Span:
    return await _cut_within(run, towards_target=False)


async def _cut_within(run: _Run, *, towards_target: bool) -> Span:
    began, cuts = _now(), run.proxy.cuts
    run.proxy.cut_after(
        run.chance.randrange(1, _SENT_BYTES if towards_target else _ANSWERED_BYTES),
        towards_target=towards_target,
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(run.proxy.wait_for_cuts(cuts + 1), UNSEEN_S - 1)
    return began, _now()


async def _cut_all(run: _Run) -> Span:
    began = _now()
    for _ in range(run.chance.randrange(1, 4)):
        run.proxy.cut_all()
        await asyncio.sleep(run.chance.uniform(0.0, 0.3))
    return began, _now()


async def _unreachable(run: _Run) -> Span:
    """Connections are cut as soon as they are made."""
    began = _now()
    until = began + run.chance.uniform(*_PAUSE_S)
    while _now() < until:
        run.proxy.cut_all()
        await asyncio.sleep(0.02)
    return began, _now()


_ENDS_THE_SERVER: Final = (_kill_server, _kill_both)
