"""Entities of a running server are changed in every way there is while the official SDK sends, schedules and receives
with its retries on; and every other time the server is killed in the middle of a change (kill -9).

Nothing that was acknowledged is lost, nothing is there twice where duplicates are detected, everything scheduled
comes, each change can be made and undone, and after each round every entity works again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from busway.client.atom_entries import BadAnswer
from busway.client.errors import ClientError
from busway.model.descriptions import QueueDescription
from busway.model.entity_path import subscription_path
from tests.changes.changes import CHANGES, WATCHED, Change, Subject
from tests.chaos.changing_load import Line
from tests.chaos.checker import Verdict
from tests.chaos.http_administrator import HttpAdministrator
from tests.chaos.scenario import Outcome, add_verdict, outcome
from tests.harness.running_server import RunningServer

NAME: Final = "changes under traffic"
_STORES: Final = 3
_ELSEWHERE: Final = "elsewhere"
_MOVES_PER_ROUND: Final = 6
_OTHERS_PER_ROUND: Final = 8
#: A step is refused for a while: stores come back, servers start.
_STEP_S_MAX: Final = 60.0
_TRY_AGAIN_S: Final = 0.1
#: After a round each line must send and receive something within this time.
_FLOW_S_MAX: Final = 40.0
_FLOW_MIN: Final = 8
#: In the order of a session nothing may be missing: what moves on, or dies of its deliveries, is.
_NOT_WITH_SESSIONS: Final = ("ForwardTo", "MaxDeliveryCount")
_DROPPING_LINES: Final = ("plain",)


def change_under_traffic(folder: Path, rounds: int, seed: int) -> Outcome:
    arguments = ("--stores", str(_STORES), "--partition-count", str(_STORES))
    with RunningServer(folder, *arguments) as server:
        return asyncio.run(_Run(server, random.Random(seed)).play(rounds))


def all_cells(folder: Path, rounds: int, seed: int) -> Outcome:
    """The whole matrix, in process."""
    from tests.changes.scenario import all_cells as play_all_cells

    return play_all_cells(folder, rounds, seed)


class _Task:
    """One change of one entity."""

    def __init__(self, line: Line, subject: Subject, change: Change) -> None:
        self.line = line
        self.subject = subject
        self.change = change

    @property
    def name(self) -> str:
        return f"{self.change.name} of {self.subject.path}"


class _Run:
    def __init__(self, server: RunningServer, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._lines = [
            Line(server, "plain", detects_duplicates=False, schedules=True),
            Line(server, "once"),
            Line(server, "talks", sessions=tuple(f"session-{number}" for number in range(4))),
            Line(server, "spread", is_partitioned=True),
            Line(server, "news", is_topic=True, schedules=True),
        ]
        self._wrong: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._killed_in: list[str] = []
        self._made: set[str] = set()
        #: Set while a step is under way.
        self._in_step = threading.Event()
        self._tasks: list[_Task] = []

    async def play(self, rounds: int) -> Outcome:
        subjects = await asyncio.to_thread(self._create)
        tasks = [
            _Task(line, subject, change) for line, subject in subjects for change in _possible(line, subject)
        ]
        self._chance.shuffle(tasks)
        # An entity that forwards elsewhere is loaded anew, with everything that is on its way: that more often.
        moving = itertools.cycle([task for task in tasks if "Forward" in task.change.name])
        others = itertools.cycle([task for task in tasks if "Forward" not in task.change.name])
        for line in self._lines:
            line.start()
        await self._flows("before the first round")
        done = 0
        for number in range(rounds):
            self._tasks = [*itertools.islice(moving, _MOVES_PER_ROUND)]
            self._tasks += itertools.islice(others, _OTHERS_PER_ROUND)
            self._chance.shuffle(self._tasks)
            done += await self._round(is_killed=number % 2 == 1)
        await asyncio.gather(*(line.stop() for line in self._lines))
        await self._restart(is_killed=False)  # whatever somebody still holds
        verdict = Verdict()
        for line in self._lines:
            add_verdict(verdict, await line.verdict())
        for what, count in self._wrong.items():
            verdict.violations[what] += [""] * count
        return outcome(NAME, done, rounds, verdict, self._note(len(tasks)))

    def _note(self, count: int) -> str:
        return (
            f"({len(self._made)} of {count} changes; steps: {dict(self._tries)};"
            f" killed in: {', '.join(self._killed_in)})"
        )

    # -- entities

    def _create(self) -> list[tuple[Line, Subject]]:
        administrator = self._administrator()
        made = asyncio.run(_made(administrator, self._lines))
        administrator.close()
        return made

    def _administrator(self) -> HttpAdministrator:
        return HttpAdministrator(self._server.connection_string, self._server.ca_file)

    # -- rounds

    async def _round(self, *, is_killed: bool) -> bool:
        changing = asyncio.create_task(asyncio.to_thread(self._change_all))
        if is_killed:
            await asyncio.sleep(self._chance.uniform(0.0, 1.0))
            await asyncio.to_thread(self._in_step.wait, _STEP_S_MAX)
            await asyncio.sleep(self._chance.uniform(0.0, 0.02))
            self._killed_in.append(self._doing)
            await self._restart(is_killed=True)
        await changing
        return await self._flows(f"after {', '.join(task.name for task in self._tasks)}")

    async def _restart(self, *, is_killed: bool) -> None:
        began = time.monotonic()
        await asyncio.to_thread(self._server.kill if is_killed else self._server.stop)
        for line in self._lines:
            line.note_restart(began, time.monotonic())
        await asyncio.to_thread(self._server.start)

    async def _flows(self, when: str) -> bool:
        before = [(line.acknowledged, line.completed) for line in self._lines]
        deadline = time.monotonic() + _FLOW_S_MAX
        while time.monotonic() < deadline:
            if all(
                line.acknowledged >= sent + _FLOW_MIN and line.completed >= received + _FLOW_MIN
                for line, (sent, received) in zip(self._lines, before, strict=True)
            ):
                return True
            await asyncio.sleep(0.05)
        stuck = [
            line.path
            for line, (sent, received) in zip(self._lines, before, strict=True)
            if line.acknowledged < sent + _FLOW_MIN or line.completed < received + _FLOW_MIN
        ]
        self._wrong[f"{', '.join(stuck)} stood still {when}"] += 1
        return False

    # -- the operator, in a thread

    _doing = ""

    def _change_all(self) -> None:
        administrator = self._administrator()
        try:
            asyncio.run(self._made_and_undone(administrator))
        finally:
            administrator.close()

    async def _made_and_undone(self, administrator: HttpAdministrator) -> None:
        for line in self._lines:
            administrator.know(made.description for made in line.made())
        for task in self._tasks:
            began = time.monotonic()
            for step in task.change.steps():
                await self._step(administrator, task, step)
                await asyncio.sleep(random.choice((0.0, 0.02, 0.2)))
            ended = time.monotonic()
            self._made.add(task.name)
            for line in self._lines if task.change.name == "store disabled" else [task.line]:
                line.note_restart(began, ended)
            if task.change.drops_messages:
                task.line.deletions.append((began, ended))

    async def _step(self, administrator: HttpAdministrator, task: _Task, step: object) -> None:
        assert callable(step)
        deadline = time.monotonic() + _STEP_S_MAX
        self._doing = task.name
        while True:
            self._in_step.set()
            try:
                await step(administrator, task.subject)
            except (ClientError, BadAnswer) as error:
                self._tries["refused or cut"] += 1
                if time.monotonic() > deadline:
                    self._wrong[f"{task.name} is refused for {_STEP_S_MAX:.0f} s: {error}"] += 1
                    return
                await asyncio.sleep(_TRY_AGAIN_S)
            else:
                self._tries["made"] += 1
                return
            finally:
                self._in_step.clear()


async def _made(administrator: HttpAdministrator, lines: list[Line]) -> list[tuple[Line, Subject]]:
    subjects: list[tuple[Line, Subject]] = []
    await administrator.create(QueueDescription(_ELSEWHERE))
    for line in lines:
        made = line.made()
        for each in made:
            await administrator.create(each.description)
        for target in line.targets_made():
            await administrator.create(target)
        store = administrator.store_of(line.path)
        kind = _KIND_OF[line.path]
        subjects.append((line, Subject(line.path, kind, line.targets, store, made, _ELSEWHERE)))
        if line.is_topic:
            watched = subscription_path(line.path, WATCHED)
            subjects.append(
                (line, Subject(watched, "subscription", line.targets, store, made[1:2], _ELSEWHERE))
            )
    return subjects


_KIND_OF: Final = {
    "plain": "queue",
    "once": "queue",
    "talks": "session queue",
    "spread": "partitioned queue",
    "news": "topic",
}


def _possible(line: Line, subject: Subject) -> list[Change]:
    return [
        change
        for change in CHANGES
        if subject.kind not in change.impossible
        and change.sku == "Standard"
        and not change.is_by_links
        and all(subject.usual(name) == value for name, value in change.needs.items())
        and not (change.drops_messages and line.path not in _DROPPING_LINES)
        and not (line.path == "talks" and change.name.startswith(_NOT_WITH_SESSIONS))
    ]
