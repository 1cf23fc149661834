"""F11: one store of four hangs in its syncs, fails in them, or is taken out of service, again and again, under keyed
and keyless traffic on partitioned entities.

Meanwhile every other fragment accepts, messages without a key go elsewhere, those with a key of the lost fragment are
refused at once and for the moment only, and the entity says that it is limited. Afterwards everything flows again
without a restart, and nothing is lost, double or out of its key's order.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Final

from azure.servicebus.management import ServiceBusAdministrationClient

from busway.client.administration import ServiceBusAdministrationClient as Administration
from tests.chaos.fairness import worst_ratio
from tests.chaos.history import FAIL, INFO, OK
from tests.chaos.scenario import Outcome, outcome
from tests.chaos.server_log import store_failures
from tests.chaos.spread_load import FRAGMENTS, KEYS, QUEUE, TOPIC, SpreadLoad
from tests.chaos.syscall_faults import SyscallFault, why_not_here
from tests.harness.running_server import BUSWAY, RunningServer

NAME: Final = "one store of four goes"
HANGS, FAILS, DISABLED = "hangs", "fails", "out of service"
#: How long a fault lasts at least, and at most until the others have shown that they go on.
FAULT_S: Final = 1.0
FAULT_S_MAX: Final = 12.0
HEAL_S_MAX: Final = 20.0
#: A refusal that takes longer than this is none that comes at once; the machine is busy.
REFUSAL_S_MAX: Final = 1.5
KEYLESS_MIN: Final = 5
_HANG_US: Final = 30_000_000


def stores_come_and_go(folder: Path, rounds: int, seed: int) -> Outcome:
    folder.mkdir(exist_ok=True)
    reason = why_not_here(folder)
    kinds = (HANGS, FAILS, DISABLED) if reason is None else (DISABLED,)
    stores = str(FRAGMENTS)
    with RunningServer(folder, "--stores", stores, "--partition-count", stores) as server:
        return asyncio.run(_Run(server, kinds, random.Random(seed), reason).play(rounds))


class _Run:
    def __init__(
        self, server: RunningServer, kinds: tuple[str, ...], chance: random.Random, reason: str | None
    ) -> None:
        self._server = server
        self._load = SpreadLoad(server)
        self._kinds = kinds
        self._chance = chance
        self._reason = reason
        self._wrong: Counter[str] = Counter()
        #: By kind the longest time that a keyed send to the lost fragment waited for its answer.
        self._slowest_s = dict.fromkeys(kinds, 0.0)
        self._seen: Counter[str] = Counter()
        #: How much older than is usual the oldest message of a fragment became while all was well.
        self._unfairness = 0.0

    async def play(self, rounds: int) -> Outcome:
        done = 0
        self._unfairness = await worst_ratio(self._server)
        await asyncio.to_thread(self._load.create)
        self._load.start()
        for number in range(rounds):
            kind = self._kinds[number % len(self._kinds)]
            done += await self._round(kind, f"store-{self._chance.randrange(FRAGMENTS)}")
        await self._load.stop()
        self._note_failures()
        verdict = await self._load.verdict()
        for what, count in self._wrong.items():
            verdict.violations[what] += [""] * count
        return outcome(NAME, done, rounds, verdict, self._note())

    def _note(self) -> str:
        slowest = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in self._slowest_s.items())
        seen = ", ".join(f"{count} {what}" for what, count in sorted(self._seen.items()))
        left_out = f"; only {DISABLED}: {self._reason}" if self._reason else ""
        return (
            f"(keyed sends to the lost fragment: {seen}; slowest answer: {slowest}; oldest message of a fragment:"
            f" {self._unfairness:.2f} of the median{left_out})"
        )

    def _note_failures(self) -> None:
        """A store that fails forgets its locks."""
        for failures in store_failures(self._server.log.read_text()).values():
            for began, ended in failures:
                self._load.note_restart(began, ended)

    async def _round(self, kind: str, store: str) -> bool:
        if not await self._flows_since(time.monotonic(), ()):
            self._wrong[f"before a fault ({kind}) not everything flowed"] += 1
            return False
        lost = await asyncio.to_thread(self._fragment_in, store)
        fault = _FAULTS[kind](self._server, store)
        asked = time.monotonic()
        await asyncio.to_thread(fault.begin)
        began = time.monotonic()
        others_go_on = await self._flows_since(began, (lost,))
        await asyncio.sleep(max(0.0, began + FAULT_S - time.monotonic()))
        if kind != HANGS:
            await self._check_limited(kind)
        ended = time.monotonic()
        await asyncio.to_thread(fault.end)
        if kind == DISABLED:
            self._load.note_restart(asked, began)
        if not others_go_on:
            self._wrong[f"while a store {kind} not all other fragments accepted"] += 1
        heals = await self._flows_since(time.monotonic(), ())
        if not heals:
            self._wrong[f"after a store {kind} not everything flowed again"] += 1
        self._check_lost(kind, KEYS[lost], began, ended)
        return others_go_on and heals

    def _fragment_in(self, store: str) -> int:
        with Administration.from_connection_string(self._server.connection_string) as administration:
            places = [administration.fragments(path) for path in (QUEUE, TOPIC)]
        found = {int(str(each["index"])) for place in places for each in place if each["store"] == store}
        assert len(found) == 1, "queue and topic have the fragment of an index in the same store"
        return found.pop()

    async def _flows_since(self, moment: float, without: tuple[int, ...]) -> bool:
        """Each key but those of the lost fragments is accepted by queue and topic, and so is what has no key."""
        keys = [key for index, key in enumerate(KEYS) if index not in without]
        wanted = {f"{path} {key}": 1 for path in (QUEUE, TOPIC) for key in keys}
        wanted |= {QUEUE: KEYLESS_MIN, TOPIC: KEYLESS_MIN}

        def flows() -> bool:
            accepted = self._load.accepted_since(moment)
            return all(accepted.get(name, 0) >= count for name, count in wanted.items())

        return await self._load.wait_for(flows, FAULT_S_MAX if without else HEAL_S_MAX)

    async def _check_limited(self, kind: str) -> None:
        """P-61. A failing store comes and goes, so it is looked at until it has been seen away."""
        deadline = time.monotonic() + HEAL_S_MAX
        while time.monotonic() < deadline:
            if set(await asyncio.to_thread(self._availability)) == {"Limited"}:
                return
        self._wrong[f"while a store {kind} nobody was told so"] += 1

    def _availability(self) -> list[str]:
        with ServiceBusAdministrationClient.from_connection_string(
            self._server.connection_string, connection_verify=self._server.ca_file
        ) as management:
            found = (management.get_queue(QUEUE), management.get_topic(TOPIC))
        return [str(each.availability_status) for each in found]

    def _check_lost(self, kind: str, key: str, began: float, ended: float) -> None:
        """P-25: sends with a key of a lost store are refused, soon, and none is stored elsewhere."""
        sends = [send for send in self._load.sends_since(began, key) if send.invoked < ended]
        for send in sends:
            self._seen[f"{send.result} while it {kind}"] += 1
            took_s = send.done - send.invoked
            self._slowest_s[kind] = max(self._slowest_s[kind], took_s)
            if send.result == FAIL and took_s > REFUSAL_S_MAX:
                self._wrong[f"a refusal took {took_s:.1f} s while a store {kind}"] += 1
            if kind == DISABLED and send.done < ended and send.result in (OK, INFO):
                self._wrong[f"{send.result} for a key whose store is out of service"] += 1
        if kind == DISABLED and not sends:
            self._wrong["nobody sent with the key of the lost store"] += 1


class _SyncFault:
    """Every sync of one store's log."""

    _injection = ""

    def __init__(self, server: RunningServer, store: str) -> None:
        log = server.data / "stores" / f"{store}.db-wal"
        self._fault = SyscallFault(server.pid, self._injection, server.folder, files=[log])

    def begin(self) -> None:
        self._fault.__enter__()

    def end(self) -> None:
        self._fault.__exit__()


class _Hang(_SyncFault):
    _injection = f"fdatasync,fsync:delay_enter={_HANG_US}"


class _Fail(_SyncFault):
    _injection = "fdatasync,fsync:error=EIO"


class _Disable:
    """By the command that an operator has."""

    def __init__(self, server: RunningServer, store: str) -> None:
        self._server = server
        self._store = store

    def begin(self) -> None:
        self._run("disable")

    def end(self) -> None:
        self._run("enable")

    def _run(self, verb: str) -> None:
        command = [str(BUSWAY), "stores", verb, self._store, "--data", str(self._server.data)]
        subprocess.run(command, check=True, capture_output=True, timeout=30)


_FAULTS: Final[dict[str, type[_SyncFault] | type[_Disable]]] = {
    HANGS: _Hang,
    FAILS: _Fail,
    DISABLED: _Disable,
}
