"""What a crowd costs those beside it: the same work on a server full of things at rest and on an empty one.

The full server holds one queue with a million deferred messages, one session of a million messages in front of a
thousand small ones, and as many idle queues as a namespace may have. Its stores are filled through the store
contract in this process, before it starts; how messages come in is the business of other parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load
from benchmarks.measurement import Figure, cpu_s, measure, middle
from benchmarks.parts import Bench
from benchmarks.report import Report
from busway.broker.fragment.fragment import Fragment
from busway.broker.namespace.namespace import Namespace
from busway.client.service_bus_client import ServiceBusClient
from busway.clock import Clock, Entropy
from busway.data_directory import DataDirectory
from busway.message.message import NEVER_MS, PLACE_ACTIVE, PLACE_DEFERRED, Message
from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.limits import Limits
from busway.served_bus import STORES_DEFAULT
from busway.store.sqlite.store import SqliteStore

PLAIN, DEFERRED, SESSIONS = "plain", "deferred", "sessions"
ENDLESS = "endless"
COMMIT_ROWS = 20_000
BODY = b"\x00\x53\x75\xa0\x64" + b"x" * 100  # one data section
FACTOR_MAX = 1.5
#: Sessions accepted, and deferred messages fetched, in each round.
TURNS = 250


@dataclass(frozen=True)
class Crowd:
    deferred: int
    endless: int
    idle_queues: int
    small_sessions: int = 1_000


EMPTY = Crowd(deferred=1_000, endless=1, idle_queues=0)


def scale(bench: Bench, report: Report) -> None:
    """a million deferred messages, an endless session, 10,000 queues: what they cost the work beside them"""
    million = 100_000 if bench.quick else 1_000_000
    crowd = Crowd(deferred=million, endless=million, idle_queues=Limits().entities_max - 3)
    with BuswayServer(bench.folder / "few") as few, BuswayServer(bench.folder / "many") as many:
        for server, held in ((few, EMPTY), (many, crowd)):
            asyncio.run(_fill(server, held))
            server.start()  # the first start makes certificates
        few_s, many_s = _start(few), _start(many)
        report.note("start with next to nothing", f"{few_s:.2f} s, {few.rss_mib():.0f} MiB")
        title = f"{million:,} deferred, a session of {million:,}, {Limits().entities_max:,} queues"
        report.within(f"start with {title}", many_s, 2.0, "s")
        _compare_traffic(bench, report, few, many, PLAIN, "beside")
        _compare_traffic(bench, report, few, many, DEFERRED, "in the queue with")
        rounds = min(bench.rounds, EMPTY.small_sessions // TURNS - 1)
        _compare(report, few, many, "accept the next session", _accept_sessions, rounds)
        _compare(report, few, many, "receive a deferred message", _fetch_deferred, rounds)
        report.within(f"RSS with {title}, after all that", many.rss_mib(), 250, "MiB")


def _start(server: BuswayServer) -> float:
    """The quickest of three: whatever else the machine does only adds to it."""
    seconds: list[float] = []
    for _ in range(3):
        server.stop()
        seconds.append(server.start())
    return min(seconds)


def _compare_traffic(
    bench: Bench, report: Report, few: BuswayServer, many: BuswayServer, queue: str, where: str
) -> None:
    load = Load(messages=20_000)
    found: dict[tuple[BuswayServer, str], list[Figure]] = {}
    for _ in range(bench.rounds):
        for server in (few, many):
            for mode in ("send", "recv"):
                found.setdefault((server, mode), []).append(measure(server.target(queue), mode, load))
    for mode, verb in (("send", "send"), ("recv", "receive")):
        few_us, many_us = (middle(found[server, mode]).cpu_us for server in (few, many))
        metric = f"{verb} {where} the crowd, against an empty server"
        report.at_most(metric, many_us, few_us, FACTOR_MAX, "µs/message")


Turns = Callable[[ServiceBusClient, int], Awaitable[None]]


def _compare(
    report: Report, few: BuswayServer, many: BuswayServer, what: str, turns: Turns, rounds: int
) -> None:
    """The server's CPU for each turn, in interleaved rounds."""
    spent = {few: 0.0, many: 0.0}
    for number in range(rounds):
        for server in spent:
            begun = cpu_s(server.server.pid)
            asyncio.run(_with_client(server, turns, number))
            spent[server] += cpu_s(server.server.pid) - begun
    few_us, many_us = (seconds / rounds / TURNS * 1e6 for seconds in spent.values())
    report.at_most(f"{what} in the crowd, against an empty server", many_us, few_us, FACTOR_MAX, "µs each")


async def _with_client(server: BuswayServer, turns: Turns, number: int) -> None:
    async with ServiceBusClient.from_connection_string(server.server.connection_string) as client:
        await turns(client, number)


async def _accept_sessions(client: ServiceBusClient, number: int) -> None:
    """While somebody holds the endless session, which is the first in line."""
    del number
    async with client.get_queue_receiver(SESSIONS, session_id=ENDLESS):
        for _ in range(TURNS):
            async with client.get_queue_receiver(SESSIONS, session_id=True, session_wait=5) as receiver:
                [message] = await receiver.receive_messages()
                await receiver.complete_message(message)


async def _fetch_deferred(client: ServiceBusClient, number: int) -> None:
    management = client.get_management(DEFERRED)
    first = 1 + number * TURNS
    for wanted in range(first, first + TURNS):
        await management.receive_deferred_messages([wanted], deletes=True)


# -- filling


async def _fill(server: BuswayServer, crowd: Crowd) -> None:
    directory = DataDirectory(server.server.data)
    directory.acquire()
    stores = [
        SqliteStore(f"store-{number}", directory.stores / f"store-{number}.db", Clock())
        for number in range(STORES_DEFAULT)
    ]
    namespace = Namespace("busway", stores, Clock(), Entropy(), Limits())
    try:
        await namespace.open()
        await namespace.create([NewEntity(each) for each in list(_queues(crowd))])
        await _put(namespace.queue(DEFERRED).main, _messages(crowd.deferred), PLACE_DEFERRED)
        await _put(namespace.queue(SESSIONS).main, _session_messages(crowd), PLACE_ACTIVE)
    finally:
        await namespace.close()
        directory.release()


def _queues(crowd: Crowd) -> Iterator[QueueDescription]:
    yield QueueDescription(PLAIN)
    yield QueueDescription(DEFERRED)
    yield QueueDescription(SESSIONS, requires_session=True)
    for number in range(crowd.idle_queues):
        yield QueueDescription(f"idle-{number}")


def _messages(count: int, session_id: str | None = None) -> Iterator[Message]:
    for _ in range(count):
        yield Message(b"", BODY, session_id=session_id)


def _session_messages(crowd: Crowd) -> Iterator[Message]:
    """The endless session comes first; whoever looks for the next one meets it."""
    yield from _messages(crowd.endless, ENDLESS)
    for number in range(crowd.small_sessions):
        yield from _messages(1, f"small-{number}")


async def _put(fragment: Fragment, messages: Iterator[Message], place: int) -> None:
    counters, now_ms = fragment.counters, fragment.runtime.clock.wall_ms()
    while run := list(islice(messages, COMMIT_ROWS)):
        batch = fragment.store.batch()
        for message in run:
            counters.last_counter += 1
            message.sequence_number = counters.last_counter
            message.enqueued_at_ms, message.state = now_ms, place
            counters.bytes += message.size()
            batch.puts.append((fragment.key, place, message))
            if message.session_id is not None:
                batch.session_entries.append((fragment.key, message.session_id, message.sequence_number))
        if place == PLACE_ACTIVE:
            counters.active += len(run)
            counters.expiry_high_ms = NEVER_MS
        else:
            counters.deferred += len(run)
        batch.counters[fragment.key] = counters
        await fragment.store.flush()
