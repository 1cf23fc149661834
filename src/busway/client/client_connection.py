"""The connection of a client: opened with its first use and again after a loss, with tokens for the entities in use,
links for management and the one for transactions.
"""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Final

from busway.amqp.performatives import TransactionalState
from busway.amqp.sections import AmqpMessage
from busway.client.connection_string import ConnectionString
from busway.client.errors import ClientError
from busway.client.management import Management, read_answer
from busway.client.request_links import RequestLinks
from busway.client.sas_token import LIFETIME_S, token_for
from busway.client.transaction import ControlEnd, transaction_of
from busway.client.wire import Wire, open_wire

#: A new token is put when three quarters of the old one's life are over.
_RENEW_AFTER_S: Final = LIFETIME_S * 3 / 4
#: When one could not be renewed: there is time for several tries before it ends.
_RENEW_AGAIN_AFTER_S: Final = 60.0


class ClientConnection:
    """With `plain_login` it logs in by SASL PLAIN instead of tokens."""

    def __init__(self, target: ConnectionString, ca_file: Path | None, *, plain_login: bool) -> None:
        self._target = target
        self._ca_file = ca_file
        self._plain_login = plain_login
        self._wire: Wire | None = None
        self._cbs: RequestLinks | None = None
        self._audiences: set[str] = set()
        self._managements: dict[str, _LazyLinks] = {}
        self._control: ControlEnd | None = None
        self._renewal: asyncio.Task[None] | None = None
        #: Two coroutines that need the connection at once open it once.
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
            self._renewal = None
        if self._wire is not None:
            await self._wire.close()
            self._wire = None

    def get_management(self, queue_name: str) -> Management:
        links = self._managements.get(queue_name)
        if links is None:
            links = self._managements[queue_name] = _LazyLinks(self, queue_name)
        return Management(links, self.transaction_state)

    def transaction_state(self) -> TransactionalState | None:
        """What transfers bear inside the block of a transaction; None outside."""
        transaction = transaction_of(self)
        return None if transaction is None else transaction.state()

    async def control_link(self) -> ControlEnd:
        """One for the connection; its loss rolls back what is open."""
        async with self._opening:
            wire = await self._connected()
            control = self._control
            if control is None or control.failure is not None:
                control = ControlEnd(wire)
                await control.open()
                self._control = control
        return control

    async def wire_for(self, entity: str) -> Wire:
        """The open connection, with a token put for the entity."""
        async with self._opening:
            wire = await self._connected()
            if not self._plain_login and entity not in self._audiences:
                await self._put_token(entity)
                self._audiences.add(entity)
        return wire

    async def _connected(self) -> Wire:
        wire = self._wire
        return await self._open() if wire is None or wire.failure is not None else wire

    async def _open(self) -> Wire:
        self._audiences.clear()
        self._managements.clear()
        if self._wire is not None:
            await self._wire.close()
        self._wire = wire = await open_wire(self._target, self._ca_file, plain_login=self._plain_login)
        if not self._plain_login:
            self._cbs = RequestLinks(wire, "$cbs")
            await self._cbs.open()
            if self._renewal is None:
                self._renewal = asyncio.create_task(self._renew_tokens())
        return wire

    async def _put_token(self, entity: str) -> None:
        if self._cbs is None:
            return
        audience = self._target.audience(entity)
        token = token_for(self._target, audience, time.time())
        properties: dict[str, object] = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
        }
        read_answer(await self._cbs.ask(properties, token))

    async def _renew_tokens(self) -> None:
        pause_s = _RENEW_AFTER_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = _RENEW_AFTER_S
            for entity in list(self._audiences):
                try:
                    await self._put_token(entity)
                except ClientError:  # one that lasts shows itself to whoever uses the connection next
                    pause_s = _RENEW_AGAIN_AFTER_S


class _LazyLinks:
    """Links to a management node that open with the first request, and again after a loss."""

    def __init__(self, connection: ClientConnection, entity: str) -> None:
        self._connection = connection
        self._entity = entity
        self._opened: RequestLinks | None = None
        self._opening = asyncio.Lock()

    async def ask(
        self, properties: dict[str, object], body: object, state: TransactionalState | None = None
    ) -> AmqpMessage:
        async with self._opening:
            if self._opened is None or self._opened.is_over:
                wire = await self._connection.wire_for(self._entity)
                self._opened = RequestLinks(wire, f"{self._entity}/$management")
                await self._opened.open()
        return await self._opened.ask(properties, body, state)
