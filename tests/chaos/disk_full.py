"""F6: a full disk is no outage. Sends are refused, everything that makes room works, and it heals by itself."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusQuotaExceededError

from tests.chaos.checker import Verdict, check
from tests.chaos.history import FAIL, OK, History, Operation
from tests.chaos.provision import create_queue, stored_messages
from tests.chaos.scenario import Outcome, add_verdict, outcome
from tests.harness.running_server import RunningServer

NAME = "full disk"
DISK_MIB = 112
BODY_BYTES = 200_000
SENDS_MAX = 2_000
COMPLETED_FIRST = 5
HEAL_S_MAX = 15.0
DRAIN_S_MAX = 60.0


class SmallDisk:
    """A tmpfs of a few MiB."""

    def __init__(self, folder: Path, mib: int = DISK_MIB) -> None:
        self.path = folder / "small"
        self._mib = mib

    def why_not(self) -> str | None:
        """Mounts it; the reason where that is refused."""
        if os.geteuid() != 0:
            return "needs root for mounts"
        self.path.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._mib}m", "tmpfs", str(self.path)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        return f"tmpfs refused: {mounted.stderr.strip()}" if mounted.returncode else None

    def fill_up(self) -> None:
        """Somebody else takes the rest."""
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(65_536))
            except OSError:
                return

    def make_room(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.path)], capture_output=True, check=False)


def fill_and_drain(folder: Path, rounds: int, _: int) -> Outcome:
    disk = SmallDisk(folder)
    reason = disk.why_not()
    if reason is not None:
        return Outcome(NAME, 0, rounds, skipped=reason)
    server = RunningServer(folder / "server", "--stores", "1")
    server.data = disk.path / "data"
    together = Verdict()
    try:
        server.start()
        create_queue(server, "full")
        for number in range(rounds):
            add_verdict(together, one_round(server, disk, f"round-{number}"))
    finally:
        server.__exit__()
        disk.unmount()
    return outcome(NAME, rounds, rounds, together)


def one_round(server: RunningServer, disk: SmallDisk, run: str) -> Verdict:
    history = History()
    wrong: list[str] = []
    with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client:
        with client.get_queue_sender("full") as sender:
            if not send_until_refused(sender, history, run):
                wrong.append("never refused")
            disk.fill_up()
            time.sleep(0.6)  # two looks at the free space: the reserve is given back
            wrong += _use_when_full(client, history)
            disk.make_room()
            if not sends_again(sender, history, f"{run}-after"):
                wrong.append("no send is accepted though there is room again")
        if not _drain_all(server, client, history):
            wrong.append("what is stored never comes")
    verdict = check(history)
    for what in wrong:
        verdict.found(what, run)
    return verdict


def send_until_refused(sender: ServiceBusSender, history: History, run: str) -> bool:
    return any(not send_one(sender, history, f"{run}-{number}") for number in range(SENDS_MAX))


def send_one(sender: ServiceBusSender, history: History, value: str) -> bool:
    invoked = time.monotonic()
    try:
        sender.send_messages(ServiceBusMessage(f"{value}:" + "x" * BODY_BYTES))
        result = OK
    except ServiceBusQuotaExceededError:
        result = FAIL
    history.add(Operation("send", value, invoked, time.monotonic(), result))
    return result == OK


def sends_again(sender: ServiceBusSender, history: History, run: str) -> bool:
    deadline = time.monotonic() + HEAL_S_MAX
    number = 0
    while not send_one(sender, history, f"{run}-{number}"):
        if time.monotonic() > deadline:
            return False
        number += 1
        time.sleep(0.1)
    return True


def _use_when_full(client: ServiceBusClient, history: History) -> list[str]:
    """Peek, complete, then empty the queue, all on the full disk."""
    with client.get_queue_receiver("full") as receiver:
        peeked = receiver.peek_messages(max_message_count=3)
        held = receiver.receive_messages(max_message_count=COMPLETED_FIRST, max_wait_time=5)
        for message in held:
            value, number = _value(message), message.sequence_number or 0
            now = time.monotonic()
            history.add(Operation("receive", value, now, now, OK, sequence=number))
            receiver.complete_message(message)
            history.add(Operation("complete", value, now, time.monotonic(), OK))
    wrong = [] if peeked else ["peek gives nothing on a full disk"]
    wrong += [] if held else ["nothing can be received on a full disk"]
    return wrong + ([] if _drain(client, history) else ["nothing can be drained on a full disk"])


def _drain_all(server: RunningServer, client: ServiceBusClient, history: History) -> bool:
    """Until the server's own books are at zero."""
    deadline = time.monotonic() + DRAIN_S_MAX
    while time.monotonic() < deadline:
        _drain(client, history)
        if stored_messages(server, "full") == (0, 0):
            return True
    return False


def _drain(client: ServiceBusClient, history: History) -> int:
    """Under a lock: what is on its way when the look ends comes to the next one."""
    drained = 0
    with client.get_queue_receiver("full") as receiver:
        while batch := receiver.receive_messages(max_message_count=50, max_wait_time=1):
            for message in batch:
                now = time.monotonic()
                history.add(
                    Operation("drain", _value(message), now, now, OK, sequence=message.sequence_number or 0)
                )
                with suppress(MessageLockLostError):
                    receiver.complete_message(message)
                    drained += 1
    return drained


def _value(message: object) -> str:
    """A body that has changed shows as a value nobody sent."""
    value, _, filler = str(message).partition(":")
    return value if filler == "x" * BODY_BYTES else f"changed {value}"
