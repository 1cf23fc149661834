"""Moving dead letters back to work: exactly those of a plan, each once, whatever is killed meanwhile.

Theory of operation. Messages of a dead-letter queue are received under lock, in slices. One that the plan names is
*moved*: in one transaction its dead letter is completed and its new form is sent, so that a crash at any moment
leaves it in one place and never in both (`plan` says what happens without transactions). One that the plan does
not name is *held*: its lock is kept and renewed, so that the server goes on to the next, and at the end it is
released, which leaves even its delivery count as it was (R-12). Only a crash lets those locks run out, which
counts as a delivery. Deferred dead letters are fetched by their numbers.

What a run that was killed held locked becomes free when its locks end: the next run waits for that. When a
connection breaks in the middle of a commit nobody knows what became of it: those letters are marked uncertain, the
work goes on over a new connection, and at the end the dead-letter queue tells: what is gone was moved, what is
there was not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from busway.amqp.errors import Condition
from busway.amqp.performatives import RECEIVER_FIRST, SENDER_UNSETTLED, Source, Target
from busway.amqp.types import Symbol
from busway.client.errors import ClientError, LockLost, Refused, TimedOut, Unreachable
from busway.client.management import HeldLocks
from busway.client.messages import ServiceBusReceivedMessage
from busway.client.receiver import ServiceBusReceiver
from busway.client.sender import SendingEnd
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.pipeline.deadletters.columns import encode_fixed
from busway_spark.pipeline.deadletters.plan import (
    AT_LEAST_ONCE,
    DUPLICATE_DETECTION,
    GONE,
    LOCKED,
    PLANNED,
    REFUSED,
    RESUBMITTED,
    TRANSACTION,
    UNCERTAIN,
    LetterRoute,
    Plan,
)
from busway_spark.pipeline.job import JobProgress
from busway_spark.servicebus.entity_reading import number_of, peek_numbers
from busway_spark.servicebus.message_columns import fragment_of

HELD_MAX: Final = 100_000
_SLICE: Final = 200
#: TX-7: messages of one transaction; and bytes, so that one fits beside others (TX-24).
_GROUP_MESSAGES: Final = 100
_GROUP_BYTES: Final = 8 * 1024 * 1024
_LINK_MESSAGES: Final = 1_000
_WAIT_S: Final = 1.0
_TRIES: Final = 5
#: So many refusals one after the other are not the messages' fault.
_REFUSALS_MAX: Final = 100
_TELL_EVERY_S: Final = 2.0
_TRANSFER: Final = Symbol("com.microsoft:transfer-destination-address")


@dataclass(frozen=True)
class _Letter:
    number: int
    token: UUID
    payload: bytes


class Mover:
    """Moves what a plan names of one source. `run` may be called once."""

    def __init__(
        self,
        client: ServiceBusClient,
        route: LetterRoute,
        source: int,
        plan: Plan,
        progress: JobProgress,
        *,
        wait_s: float,
    ) -> None:
        self.route = route
        self._client = client
        self._source = source
        self._plan = plan
        self._progress = progress
        self._wait_s = wait_s
        self._management = client.get_management(route.dead_letters)
        self._sender: SendingEnd | None = None
        self._held = HeldLocks(self._management)
        self._refusals_in_row = 0
        self._tell_at = 0.0
        self.moved = 0
        #: Why it ended before everything was tried; None when it did not.
        self.ended_early: str | None = None

    async def run(self) -> None:
        tries = 0
        try:
            while True:
                moved = self.moved
                try:
                    await self._work()
                    break
                except Unreachable:
                    tries = 0 if self.moved > moved else tries + 1
                    if tries > _TRIES:
                        raise
                    await asyncio.sleep(tries / 2)
        finally:
            await self._held.release()
        await self._look_after_the_rest()

    # -- walking

    async def _work(self) -> None:
        await self._open_sender()
        await self._move_deferred()
        while self._goes_on():
            if not await self._run_link():
                return

    def _goes_on(self) -> bool:
        if self._progress.is_stopping:
            self.ended_early = "it was asked to stop"
        elif self._refusals_in_row >= _REFUSALS_MAX:
            self.ended_early = (
                f"'{self.route.destination}' refused {_REFUSALS_MAX} messages one after the other"
            )
        elif len(self._held) >= HELD_MAX:
            self.ended_early = (
                f"{HELD_MAX} dead letters that are not chosen stand before the others; choose those first"
            )
        return self.ended_early is None and self._plan.has_left(self._source)

    async def _run_link(self) -> bool:
        """A link remembers what it delivered, so it is used for a while only. False when nothing more comes."""
        taken = 0
        quiet_until = time.monotonic() + self._wait_s
        async with self._client.get_queue_receiver(self.route.dead_letters) as receiver:
            while self._goes_on() and taken < _LINK_MESSAGES:
                messages = await self._receive(receiver)
                if messages:
                    taken += len(messages)
                    quiet_until = time.monotonic() + self._wait_s
                    await self._move(messages)
                elif time.monotonic() >= quiet_until or not await self._are_some_there():
                    return False
                await self._held.renew()
        return True

    async def _receive(self, receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
        count = min(_SLICE, HELD_MAX - len(self._held))
        messages = await receiver.receive_messages(count, min(_WAIT_S, max(self._wait_s, 0.2)))
        self._held.received(messages)
        return messages

    async def _move_deferred(self) -> None:
        for page in self._plan.pages_left(self._source, is_deferred=True):
            for number, _ in page:
                if not self._goes_on():
                    return
                try:
                    messages = await self._management.receive_deferred_messages([number])
                except Refused as error:
                    if error.condition != Condition.MESSAGE_NOT_FOUND:
                        raise
                    continue  # gone, or locked by somebody: the end tells
                await self._move(messages)

    # -- moving

    async def _move(self, messages: list[ServiceBusReceivedMessage]) -> None:
        groups: dict[int, list[_Letter]] = {}
        for message in messages:
            letter = self._letter(message)
            if letter is not None:
                groups.setdefault(fragment_of(letter.number), []).append(letter)
        waiting = [part for letters in groups.values() for part in _parts(letters)]
        for at, part in enumerate(waiting):
            if not self._goes_on():
                self._hold(letter for rest in waiting[at:] for letter in rest)
                return
            await self._move_group(part)

    def _letter(self, message: ServiceBusReceivedMessage) -> _Letter | None:
        """None when it is not to be moved; it is held then."""
        assert message.lock_token is not None, "it was received under a lock"
        number = number_of(message)
        changes = self._plan.changes_of(self._source, number)
        if changes is None:
            self._held.keep([message.lock_token])
            return None
        session_id = changes.get("sessionId", message.session_id)
        if self.route.needs_session and session_id is None:
            self._refuse(number, message.lock_token, f"'{self.route.destination}' needs a session id.")
            return None
        message_id = self.route.message_id(message.message_id, number)
        try:
            payload = encode_fixed(message, changes, message_id)
        except (ValueError, TypeError, OverflowError) as error:
            self._refuse(number, message.lock_token, f"It cannot be encoded as an AMQP message: {error}")
            return None
        return _Letter(number, message.lock_token, payload)

    async def _move_group(self, letters: list[_Letter]) -> None:
        self._plan.mark(self._source, _numbers(letters), UNCERTAIN)
        try:
            if self.route.guarantee == TRANSACTION:
                await self._move_together(letters)
            else:
                letters = await self._send_and_complete(letters)
        except (Unreachable, TimedOut) as error:
            raise Unreachable(str(error)) from error
        except LockLost:
            self._plan.mark(self._source, _numbers(letters), PLANNED)  # they come again
        except ClientError as error:
            self._plan.mark(self._source, _numbers(letters), PLANNED)
            await self._move_apart(letters, error)
        else:
            self._are_moved(letters)

    def _are_moved(self, letters: list[_Letter]) -> None:
        self._plan.mark(self._source, _numbers(letters), RESUBMITTED)
        self.moved += len(letters)
        if letters:
            self._refusals_in_row = 0
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_EVERY_S
            self._progress.tell(
                f"Resubmitted {self.moved} dead letters of {self.route.source}.",
                entity=self.route.source,
                resubmitted=self.moved,
            )

    async def _move_together(self, letters: list[_Letter]) -> None:
        """TX-8: sent and taken away with one commit. Settling goes first: it says in which fragment this happens."""
        async with self._client.transaction():
            await self._management.settle_all([letter.token for letter in letters], "completed")
            await self._send(letters)

    async def _send_and_complete(self, letters: list[_Letter]) -> list[_Letter]:
        """Those that went. In this order a crash leaves a message in both places, never in none."""
        results = await self._results(letters)
        lost = next((each for each in results if isinstance(each, Unreachable | TimedOut)), None)
        if lost is not None:
            raise lost
        sent: list[_Letter] = []
        for letter, refusal in zip(letters, results, strict=True):
            if refusal is None:
                sent.append(letter)
            else:
                self._refuse(letter.number, letter.token, str(refusal))
        if sent:
            await self._management.settle_all([letter.token for letter in sent], "completed")
        return sent

    async def _move_apart(self, letters: list[_Letter], refusal: ClientError) -> None:
        """One that is refused keeps no other from going."""
        if len(letters) == 1:
            self._refuse(letters[0].number, letters[0].token, str(refusal))
            return
        for at, letter in enumerate(letters):
            if not self._goes_on():
                self._hold(letters[at:])
                return
            await self._move_group([letter])

    async def _send(self, letters: list[_Letter]) -> None:
        """All, or what one was refused with."""
        for result in await self._results(letters):
            if result is not None:
                raise result

    async def _results(self, letters: list[_Letter]) -> list[BaseException | None]:
        assert self._sender is not None, "it was opened"
        sender, state = self._sender, self._client.transaction_state()
        sends = [sender.send(letter.payload, 0, state) for letter in letters]
        return await asyncio.gather(*sends, return_exceptions=True)

    def _refuse(self, number: int, token: UUID, sentence: str) -> None:
        self._held.keep([token])
        self._refusals_in_row += 1
        self._plan.mark(self._source, [number], REFUSED, sentence)

    async def _open_sender(self) -> None:
        if self.route.guarantee == TRANSACTION:
            await self._open_control()
        route = self.route
        await self._client.wire_for(route.destination)
        wire = await self._client.wire_for(route.top)
        self._sender = SendingEnd(wire)
        await self._sender.attach(
            is_sender=True,
            source=Source(address=f"busway-deadletters-{route.source}"),
            target=Target(address=route.top if route.is_via else route.destination),
            snd_settle_mode=SENDER_UNSETTLED,
            rcv_settle_mode=RECEIVER_FIRST,
            properties={_TRANSFER: route.destination} if route.is_via else None,
        )

    async def _open_control(self) -> None:
        """TX-21: some tiers have no transactions."""
        try:
            await self._client.control_link()
        except Refused:
            guarantee = DUPLICATE_DETECTION if self.route.derives_id else AT_LEAST_ONCE
            self.route = replace(self.route, guarantee=guarantee, is_via=False)

    # -- what is held

    def _hold(self, letters: Iterable[_Letter]) -> None:
        self._held.keep(letter.token for letter in letters)

    # -- what is left

    async def _are_some_there(self) -> bool:
        """Whether any of what is to be moved is still dead-lettered: somebody holds it, or its lock has not ended."""
        for page in self._plan.pages_left(self._source):
            numbers = [number for number, _ in page]
            if await peek_numbers(self._client, self.route.dead_letters, numbers):
                return True
        return False

    async def _look_after_the_rest(self) -> None:
        for page in self._plan.pages_left(self._source):
            numbers = [number for number, _ in page]
            found = await peek_numbers(self._client, self.route.dead_letters, numbers)
            there = {number_of(message) for message in found}
            uncertain = {number for number, outcome in page if outcome == UNCERTAIN}
            self._plan.mark(self._source, uncertain - there, RESUBMITTED)
            self.moved += len(uncertain - there)
            self._plan.mark(self._source, set(numbers) - uncertain - there, GONE)
            self._plan.mark(self._source, there, LOCKED if self.ended_early is None else PLANNED)


def _numbers(letters: list[_Letter]) -> list[int]:
    return [letter.number for letter in letters]


def _parts(letters: list[_Letter]) -> list[list[_Letter]]:
    parts: list[list[_Letter]] = []
    size = 0
    for letter in letters:
        if not parts or len(parts[-1]) >= _GROUP_MESSAGES or size + len(letter.payload) > _GROUP_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(letter)
        size += len(letter.payload)
    return parts
