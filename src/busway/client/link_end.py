"""Our end of a link: attaches, waits, and knows when it is over."""

import asyncio
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from busway.amqp.events import Event, LinkAttached, LinkDetached
from busway.amqp.link import Link
from busway.amqp.performatives import Coordinator, Source, Target
from busway.client.errors import ClientError, Refused, TimedOut, error_of

if TYPE_CHECKING:
    from busway.client.wire import Wire

ATTACH_TIMEOUT_S: Final = 30.0
DETACH_TIMEOUT_S: Final = 5.0


class LinkEnd:
    """Subclasses react to events in `happened_while_open`; coroutines wait with `changed`."""

    def __init__(self, wire: "Wire") -> None:
        self._wire = wire
        self._link: Link | None = None
        self._is_open = False
        #: Why the link is over; None while it is not.
        self.failure: ClientError | None = None
        #: Set and replaced whenever anything happened that somebody may wait for.
        self._news = asyncio.Event()

    @property
    def link(self) -> Link:
        if self._link is None:
            raise Refused("The link is not open.")
        return self._link

    async def attach(
        self,
        *,
        is_sender: bool,
        source: Source,
        target: Target | Coordinator,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        properties: dict[object, object] | None = None,
        desired_capabilities: list[str] | None = None,
        timeout_s: float = ATTACH_TIMEOUT_S,
    ) -> None:
        """Returns when the server has accepted the link; raises its refusal."""
        self._wire.attach(self)
        session = self._wire.session
        if session is None:
            raise Refused("The connection is not open.")
        self._link = session.attach(
            f"busway-{uuid4()}",
            is_sender=is_sender,
            source=source,
            target=target,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            properties=properties,
            desired_capabilities=desired_capabilities,
        )
        self._link.owner = self
        self._wire.flush()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_open:
                    await self.changed()
        except TimeoutError:
            self._link.detach()
            self._wire.flush()
            raise TimedOut("The server did not answer in time.") from None

    async def detach(self) -> None:
        """Ends the link and waits for the server's answer, so that what it frees is free afterwards."""
        if self._link is None or self.failure is not None:
            return
        self._link.detach()
        self._wire.flush()
        try:
            async with asyncio.timeout(DETACH_TIMEOUT_S):
                while self.failure is None:
                    await self._news.wait()
        except TimeoutError:
            self.over(Refused("The link is closed."))
        self._wire.forget(self)

    def check(self) -> None:
        """Raises why the link is over: whoever waits for an answer asks before, for none would come."""
        if self.failure is not None:
            raise self.failure

    async def changed(self) -> None:
        """Waits for the next news; raises when the link is over."""
        self.check()
        await self._news.wait()
        self.check()

    def happened(self, event: Event) -> None:
        if isinstance(event, LinkDetached):
            self.over(
                Refused("The server closed the link.") if event.error is None else error_of(event.error)
            )
            self._wire.forget(self)
            return
        if isinstance(event, LinkAttached):
            # A refusal is an attach without the terminus, and a detach that tells why follows it.
            terminus = self.link.target if self.link.is_sender else self.link.source
            self._is_open = terminus is not None
        else:
            self.happened_while_open(event)
        self.tell()

    def happened_while_open(self, event: Event) -> None:
        """For subclasses."""

    def room_grew(self) -> None:
        self.tell()

    def over(self, failure: ClientError) -> None:
        if self.failure is None:
            self.failure = failure
            self._is_open = False
            self.ended(failure)
            self.tell()

    def ended(self, failure: ClientError) -> None:
        """For subclasses: fail what waits for an answer."""

    def tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
