"""Reading an entity: messages looked at without touching them, and receivers that take them.

A look is a walk through an entity, or asks for messages by their numbers. A peek answers with the messages from a
number on, at most 250 and at most so many bytes (R-65), so both go on after the last number that came. While Spark
works on one page the next is on its way.

Receivers are opened on an entity of which one need not say whether it has sessions: its refusal tells.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final

from busway.amqp.errors import Condition
from busway.client.errors import ClientError, TimedOut
from busway.client.messages import ServiceBusReceivedMessage
from busway.client.receiver import PEEK_LOCK, ServiceBusReceiver
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.wire.bus import Bridge

PAGE_MESSAGES: Final = 250
#: Of encoded messages, about.
_GATHERED_MESSAGES: Final = 2_000
_GATHERED_BYTES: Final = 4 * 1024 * 1024
#: Requests for known numbers that are under way together.
_AHEAD: Final = 4

Page = list[ServiceBusReceivedMessage]


def walk(bridge: Bridge, client: ServiceBusClient, address: str, first: int, last: int) -> Iterator[Page]:
    """All messages with numbers from `first` to `last`, ends when no more is there."""
    for page in _encoded_pages(bridge, client, address, first, last):
        yield [ServiceBusReceivedMessage(payload) for payload in page]


def encoded_walk(
    bridge: Bridge, client: ServiceBusClient, address: str, first: int, last: int
) -> Iterator[list[bytes]]:
    """As `walk`, encoded, and in pages that are worth their cost."""
    gathered: list[bytes] = []
    size = 0
    for page in _encoded_pages(bridge, client, address, first, last):
        gathered += page
        size += sum(map(len, page))
        if len(gathered) >= _GATHERED_MESSAGES or size >= _GATHERED_BYTES:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _encoded_pages(
    bridge: Bridge, client: ServiceBusClient, address: str, first: int, last: int
) -> Iterator[list[bytes]]:
    coming = bridge.submit(_peek_encoded(client, address, first, PAGE_MESSAGES))
    while True:
        page = coming.result()
        if not page:
            return
        next_number = _number(page[-1]) + 1
        ends = next_number > last
        if not ends:
            coming = bridge.submit(_peek_encoded(client, address, next_number, PAGE_MESSAGES))
        # Numbers ascend.
        found = page[: bisect_right(page, last, key=_number)] if ends else page
        if found:
            yield found
        if ends:
            return


def by_numbers(bridge: Bridge, client: ServiceBusClient, address: str, numbers: list[int]) -> Iterator[Page]:
    """Those of the messages that are there; `numbers` ascend."""
    slices = deque(numbers[at : at + PAGE_MESSAGES] for at in range(0, len(numbers), PAGE_MESSAGES))
    coming: deque[Future[Page]] = deque()
    while slices or coming:
        while slices and len(coming) < _AHEAD:
            coming.append(bridge.submit(peek_numbers(client, address, slices.popleft())))
        page = coming.popleft().result()
        if page:
            yield page


async def peek_numbers(client: ServiceBusClient, address: str, numbers: list[int]) -> Page:
    """Those of the messages that are there; `numbers` ascend."""
    found: Page = []
    wanted = set(numbers)
    at = 0
    while at < len(numbers):
        span = numbers[-1] - numbers[at] + 1
        page = await _peek(client, address, numbers[at], min(span, PAGE_MESSAGES))
        if not page:
            break
        found += [message for message in page if message.sequence_number in wanted]
        at = max(at + 1, bisect_right(numbers, number_of(page[-1])))
    return found


def number_of(message: ServiceBusReceivedMessage) -> int:
    number = message.sequence_number
    if number is None:
        raise ValueError("The server sent a message without a sequence number.")
    return number


def _number(payload: bytes) -> int:
    return number_of(ServiceBusReceivedMessage(payload))


async def _peek(client: ServiceBusClient, address: str, first: int, count: int) -> Page:
    return await client.get_management(address).peek_messages(count, first)


async def _peek_encoded(client: ServiceBusClient, address: str, first: int, count: int) -> list[bytes]:
    return await client.get_management(address).peek_encoded(count, first)


#: The least that a server is asked to wait for a session that has messages.
_SESSION_WAIT_S: Final = 0.05


class EntityReceivers:
    """Opening receivers on an entity of which one need not say whether it has sessions: its refusal tells."""

    def __init__(self, client: ServiceBusClient, address: str, receive_mode: str = PEEK_LOCK) -> None:
        self._client = client
        self._address = address
        self._receive_mode = receive_mode
        self.has_sessions = False

    async def open_next(self, wait_s: float) -> ServiceBusReceiver | None:
        """A receiver of the entity, or of its next session that has messages; None when no session has any."""
        if not self.has_sessions:
            plain = self._client.get_queue_receiver(self._address, receive_mode=self._receive_mode)
            try:
                await plain.open()
            except ClientError as error:
                if error.condition != Condition.NOT_ALLOWED:
                    raise
                return await self._with_sessions(error, wait_s)
            return plain
        return await self._next_session(wait_s)

    async def _with_sessions(self, refusal: ClientError, wait_s: float) -> ServiceBusReceiver | None:
        """X-1: the entity may have sessions. When it refuses those too, the first refusal was meant."""
        try:
            receiver = await self._next_session(wait_s)
        except ClientError as error:
            raise (refusal if error.condition == Condition.NOT_ALLOWED else error) from None
        self.has_sessions = True
        return receiver

    async def _next_session(self, wait_s: float) -> ServiceBusReceiver | None:
        receiver = self._client.get_queue_receiver(
            self._address,
            receive_mode=self._receive_mode,
            session_id=True,
            session_wait=max(wait_s, _SESSION_WAIT_S),
        )
        try:
            await receiver.open()
        except TimedOut:
            return None
        return receiver
