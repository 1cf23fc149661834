"""Taking, holding and settling messages for a stream, on the driver, by operations that every Service Bus has.

Theory of operation. A micro-batch needs messages that nobody else gets and that can be read again after any crash,
and it must be known for certain when they may go. Service Bus has what this takes:

1. *take* (`latestOffset`): messages are received under locks. Their numbers are the offset, which Spark writes to
   its log. A crash before that costs nothing: the locks end and the messages are available again.
2. *hold* (`partitions`, so after the offset was logged): they are deferred, each stamped with the claim by an
   application property. From then on no receiver gets them, no lock has to be kept, and they can be peeked by
   number as often as wanted. After a crash in the middle, those that bear the stamp are the batch; the others were
   never read by anybody and come again.
3. *settle* (the next `latestOffset`, whose start says that Spark has committed the batch): they are deleted by
   number. After a crash those that are still there with the stamp are deleted then.

Messages of a session are taken together, up to a bound, and the session stays locked by us until they are settled,
so nobody gets later messages of it meanwhile. After a crash its lock is taken again for settling.

One that is not durable (`mode=peekLock`) defers nothing: it keeps the locks, and what was not settled before a
crash is delivered again.

`ClaimSteps` is this protocol; `StockClaims` and `StockReading` are the same from Spark's blocking calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import pyarrow as pa
from pyspark.sql.types import StructType

from busway.amqp.errors import Condition
from busway.amqp.types import Array
from busway.client.errors import ClientError, LockLost, Refused, Unreachable
from busway.client.messages import ServiceBusReceivedMessage
from busway.client.receiver import ServiceBusReceiver
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.given_options import NUMBER_MAX
from busway_spark.servicebus.claim import Claim, Held
from busway_spark.servicebus.entity_reading import (
    PAGE_MESSAGES,
    EntityReceivers,
    by_numbers,
    number_of,
    peek_numbers,
    walk,
)
from busway_spark.servicebus.message_columns import CLAIM_PROPERTY, MessageColumns, fragment_of
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.wire.bus import bridge
from busway_spark.wire.patience import Patience, may_pass, meet, patiently

#: A link remembers what it delivered until it is settled, and settling goes another way here: so a link is used for
#: at most so many messages. Also the most that is taken of one session at once.
_LINK_MESSAGES: Final = 1_000
_SETTLE_MESSAGES: Final = 200
_MORE_WAIT_S: Final = 0.02
_SESSION_TRIES_S: Final = 60.0
_SESSION_TRY_EVERY_S: Final = 0.5
_RENEWAL_S_MIN: Final = 1.0
_RENEWAL_S_MAX: Final = 20.0
_UUID: Final = 0x98
#: Numbers that a claim holds, each with its session.
SessionOfNumber = dict[int, str | None]
T = TypeVar("T")


@dataclass(frozen=True)
class Taken:
    number: int
    token: UUID
    session_id: str | None
    enqueued_ms: int


class ClaimSteps:
    """Taking, holding and settling messages for a stream, on the driver."""

    def __init__(self, client: ServiceBusClient, address: str, *, is_durable: bool) -> None:
        self._client = client
        self._address = address
        self._is_durable = is_durable
        self._receivers = EntityReceivers(client, address)
        self._sessions: dict[str, ServiceBusReceiver] = {}
        self._renewals: list[asyncio.Task[None]] = []

    # -- take

    async def take(self, count: int, wait_s: float) -> list[Taken]:
        """At most so many of what is available, of sessions rather some more; waits for the first only."""
        taken: list[Taken] = []
        renewal_s = _RENEWAL_S_MAX
        while len(taken) < count:
            receiver = await self._receivers.open_next(_MORE_WAIT_S if taken else wait_s)
            if receiver is None:
                break
            session_id = receiver.session_id if self._receivers.has_sessions else None
            asked = _LINK_MESSAGES if session_id is not None else min(count - len(taken), _LINK_MESSAGES)
            found = await _received(receiver, asked, _MORE_WAIT_S if taken else wait_s)
            taken += [_taken(message, session_id) for message in found]
            if session_id is None or not found:
                await receiver.close()  # the locks outlive the link
            else:
                self._keep_session(session_id, receiver, found)
            if not found:
                break
            renewal_s = min(renewal_s, _renewal_s(found))
        if taken and not self._is_durable and not self._receivers.has_sessions:
            self._keep_locks(taken, renewal_s)
        return taken

    async def adopt(self, left_behind: list[ServiceBusReceivedMessage]) -> list[Taken]:
        """Deferred messages of a stream that is no more, locked by us now. What is locked elsewhere stays there."""
        probe = await self._receivers.open_next(_MORE_WAIT_S)
        if probe is not None:
            await probe.close()
        taken: list[Taken] = []
        for message in left_behind:
            session_id = message.session_id if self._receivers.has_sessions else None
            try:
                found = await self._fetch(number_of(message), session_id)
            except Refused as error:
                if error.condition != Condition.MESSAGE_NOT_FOUND:
                    raise
                continue
            taken += [_taken(each, session_id) for each in found]
        return taken

    async def _fetch(self, number: int, session_id: str | None) -> list[ServiceBusReceivedMessage]:
        if session_id is None:
            return await self._client.get_management(self._address).receive_deferred_messages([number])
        return await (await self._session(session_id)).receive_deferred_messages([number])

    # -- hold

    async def hold(self, claim: Claim, taken: list[Taken]) -> SessionOfNumber:
        """Makes them the claim's own. Those that are: a lock may have been lost meanwhile."""
        if not self._is_durable:
            return {each.number: each.session_id for each in taken}
        is_certain = True
        for session_id, tokens in _tokens(taken).items():
            for at in range(0, len(tokens), _LINK_MESSAGES):
                is_certain &= await self._defer(claim.stamp, tokens[at : at + _LINK_MESSAGES], session_id)
        return {each.number: each.session_id for each in taken} if is_certain else await self.kept(claim)

    async def kept(self, claim: Claim) -> SessionOfNumber:
        """What bears the claim's stamp. Without durable claims: what is still there."""
        return {
            number_of(message): message.session_id if claim.has_sessions else None
            for message in await self._find(claim.numbers())
            if not self._is_durable or is_stamped(message, claim.stamp)
        }

    async def _defer(self, stamp: str, tokens: list[UUID], session_id: str | None) -> bool:
        """False when it is not certain that all of them are deferred."""
        body: dict[str, object] = {
            "disposition-status": "defered",
            "lock-tokens": Array(list(tokens), _UUID),
            "properties-to-modify": {CLAIM_PROPERTY: stamp},
        }
        if session_id is not None:
            body["session-id"] = session_id
        try:
            await _retried(partial(self._update, body))
        except LockLost:
            return False
        return True

    async def _update(self, body: dict[str, object]) -> None:
        await self._client.get_management(self._address).ask("update-disposition", body)

    async def _find(self, numbers: list[int]) -> list[ServiceBusReceivedMessage]:
        found: list[ServiceBusReceivedMessage] = []
        for at in range(0, len(numbers), PAGE_MESSAGES):
            part = numbers[at : at + PAGE_MESSAGES]
            found += await _retried(partial(peek_numbers, self._client, self._address, part))
        return found

    # -- settle

    async def settle(self, claim: Claim, kept: SessionOfNumber, taken: list[Taken]) -> None:
        """The batch is done: its messages go."""
        await self._stop_renewing()
        if self._is_durable:
            for session_id, numbers in by_session(kept).items():
                await self._settle_numbers(claim.stamp, numbers, session_id)
        else:
            await self._complete_locked(taken)
        await self._leave_sessions()

    async def close(self) -> None:
        await self._stop_renewing()
        await self._leave_sessions()

    async def _settle_numbers(self, stamp: str, numbers: list[int], session_id: str | None) -> None:
        for part in _parts(numbers):
            left = part
            while left:
                try:
                    await _retried(partial(self._delete, left, session_id))
                    break
                except Refused as error:
                    if error.condition != Condition.MESSAGE_NOT_FOUND:
                        raise
                still = [number_of(each) for each in await self._find(left) if is_stamped(each, stamp)]
                if len(still) == len(left):
                    await self._delete_singly(stamp, left, session_id)
                    break
                left = still

    async def _delete(self, numbers: list[int], session_id: str | None) -> None:
        """All of them or none (R-52)."""
        if session_id is None:
            await self._client.get_management(self._address).receive_deferred_messages(numbers, deletes=True)
            return
        receiver = await self._session(session_id)
        found = await receiver.receive_deferred_messages(numbers)
        tokens = [message.lock_token for message in found if message.lock_token is not None]
        body: dict[str, object] = {
            "disposition-status": "completed",
            "lock-tokens": Array(list(tokens), _UUID),
            "session-id": session_id,
        }
        await self._update(body)

    async def _delete_singly(self, stamp: str, numbers: list[int], session_id: str | None) -> None:
        """One of them is not to be had: it has expired meanwhile, or somebody has fetched it by its number."""
        for number in numbers:
            try:
                await self._delete([number], session_id)
            except Refused as error:
                if error.condition != Condition.MESSAGE_NOT_FOUND:
                    raise
        left = [number_of(each) for each in await self._find(numbers) if is_stamped(each, stamp)]
        if left:
            raise Refused(
                f"{len(left)} message(s) that the stream has processed cannot be completed, the first is {left[0]}: "
                "somebody else has locked them by their numbers. Start the query again when they are free."
            )

    async def _complete_locked(self, taken: list[Taken]) -> None:
        """At least once: what we no longer hold is delivered again."""
        for session_id, tokens in _tokens(taken).items():
            for at in range(0, len(tokens), _LINK_MESSAGES):
                body: dict[str, object] = {
                    "disposition-status": "completed",
                    "lock-tokens": Array(list(tokens[at : at + _LINK_MESSAGES]), _UUID),
                }
                if session_id is not None:
                    body["session-id"] = session_id
                with contextlib.suppress(LockLost):
                    await self._update(body)

    # -- sessions and locks that are kept

    async def _session(self, session_id: str) -> ServiceBusReceiver:
        """Ours still, or taken again; somebody else may have it for a while. Raises ClientError."""
        receiver = self._sessions.get(session_id)
        if receiver is not None:
            return receiver
        deadline = time.monotonic() + _SESSION_TRIES_S
        while True:
            receiver = self._client.get_queue_receiver(self._address, session_id=session_id)
            try:
                await receiver.open()
            except Refused as error:
                if error.condition != Condition.SESSION_CANNOT_BE_LOCKED or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_SESSION_TRY_EVERY_S)
                continue
            self._sessions[session_id] = receiver
            return receiver

    def _keep_session(
        self, session_id: str, receiver: ServiceBusReceiver, found: list[ServiceBusReceivedMessage]
    ) -> None:
        self._sessions[session_id] = receiver
        self._renewals.append(asyncio.create_task(_renew(receiver.renew_session_lock, _renewal_s(found))))

    def _keep_locks(self, taken: list[Taken], every_s: float) -> None:
        tokens = [each.token for each in taken]
        management = self._client.get_management(self._address)

        async def renew_all() -> None:
            for at in range(0, len(tokens), _LINK_MESSAGES):
                await management.renew_message_locks(tokens[at : at + _LINK_MESSAGES])

        self._renewals.append(asyncio.create_task(_renew(renew_all, every_s)))

    async def _stop_renewing(self) -> None:
        for task in self._renewals:
            task.cancel()
        await asyncio.gather(*self._renewals, return_exceptions=True)
        self._renewals.clear()

    async def _leave_sessions(self) -> None:
        for receiver in self._sessions.values():
            with contextlib.suppress(ClientError):
                await receiver.close()
        self._sessions.clear()


def by_session(kept: SessionOfNumber) -> Held:
    held: Held = {}
    for number in sorted(kept):
        held.setdefault(kept[number], []).append(number)
    return held


def _tokens(taken: list[Taken]) -> dict[str | None, list[UUID]]:
    """By session."""
    found: dict[str | None, list[UUID]] = {}
    for each in taken:
        found.setdefault(each.session_id, []).append(each.token)
    return found


def is_stamped(message: ServiceBusReceivedMessage, stamp: str) -> bool:
    return message.state == "deferred" and message.application_properties.get(CLAIM_PROPERTY) == stamp


async def _received(
    receiver: ServiceBusReceiver, count: int, wait_s: float
) -> list[ServiceBusReceivedMessage]:
    """Until so many are there, or nothing more comes at once."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        more = await receiver.receive_messages(count - len(found), _MORE_WAIT_S if found else wait_s)
        if not more:
            break
        found += more
    return found


def _taken(message: ServiceBusReceivedMessage, session_id: str | None) -> Taken:
    if message.lock_token is None:
        raise Refused("The server delivered a message without a lock.")
    return Taken(number_of(message), message.lock_token, session_id, message.enqueued_time_ms or 0)


def _parts(numbers: list[int]) -> list[list[int]]:
    """What is asked for together lies in one fragment (R-55)."""
    parts: list[list[int]] = []
    for number in numbers:
        last = parts[-1] if parts else None
        if last is None or len(last) >= _SETTLE_MESSAGES or fragment_of(last[-1]) != fragment_of(number):
            parts.append([])
        parts[-1].append(number)
    return parts


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    """Once more over a new connection. Each of the calls may be repeated: none does anything twice."""
    try:
        return await call()
    except Unreachable:
        return await call()


async def _renew(renew: Callable[[], Awaitable[object]], every_s: float) -> None:
    """Until it is cancelled, or the lock is lost: then settling says so. A server that is away for a moment may be
    back before the lock ends."""
    with contextlib.suppress(ClientError):
        while True:
            await asyncio.sleep(every_s)
            with contextlib.suppress(Unreachable):
                await renew()


def _renewal_s(found: list[ServiceBusReceivedMessage]) -> float:
    """A third of what a fresh lock lasts, if our clock and the server's agree; they are not far apart."""
    until_ms = found[0].locked_until_ms
    left_s = _RENEWAL_S_MAX if until_ms is None else until_ms / 1000 - time.time()
    return max(_RENEWAL_S_MIN, min(left_s / 3, _RENEWAL_S_MAX))


class StockClaims:
    """On the driver. One that is not durable (`mode=peekLock`) keeps locks and holds nothing."""

    #: Nobody tells.
    available: int | None = None

    def __init__(self, options: ServiceBusOptions, address: str, *, is_durable: bool) -> None:
        self._options = options
        self._address = address
        self._is_durable = is_durable
        self._steps: ClaimSteps | None = None
        #: What the newest claim has locked, and what of it is held.
        self._stamp = ""
        self._taken: list[Taken] = []
        self._kept: SessionOfNumber | None = None
        #: Of the newest claim: when its oldest message was enqueued.
        self.oldest_ms = 0

    def take(self, done: Claim, count: int, wait_s: float) -> Claim | None:
        return self._claimed(done, self._run(lambda steps: steps.take(count, wait_s)))

    def adopt(self, done: Claim, count: int, wait_s: float) -> Claim | None:
        left_behind = patiently(self._options.target.authority, self._options.operation_s, self._left_behind)
        adopted = self._claimed(done, self._run(lambda steps: steps.adopt(left_behind)))
        return self.take(done, count, wait_s) if adopted is None else adopted

    def hold(self, claim: Claim) -> Held:
        return by_session(self._held(claim))

    def settle(self, claim: Claim) -> None:
        is_ours = claim.stamp == self._stamp
        found = self._kept if is_ours else None
        if found is None:
            found = self._run(lambda steps: steps.kept(claim)) if self._is_durable else {}
        kept, taken = found, self._taken if is_ours else []
        self._run(lambda steps: steps.settle(claim, kept, taken))

    def close(self) -> None:
        if self._steps is not None:
            bridge().run(self._steps.close())

    def _claimed(self, done: Claim, taken: list[Taken]) -> Claim | None:
        if not taken:
            return None
        claim = done.next_of((each.session_id, each.number) for each in taken)
        self._stamp, self._taken, self._kept = claim.stamp, taken, None
        self.oldest_ms = min(each.enqueued_ms for each in taken)
        return claim

    def _held(self, claim: Claim) -> SessionOfNumber:
        is_ours = claim.stamp == self._stamp
        if is_ours and self._kept is not None:
            return self._kept
        if is_ours and self._taken:
            kept = self._run(lambda steps: steps.hold(claim, self._taken))
        else:
            kept = self._run(lambda steps: steps.kept(claim))
            self._stamp, self._taken = claim.stamp, []
        self._kept = kept
        return kept

    def _run(self, step: Callable[[ClaimSteps], Coroutine[Any, Any, T]]) -> T:
        """Each step may be made again, as after a crash: what was locked over a connection that broke is lost to it,
        and comes again."""
        steps = self._opened()

        def run() -> T:
            try:
                return bridge().run(step(steps))
            except Unreachable:
                bridge().run(steps.close())
                raise

        return patiently(self._options.target.authority, self._options.operation_s, run)

    def _left_behind(self) -> list[ServiceBusReceivedMessage]:
        work = bridge()
        pages = walk(work, work.client(self._options.bus), self._address, 0, NUMBER_MAX)
        return [
            message
            for page in pages
            for message in page
            if message.state == "deferred" and CLAIM_PROPERTY in message.application_properties
        ]

    def _opened(self) -> ClaimSteps:
        if self._steps is None:
            client = bridge().client(self._options.bus)
            self._steps = ClaimSteps(client, self._address, is_durable=self._is_durable)
        return self._steps


class StockReading:
    """On executors: by peeking."""

    def __init__(
        self, address: str, schema: StructType, options: ServiceBusOptions, *, is_durable: bool
    ) -> None:
        self._address = address
        self._options = options
        self._is_durable = is_durable
        self._columns = MessageColumns(schema, options, address, hides_claim=is_durable)

    def batches(self, stamp: str, numbers: list[int], missing: set[int]) -> Iterator[pa.RecordBatch]:
        """Takes what comes out of `missing`, which holds all of the numbers at first."""
        authority, operation_s = self._options.target.authority, self._options.operation_s
        meet(authority)  # the driver has
        patience = Patience(authority, operation_s)
        while True:
            try:
                for page in by_numbers(bridge(), bridge().client(self._options.bus), self._address, numbers):
                    found = [each for each in page if not self._is_durable or is_stamped(each, stamp)]
                    missing.difference_update(number_of(each) for each in found)
                    if found:
                        yield self._columns.batch(found)
                    patience = Patience(authority, operation_s)  # it goes on
                return
            except ClientError as error:
                if not may_pass(error):
                    raise
                if not patience.pause():
                    raise patience.over(error) from error
                numbers = [number for number in numbers if number in missing]
