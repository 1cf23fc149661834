"""An idempotent producer by hand: it claims its id when it attaches, and numbers its events (H-18).

Whoever cannot tell whether a group of events was stored sends the same group under the same numbers again, over as
many connections as it takes.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from busway.amqp.performatives import RECEIVER_FIRST, SENDER_UNSETTLED, Source, Target
from busway.amqp.sections import BATCH_FORMAT, DATA, AmqpMessage, encode_message
from busway.amqp.types import Int, Long, Short, Symbol
from busway.client.errors import Refused
from busway.client.messages import encode_batch
from busway.client.sender import SendingEnd
from busway.client.service_bus_client import ServiceBusClient

_WISH: Final = Symbol("com.microsoft:idempotent-producer")
_ID: Final = Symbol("com.microsoft:producer-id")
_EPOCH: Final = Symbol("com.microsoft:producer-epoch")
_SEQUENCE: Final = Symbol("com.microsoft:producer-sequence-number")


class IdempotentProducer:
    """One partition. `attach` to each new connection, `send` until it returns."""

    def __init__(self, hub: str, partition: str) -> None:
        self._address = f"{hub}/Partitions/{partition}"
        self._hub = hub
        self._id: int | None = None
        self._epoch = 0
        #: Of the last event that is known to be stored.
        self._last = 0
        self._end: _ClaimingEnd | None = None

    async def attach(self, client: ServiceBusClient) -> None:
        wire = await client.wire_for(self._hub)
        self._end = _ClaimingEnd(wire)
        answer = await self._end.claim(self._address, self._claim())
        if self._id is None:
            self._last = _whole(answer, _SEQUENCE)
        self._id, self._epoch = _whole(answer, _ID), _whole(answer, _EPOCH)

    def _claim(self) -> dict[object, object]:
        if self._id is None:
            return {_ID: None, _EPOCH: None, _SEQUENCE: None}
        return {_ID: Long(self._id), _EPOCH: Short(self._epoch), _SEQUENCE: Int(self._last)}

    async def send(self, bodies: list[bytes]) -> None:
        """Under the numbers behind the last; raises when that has not certainly worked."""
        assert self._end is not None
        payloads = [self._encode(body, self._last + 1 + place) for place, body in enumerate(bodies)]
        await self._end.send(encode_batch(payloads), BATCH_FORMAT)
        self._last += len(bodies)

    def _encode(self, body: bytes, number: int) -> bytes:
        assert self._id is not None
        annotations: dict[object, object] = {
            _ID: Long(self._id),
            _EPOCH: Short(self._epoch),
            _SEQUENCE: Int(number),
        }
        return encode_message(AmqpMessage([body], DATA, message_annotations=annotations))


class _ClaimingEnd(SendingEnd):
    async def claim(self, address: str, claim: dict[object, object]) -> dict[object, object]:
        """What the server's attach says."""
        self._wire.attach(self)
        session = self._wire.session
        if session is None:
            raise Refused("The connection is not open.")
        self._link = session.attach(
            f"producer-{uuid4()}",
            is_sender=True,
            source=Source(address="producer"),
            target=Target(address=address),
            snd_settle_mode=SENDER_UNSETTLED,
            rcv_settle_mode=RECEIVER_FIRST,
            properties=claim,
            desired_capabilities=[_WISH],
        )
        self._link.owner = self
        self._wire.flush()
        while not self._is_open:
            await self.changed()
        peer = self._link.peer
        assert peer is not None
        return dict(peer.properties or {})


def _whole(answer: dict[object, object], name: Symbol) -> int:
    value = answer.get(name)
    assert isinstance(value, int), f"{name} is {value!r}"
    return int(value)
