"""Dead-lettered messages on their way back.

Theory of operation. First a **survey** looks at the whole dead-letter queue by peek, page by page: how many messages
there are, how many the filter chooses, and the highest number among them, which is the fence. Nothing is touched
by it; a dry run ends here.

Then messages are received under lock, in slices, until as many are moved as were chosen or no more come. One that
is chosen is sent and then completed, in this order: a crash between the two leaves it in both places, never in
none; its id, its own or what follows from it (`resubmitted_id`), is the same then, so that duplicate detection can
drop the second one. One that is not chosen, or lies beyond the fence (it came back meanwhile), is held: its lock is
kept, and renewed, so that the server goes on to the next one, and at the end it is released, which leaves its
delivery count as it was (R-12). Only tokens of held messages are kept in memory, and no more than `HELD_MAX`.

Locks outlive links (R-19), so settling goes by tokens through the management node, and a link is given up for a new
one before it has more unsettled deliveries than a server allows.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from busway.client.errors import LockLost
from busway.client.management import HeldLocks
from busway.client.messages import resubmitted_id
from busway.message.message import TICKS_PER_MS
from busway.message.message_subject import instant_of_ms, value_of_amqp
from busway.rules.subject import MISSING, Missing, Span, Subject, Value, folded

if TYPE_CHECKING:
    from busway.client.messages import ServiceBusReceivedMessage
    from busway.client.receiver import ServiceBusReceiver
    from busway.client.sender import ServiceBusSender
    from busway.client.service_bus_client import ServiceBusClient

_STATES: Final = {"active": 0, "deferred": 1, "scheduled": 2}
DEAD_LETTER_PROPERTIES: Final = ("DeadLetterReason", "DeadLetterErrorDescription")
HELD_MAX: Final = 50_000
_SLICE: Final = 100
_PAGE: Final = 250
#: Deliveries of one link, before it is given up for a new one.
_LINK_DELIVERIES_MAX: Final = 1_000
#: What lies in the dead-letter queue is at hand; whatever takes longer is locked by somebody else.
_WAIT_S: Final = 2.0

Chooser = Callable[["ServiceBusReceivedMessage"], bool]


@dataclass
class LetterSurvey:
    """What peeking has shown."""

    seen: int = 0
    chosen: int = 0
    #: Deferred ones are left alone: they can be received by their numbers only.
    deferred: int = 0
    fence: int = 0


async def survey(client: "ServiceBusClient", dead_letters: str, chooses: Chooser) -> LetterSurvey:
    found = LetterSurvey()
    management = client.get_management(dead_letters)
    first = 0
    while messages := await management.peek_messages(_PAGE, first):
        for message in messages:
            found.seen += 1
            if message.state != "active":
                found.deferred += 1
            elif chooses(message):
                found.chosen += 1
                found.fence = max(found.fence, message.sequence_number or 0)
        first = (messages[-1].sequence_number or 0) + 1
    return found


class Resubmission:
    def __init__(
        self,
        client: "ServiceBusClient",
        dead_letters: str,
        sender: "ServiceBusSender",
        chooses: Chooser,
        *,
        without: tuple[str, ...] = DEAD_LETTER_PROPERTIES,
        source: str | None = None,
    ) -> None:
        """`source`: whose dead letters they are, where the destination detects duplicates and would drop old ids."""
        self._client = client
        self._path = dead_letters
        self._sender = sender
        self._chooses = chooses
        self._without = without
        self._source = source
        self._management = client.get_management(dead_letters)
        self._held = HeldLocks(self._management)
        self.moved = 0
        #: Those that the destination did not take; they stay dead-lettered. And why, of the first one.
        self.refused = 0
        self.refusal = ""
        #: Set from outside: the slice at hand is finished, then it ends.
        self.is_stopping = False
        #: More messages that are not chosen stand in front than can be held.
        self.is_blocked = False

    async def run(self, planned: LetterSurvey, progressed: Callable[[int], None]) -> None:
        try:
            while self._handled < planned.chosen and not self.is_stopping and len(self._held) < HELD_MAX:
                if not await self._run_link(planned, progressed):
                    return
        finally:
            self.is_blocked = self._handled < planned.chosen and len(self._held) >= HELD_MAX
            await self._held.release()

    async def _run_link(self, planned: LetterSurvey, progressed: Callable[[int], None]) -> bool:
        """Works on one link for as long as it may be used. False when no more messages come."""
        taken = 0
        async with self._client.get_queue_receiver(self._path) as receiver:
            while self._handled < planned.chosen and taken < _LINK_DELIVERIES_MAX and not self.is_stopping:
                messages = await self._receive(receiver, min(_SLICE, HELD_MAX - len(self._held)))
                if not messages:
                    return False
                taken += len(messages)
                progressed(await self._move(messages, planned))
                await self._held.renew()
        return True

    async def _receive(self, receiver: "ServiceBusReceiver", count: int) -> "list[ServiceBusReceivedMessage]":
        messages = await receiver.receive_messages(count, _WAIT_S) if count > 0 else []
        self._held.received(messages)
        return messages

    async def _move(self, messages: "list[ServiceBusReceivedMessage]", planned: LetterSurvey) -> int:
        """How many were moved. What is not sent is held, and so released at the end."""
        chosen: list[ServiceBusReceivedMessage] = []
        for message in messages:
            is_known = (message.sequence_number or 0) <= planned.fence
            if is_known and self._chooses(message) and self._handled + len(chosen) < planned.chosen:
                chosen.append(message)
            else:
                self._held.keep(_tokens([message]))
        sent = await self._send(chosen) if chosen else []
        if sent:
            # A lock that ran out meanwhile: the message will be there again, and its id tells that it is the same.
            with contextlib.suppress(LockLost):
                await self._management.settle_all(_tokens(sent), "completed")
        self.moved += len(sent)
        return len(sent)

    async def _send(self, chosen: "list[ServiceBusReceivedMessage]") -> "list[ServiceBusReceivedMessage]":
        """Those that arrived. When none did, it is not the messages that are wrong."""
        try:
            payloads = [message.encode_again(self._without, self._new_id(message)) for message in chosen]
            refusals = await self._sender.send_each(payloads)
        except BaseException:
            self._held.keep(_tokens(chosen))
            raise
        pairs = list(zip(chosen, refusals, strict=True))
        refused = [message for message, refusal in pairs if refusal is not None]
        self._held.keep(_tokens(refused))
        self.refused += len(refused)
        first = next((refusal for refusal in refusals if refusal is not None), None)
        if first is not None and len(refused) == len(chosen):
            raise first
        self.refusal = self.refusal or ("" if first is None else str(first))
        return [message for message, refusal in pairs if refusal is None]

    def _new_id(self, message: "ServiceBusReceivedMessage") -> str | None:
        if self._source is None:
            return None
        return resubmitted_id(message.message_id, self._source, message.sequence_number or 0)

    @property
    def _handled(self) -> int:
        return self.moved + self.refused


def _tokens(messages: "list[ServiceBusReceivedMessage]") -> list[UUID]:
    return [message.lock_token for message in messages if message.lock_token is not None]


class ReceivedSubject(Subject):
    """A received or peeked message as the filter sees it (T-2)."""

    def __init__(self, message: "ServiceBusReceivedMessage") -> None:
        self._user = {
            folded(str(name)): value_of_amqp(value) for name, value in message.application_properties.items()
        }
        self._system: dict[str, Value] = {
            "MessageId": _text(message.message_id),
            "CorrelationId": _text(message.correlation_id),
            "To": _text(message.to),
            "ReplyTo": _text(message.reply_to),
            "ReplyToSessionId": message.reply_to_session_id,
            "Label": message.subject,
            "SessionId": message.session_id,
            "ContentType": message.content_type,
            "PartitionKey": _text(message.partition_key),
            "DeadLetterSource": _text(message.dead_letter_source),
            "SequenceNumber": message.sequence_number,
            "DeliveryCount": message.delivery_count,
            "State": _STATES[message.state],
            "EnqueuedTimeUtc": _moment(message.enqueued_time_ms),
            "LockedUntilUtc": _moment(message.locked_until_ms),
            "ScheduledEnqueueTimeUtc": _moment(message.scheduled_enqueue_time_ms),
            "TimeToLive": None
            if message.time_to_live_ms is None
            else Span(message.time_to_live_ms * TICKS_PER_MS),
        }

    def user(self, folded_name: str) -> Value | Missing:
        return self._user.get(folded_name, MISSING)

    def system(self, name: str) -> Value:
        return self._system.get(name)


def _text(value: object) -> str | None:
    """M-1: an id of another AMQP type is known by its text."""
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def _moment(at_ms: int | None) -> Value:
    return None if at_ms is None else instant_of_ms(at_ms)
