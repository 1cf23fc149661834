"""Opening receivers on an entity of which one need not say whether it has sessions: its refusal tells."""

from typing import Final

from busway.amqp.errors import Condition
from busway.client.errors import ClientError, TimedOut
from busway.client.receiver import PEEK_LOCK, ServiceBusReceiver
from busway.client.service_bus_client import ServiceBusClient

#: The least that a server is asked to wait for a session that has messages.
_SESSION_WAIT_S: Final = 0.05


class EntityReceivers:
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
