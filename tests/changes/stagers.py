"""Clients that write in two phases, as Spark's tasks and driver do."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Final

from busway.broker.entity.entity import Queue, Topic
from busway.message.message import Message
from busway.model.errors import BrokerError, ServerBusy
from busway.model.limits import Limits
from busway.staging.decider import WriteName
from busway.staging.decisions import STREAM, StagingRefused
from busway.staging.stagings import PartName
from tests.changes.messages import Draft
from tests.changes.senders import Sender

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.changes.world import World

_WAIT_S: Final = 5.0


class DraftCodec:
    """A payload is a draft's value."""

    def __init__(self) -> None:
        self.drafts: dict[str, Draft] = {}

    def message(self, payload: bytes, wants_message_id: bool, limits: Limits) -> Message:
        del wants_message_id, limits
        return self.drafts[payload.decode()].message()


class Stager(Sender):
    """A batch after the other: staged in parts, decided, told of when it is published. Some tasks die half-way."""

    kind = "stage"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._batch = 0

    async def act(self) -> None:
        drafts = [self.world.draft() for _ in range(self.chance.choice((1, 2, 4, 9)))]
        await self.send(drafts)

    async def attempt(self, entity: Queue | Topic, drafts: list[Draft]) -> list[BrokerError | None]:
        del entity
        self._batch += 1
        self.world.codec.drafts.update({draft.value: draft for draft in drafts})
        name = WriteName(self.name, self._batch, STREAM)
        stage_id = self.world.entropy.bytes(16).hex()
        try:
            if self.chance.random() < 0.2:
                await self._stage(name, self.world.entropy.bytes(16).hex(), drafts[:1])
            await self._stage(name, stage_id, drafts)
        except BrokerError as error:
            return [error] * len(drafts)
        return await self._decide(name, stage_id, len(drafts))

    async def _stage(self, name: WriteName, stage_id: str, drafts: list[Draft]) -> None:
        """In parts of three. Raises why not: then nothing will be decided."""
        stagings = self.world.stagings
        for number, start in enumerate(range(0, len(drafts), 3)):
            values = [draft.value.encode() for draft in drafts[start : start + 3]]
            body = b"".join(pack("<I", len(value)) + value for value in values)
            part = PartName(stage_id, number, is_again=False)
            await stagings.stage(name, part, self.world.send_path, None, body)

    async def _decide(self, name: WriteName, stage_id: str, rows: int) -> list[BrokerError | None]:
        """A lost answer is asked for again until it comes."""
        stagings = self.world.stagings
        while True:
            try:
                decided = await stagings.decide(name, {stage_id: rows}, _everybody)
                break
            except StagingRefused as refusal:
                return [ServerBusy(refusal.sentence)] * rows
            except BrokerError as error:
                await self.refused(error)
        while not await stagings.published(decided.decision, _WAIT_S):
            await self.refused(ServerBusy("It is not published yet."))
        return [None] * rows


def _everybody(_paths: Iterable[str]) -> None:
    """Rights are not what is tried here."""
