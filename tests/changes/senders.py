"""Clients that send: single messages, batches, scheduled ones, duplicates, and some that expire."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from busway.broker.entity.entity import Queue, Topic
from busway.model.errors import BrokerError
from tests.changes.client import Answer, Client, SendLink
from tests.changes.messages import Draft
from tests.chaos.history import FAIL, INFO

if TYPE_CHECKING:
    from tests.changes.world import World

_FAR_S: Final = 15.0


class Sender(Client):
    """One send after the other, each repeated until it is accepted."""

    kind = "send"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._link: SendLink | None = None
        self._entity: Queue | Topic | None = None

    async def act(self) -> None:
        drafts = [self.world.draft() for _ in range(self.chance.choice((1, 1, 2, 4)))]
        await self.send(drafts)

    def leave(self) -> None:
        if self._link is not None and self._entity is not None and not self._link.is_gone:
            self._entity.detach(self._link)

    def attached(self) -> Queue | Topic:
        """Raises why it cannot be attached to."""
        if self._link is None or self._link.is_gone or self._entity is None:
            link = SendLink()
            entity = self.world.namespace.sender(self.world.send_path)
            entity.attach(link, sends=True)
            self._link, self._entity = link, entity
        return self._entity

    async def send(self, drafts: list[Draft], kind: str = "") -> None:
        """Until all of them are accepted."""
        work = self.record.begin(kind or self.kind)
        left = drafts
        while left:
            self.doing = f"sends {left[0].value}"
            invoked = self.record.now()
            for draft in left:
                self.record.first_sent.setdefault(draft.value, invoked)
            try:
                errors = await self.attempt(self.attached(), left)
            except BrokerError as error:
                await self.refused(error)
                continue
            results = [
                self.record.sent(draft.value, invoked, error, draft.due_ms)
                for draft, error in zip(left, errors, strict=True)
            ]
            again = [
                draft
                for draft, result in zip(left, results, strict=True)
                if result == FAIL or (result == INFO and draft.is_repeatable)
            ]
            first = next((error for error in errors if error is not None), None)
            if again and first is not None:
                await self.refused(first)
            left = again
        self.served()
        self.record.end(work)

    async def attempt(self, entity: Queue | Topic, drafts: list[Draft]) -> list[BrokerError | None]:
        answer = Answer(self, len(drafts))
        entity.send([draft.message() for draft in drafts], answer)
        return await answer.come()


class Batcher(Sender):
    """All or nothing."""

    kind = "batch"

    async def act(self) -> None:
        drafts = [self.world.draft() for _ in range(self.chance.choice((2, 3, 5)))]
        for draft in drafts:  # S-20: one fragment takes all of them
            draft.session_id, draft.partition_key = drafts[0].session_id, drafts[0].partition_key
        self.record.acts.append(([draft.value for draft in drafts], "batch"))
        await self.send(drafts)

    async def attempt(self, entity: Queue | Topic, drafts: list[Draft]) -> list[BrokerError | None]:
        answer = Answer(self, len(drafts), is_atomic=True)
        entity.send_atomically([draft.message() for draft in drafts], answer)
        return await answer.come()


class Scheduler(Sender):
    """For a moment later, some for much later; of these some are cancelled."""

    kind = "schedule"

    async def act(self) -> None:
        is_far = self.chance.random() < 0.15
        draft = self.world.draft()
        pause_s = _FAR_S if is_far else 0.002 + self.chance.random() * 0.08
        draft.due_ms = self.world.clock.wall_ms() + round(1_000 * pause_s)
        self.record.due_ms[draft.value] = draft.due_ms
        if self.chance.random() < 0.5:
            await self.send([draft])
        else:
            await self._ask(draft, may_cancel=is_far and self.chance.random() < 0.7)
        self.record.happened("due", self.record.now() + (draft.due_ms - self.world.clock.wall_ms()) / 1_000)

    async def _ask(self, draft: Draft, *, may_cancel: bool) -> None:
        """S-30 b: by a request that gives the number back."""
        work = self.record.begin(self.kind)
        while True:
            self.doing = f"schedules {draft.value}"
            invoked = self.record.now()
            self.record.first_sent.setdefault(draft.value, invoked)
            problem: BrokerError | None = None
            numbers: list[int] = []
            try:
                numbers = await self.attached().schedule([draft.message()])
            except BrokerError as error:
                problem = error
            result = self.record.sent(draft.value, invoked, problem, draft.due_ms)
            if problem is None or (result == INFO and not draft.is_repeatable):
                break
            await self.refused(problem)
        self.served()
        self.record.end(work)
        if numbers and may_cancel:
            await asyncio.sleep(self.chance.random() * 0.01)
            await self._cancel(draft, numbers)

    async def _cancel(self, draft: Draft, numbers: list[int]) -> None:
        """Once: one that was refused comes."""
        self.doing = f"cancels {draft.value}"
        invoked = self.record.now()
        problem: BrokerError | None = None
        try:
            await self.attached().cancel_scheduled(numbers)
        except BrokerError as error:
            problem = error
        self.record.settled("complete", draft.value, invoked, problem, "")


class Doubter(Sender):
    """Sends again what was accepted, as somebody whose connection broke before the answer came."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._accepted: list[Draft] = []

    async def act(self) -> None:
        drafts = [self.world.draft() for _ in range(self.chance.choice((1, 2, 4)))]
        await self.send(drafts)
        self._accepted = [*self._accepted[-20:], *drafts]
        if self.chance.random() < 0.6:
            await self.send(self.chance.sample(self._accepted, min(3, len(self._accepted))), "duplicate")


class Hasty(Sender):
    """What it sends lives for some milliseconds."""

    async def act(self) -> None:
        drafts = [self.world.draft() for _ in range(self.chance.choice((1, 1, 3)))]
        for draft in drafts:
            draft.ttl_ms = self.chance.choice((3, 10, 25, -1))
        await self.send(drafts)
        for draft in drafts:
            if draft.ttl_ms > 0:
                self.record.happened("expire", self.record.now() + draft.ttl_ms / 1_000)
                if self.world.cell.change.name == "DeadLetteringOnMessageExpiration":
                    self.record.mortal.add(draft.value)
