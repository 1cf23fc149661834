"""Whoever changes the subject, in the middle of the traffic; and whether the cell was hit by that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from busway.model.errors import BrokerError
from tests.changes.change import Step
from tests.changes.client import GaveUp
from tests.changes.kinds import is_topic
from tests.changes.record import StepTime

if TYPE_CHECKING:
    from tests.changes.world import World

#: So often each kind of work must have gone well, before the change and after it.
_OFTEN: Final = 2
_LOOK_S: Final = 0.001
#: Where nothing is under way for so long the change is made all the same.
_BUSY_S_MAX: Final = 0.1
_RECENT: Final = 60
_TRY_AGAIN_S: Final = 0.05
#: An operator has no hurry: messages come and go between the steps.
_BETWEEN_S: Final = 0.012
#: Changes that make an entity anew, or take its store away: locks do not outlive them.
_FORGETFUL: Final = ("ForwardTo", "ForwardDead", "store", "entity", "unsubscribed")


class Operator:
    def __init__(self, world: World) -> None:
        self._world = world
        self._record = world.record
        #: What it waits for.
        self.doing = ""

    async def run(self) -> None:
        world, change = self._world, self._world.cell.change
        await self._until_often(0.0, "before the change")
        await asyncio.sleep(world.chance.random() * 0.004)
        before = self._picture()
        for place, step in enumerate(change.steps()):
            await self._make(place, step, before)
            before = self._picture()
            if place + 1 < len(change.steps()):
                await asyncio.sleep(world.chance.random() * _BETWEEN_S)
        await self._until_often(self._record.now(), "after the change")

    async def _until_often(self, since: float, when: str) -> None:
        for kind in self._world.cell.traffic.work:
            self.doing = f"waits for '{kind}' {when}"
            while self._record.ended(kind, since) < _OFTEN:
                if self._record.now() > self._world.deadline:
                    raise GaveUp(f"the operator {self.doing}")
                await asyncio.sleep(_LOOK_S)

    async def _until_busy(self) -> None:
        """Something of this traffic is under way; whoever is kept waiting by the change itself is so too."""
        kinds, record = self._world.cell.traffic.work, self._record
        ends = record.now() + _BUSY_S_MAX
        while record.now() < ends:
            now = record.now()
            if any(
                work.kind in kinds and work.invoked <= now + _LOOK_S and work.done >= now
                for work in record.works[-_RECENT:]
            ):
                return
            await asyncio.sleep(_LOOK_S / 4)

    async def _make(self, place: int, step: Step, before: object) -> None:
        """Until it is done."""
        world, record = self._world, self._record
        await self._until_busy()
        time = StepTime(place, record.now())
        record.steps.append(time)
        self.doing = f"makes step {place} of '{world.cell.change.name}'"
        record.note(self.doing)
        while True:
            try:
                await step(world.administrator, world.subject)
            except BrokerError as error:
                record.note(f"step {place} refused: {type(error).__name__} {error.sentence}")
                record.count(f"step {type(error).__name__}")
                if record.now() > world.deadline:
                    raise GaveUp(f"the operator {self.doing}: {error.sentence}") from error
                await asyncio.sleep(_TRY_AGAIN_S)
            else:
                break
        time.done = record.now()
        time.is_effective = self._picture() != before
        record.note(f"step {place} done")
        if world.cell.change.name.startswith(_FORGETFUL):
            record.history.note_restart(time.invoked, time.done)

    def _picture(self) -> object:
        """Everything that a change may change."""
        namespace, hubs = self._world.namespace, self._world.hubs
        path = self._world.subject.path
        stores = (
            [row["state"] for row in namespace.stores.shown()],
            [each.path for each in namespace.queues()],
        )
        if hubs.exists(path):
            return hubs.description(path), stores
        if not namespace.exists(path):
            return None, stores
        topic = path.partition("/")[0]
        around = namespace.subscriptions(topic) if self._has_topic() else []
        rules = [namespace.rules.of(each.path) for each in around]
        return namespace.description(path), stores, around, rules

    def _has_topic(self) -> bool:
        kind = self._world.cell.kind
        return is_topic(kind) or kind.endswith("subscription")


def missed(world: World) -> list[str]:
    """Why the cell was not hit: the change must have taken place while this very traffic was under way."""
    record, traffic = world.record, world.cell.traffic
    if len(record.steps) < len(world.cell.change.steps()):
        return [f"{len(record.steps)} of {len(world.cell.change.steps())} steps were made"]
    reasons = []
    if not any(step.is_effective for step in record.steps):
        reasons.append("the change changed nothing")
    began, ended = record.steps[0].invoked, record.steps[-1].done
    for kind in traffic.work:
        works = [work for work in record.works if work.kind == kind]
        if not any(work.done <= began for work in works):
            reasons.append(f"no '{kind}' before it")
        if not any(work.invoked >= ended and work.done <= record.now() for work in works):
            reasons.append(f"no '{kind}' after it")
    if not any(
        work.kind in traffic.work and work.invoked <= step.done and work.done >= step.invoked
        for work in record.works
        for step in record.steps
    ):
        reasons.append("nothing was under way")
    return reasons
