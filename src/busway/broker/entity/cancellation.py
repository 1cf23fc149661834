"""Scheduled messages of several fragments are cancelled together or not at all (S-33, S-38).

Theory of operation. What was found is kept from activation and from others who would cancel it (`Intake.withheld`)
until all of it is found; then all of it joins in one step, in each store's batch. There are as many commits as
stores. When one fails, what the others have deleted is scheduled again under its number, so the request may be
repeated. Only the part of a store whose outcome is unknown may be gone; that is what the client is told.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from busway.broker.fragment.journal import CANCEL
from busway.broker.fragment.read_requests import CANCELLED
from busway.broker.fragment.runtime import broker_error
from busway.message.message import Message
from busway.model.errors import BrokerError, ServerBusy, StoreOutcomeUnknown
from busway.store.contract import StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

_log = logging.getLogger(__name__)


class _Part:
    """The messages of one fragment."""

    __slots__ = ("_cancellation", "error", "fragment", "messages")

    def __init__(self, cancellation: Cancellation, fragment: Fragment, messages: list[Message]) -> None:
        self._cancellation = cancellation
        self.fragment = fragment
        self.messages = messages
        self.error: BrokerError | None = None

    def numbers(self) -> list[int]:
        return [message.sequence_number for message in self.messages]

    def join(self) -> None:
        write = self.fragment.write()
        write.remove(CANCELLED, self.messages, is_noted=False)  # as long as another part may fail
        write.join()
        write.batch.callbacks.append(self.committed)

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self.error = broker_error(error)
        self._cancellation.part_over()

    def schedule_again(self) -> None:
        fragment = self.fragment
        try:
            write = fragment.write()
        except ServerBusy:
            _log.warning(
                "%d scheduled messages of %s are cancelled although the request failed: their store failed too",
                len(self.messages),
                fragment.settings.path,
            )
            return
        fragment.intake.join_reserved(write, self.messages)


class Cancellation:
    """One request. It goes on to its end although whoever asked may have gone."""

    __slots__ = ("_ended", "_left", "_parts")

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._left = 0
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def find(self, fragment: Fragment, numbers: list[int]) -> None:
        """Raises MessageNotFound when one is missing, ServerBusy."""
        part = _Part(self, fragment, await fragment.cancellable(numbers))
        fragment.intake.withheld.update(part.numbers())
        self._parts.append(part)

    def release(self) -> None:
        for part in self._parts:
            part.fragment.intake.withheld.difference_update(part.numbers())

    async def commit(self) -> None:
        """Raises ServerBusy when nothing was cancelled, StoreOutcomeUnknown."""
        for part in self._parts:
            part.fragment.batch()  # raises before anything has joined
        self._left = len(self._parts)
        for part in self._parts:
            part.join()
        await self._ended

    def part_over(self) -> None:
        self._left -= 1
        if self._left > 0:
            return
        errors = [part.error for part in self._parts if part.error is not None]
        for part in self._parts:
            if part.error is not None:
                continue
            if errors:
                part.schedule_again()
            else:
                part.fragment.tell(CANCEL, part.messages)
        if self._ended.done():
            return
        if errors:
            unknown = [error for error in errors if isinstance(error, StoreOutcomeUnknown)]
            self._ended.set_exception((unknown or errors)[0])
        else:
            self._ended.set_result(None)
