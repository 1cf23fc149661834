"""F7: a disk that hangs, and a server that is stopped for longer than a lock lasts.

While every sync takes its time the event loop must not: another connection's requests are answered at once. A lock
that ended while the server stood still is never settled with success, whenever the settlement was sent.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import threading
import time
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from tests.chaos.mixed_load import MixedLoad
from tests.chaos.provision import LOCK_S, create_queue
from tests.chaos.scenario import Outcome, outcome
from tests.chaos.syscall_faults import SyscallFault, why_not_here
from tests.chaos.workload import BROKEN
from tests.harness.running_server import RunningServer

NAME = "hanging disk, stopped server"
#: (each sync takes, for so long)
DELAYS_S = ((0.2, 5.0), (1.0, 6.0))
STOPPED_S = 70.0
ANSWER_S_MAX = 0.3
ANSWERS_MIN = 30


def slow_disk(folder: Path, rounds: int, seed: int) -> Outcome:
    folder.mkdir(exist_ok=True)
    return asyncio.run(_slow_disk(folder, rounds, seed))


async def _slow_disk(folder: Path, rounds: int, _: int) -> Outcome:
    reason = why_not_here(folder)
    note = f"(slow syncs skipped: {reason})" if reason else ""
    done = 0
    with RunningServer(folder) as server:
        load = MixedLoad(server, "stall")
        load.create_queues()
        load.start()
        faults: list[str] = []
        await load.wait_for_work(20)
        for delay_s, seconds in DELAYS_S[: rounds - 1] if not reason else ():
            slowest = await _hang(server, folder, delay_s, seconds, faults)
            note += f"(syncs of {delay_s} s: answers within {slowest * 1000:.0f} ms)"
            done += 1
        await load.stop()
        verdict = await load.verdict()
        fault = await settle_after_a_stop(server)
        done += 1
    for what in [*faults, *([fault] if fault else [])]:
        verdict.found(what, "")
    return outcome(NAME, done, done if reason else rounds, verdict, note)


async def _hang(
    server: RunningServer, folder: Path, delay_s: float, seconds: float, faults: list[str]
) -> float:
    """The slowest of 95 % of the answers; the rest is the machine's."""
    fault = SyscallFault(server.pid, f"fdatasync,fsync:delay_enter={int(delay_s * 1e6)}", folder)
    await asyncio.to_thread(fault.__enter__)
    try:
        answers = await asyncio.to_thread(ask_for, server, seconds)
    finally:
        await asyncio.to_thread(fault.__exit__)
    if not fault.injected() or len(answers) < ANSWERS_MIN:
        faults.append(f"too little happened: {fault.injected()} slow syncs, {len(answers)} answers")
        return 0.0
    slowest = sorted(answers)[int(len(answers) * 0.95)]
    if slowest > ANSWER_S_MAX:
        faults.append(f"answers took {slowest:.2f} s while a sync hung")
    return slowest


def ask_for(server: RunningServer, seconds: float) -> list[float]:
    """How long HTTP requests on a connection of their own took."""
    took: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        connection.request("GET", "/nobody-is-here")
        connection.getresponse().read()
        took.append(time.monotonic() - began)
        time.sleep(0.03)
    connection.close()
    return took


def stopped_for_long(folder: Path, rounds: int, seed: int) -> Outcome:
    return asyncio.run(_stopped_for_long(folder, rounds, seed))


async def _stopped_for_long(folder: Path, rounds: int, _: int) -> Outcome:
    """F7: longer than locks, calls and idle time-outs of clients last. They come back by themselves."""
    done = 0
    with RunningServer(folder) as server:
        load = MixedLoad(server, "stop")
        load.create_queues()
        load.start()
        for _round in range(rounds):
            enough = await load.wait_for_work(20)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(STOPPED_S)
            finally:
                os.kill(server.pid, signal.SIGCONT)
            done += enough and await load.wait_for_work(20, seconds_max=30)
        await load.stop()
        verdict = await load.verdict()
    return outcome(f"server stopped for {STOPPED_S:.0f} s", done, rounds, verdict)


async def settle_after_a_stop(server: RunningServer) -> str | None:
    """The client settles in time, but the server stands still until the lock is over. None when all is well."""
    create_queue(server, "stopped")
    async with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client:
        async with client.get_queue_sender("stopped") as sender:
            await sender.send_messages(ServiceBusMessage("held"))
        async with client.get_queue_receiver("stopped") as receiver:
            message = (await receiver.receive_messages(max_wait_time=5))[0]
            os.kill(server.pid, signal.SIGSTOP)
            waking = threading.Timer(LOCK_S + 1.0, os.kill, (server.pid, signal.SIGCONT))
            waking.start()
            try:
                await receiver.complete_message(message)
                settled = True
            except BROKEN:
                settled = False
            finally:
                await asyncio.to_thread(waking.join)
        if settled:
            return "an expired lock was settled"
        async with client.get_queue_receiver("stopped") as receiver:
            again = await receiver.receive_messages(max_wait_time=10)
            for found in again:
                await receiver.complete_message(found)
    if [str(found) for found in again] != ["held"] or again[0].delivery_count != 1:
        return f"the message of an expired lock came back as {[str(found) for found in again]}"
    return None
