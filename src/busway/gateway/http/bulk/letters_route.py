"""Dead letters back to work over HTTP (`busway.broker.bulk.letter_moves`), for `busway pipeline deadletters`:

    POST /$deadletters/E?into=D    moves dead letters of E, a queue or T/Subscriptions/S, to the queue or topic D;
                                   without it to E itself, or to the topic T

A body is letters one behind the other: the sequence number in eight bytes and the length of its changes in four, both
big-endian, and the changes: a map in AMQP's encoding of parts (`message.changed_payload`; `delay` schedules it so
many milliseconds from now on), or nothing. The answer tells by number what was not moved, all others were:

    {"gone": […], "locked": […], "refused": [[number, why], …], "later": […], "unknown": […]}

`later` and `unknown` are for the next request; of the latter nobody knows whether they were moved. A request may be
made again at any time: what has gone does not go twice. It asks for Listen on E and for Send on D, by the caller's
token or by one in the header ServiceBusSupplementaryAuthorization.

What a letter becomes is a new message with the old content. Without changes only what made it a dead letter goes, and
the stored bytes are used as they are. With changes the message is encoded anew, and read as if a client had sent it:
every limit holds for it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from starlette.responses import JSONResponse, Response

from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.encode import EncodeError
from busway.broker.bulk.claims import CLAIM_PROPERTY
from busway.broker.bulk.letter_moves import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    HELD_BYTES,
    Letter,
    LetterMoves,
    LetterTarget,
    Moved,
    takes_directly,
    target_of,
)
from busway.broker.namespace.namespace import Namespace, Queue
from busway.clock import Clock
from busway.gateway.http.bulk.admission import BulkAdmission
from busway.gateway.http.call import SOON_S, Call
from busway.gateway.http.messages.messages import MessageEntities, WireCodec
from busway.gateway.http.presence import presence_of
from busway.message.bare import entries_by_name, with_application_properties
from busway.message.changed_payload import SCHEDULED, changed_payload, is_part
from busway.message.message import FORWARDED, Message, read_head
from busway.model.descriptions import LISTEN, SEND, SubscriptionDescription
from busway.model.entity_path import EntityAddress, check_path, path_key, shown
from busway.model.errors import BadArgument, EntityNotFound
from busway.model.limits import Limits

BODY_BYTES_MAX: Final = 8 * 1024 * 1024
LETTERS_MAX: Final = 5_000
_SUPPLEMENT: Final = "servicebussupplementaryauthorization"
_LETTER: Final = Struct(">QI")
_NUMBER_MAX: Final = (1 << 63) - 1
#: Milliseconds from now on, by this server's clock, that it is scheduled for.
DELAY: Final = "delay"
_LEFT_OUT: Final = (DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION, CLAIM_PROPERTY)
_REMOVED: Final = {name.encode(): True for name in _LEFT_OUT}
#: Where neither stands in a message there is nothing to remove.
_DEAD_LETTER: Final = b"DeadLetter"
_CLAIM: Final = CLAIM_PROPERTY.encode()
_DELAY_MS_MAX: Final = 366 * 24 * 3600 * 1000


class LettersRoute:
    def __init__(
        self, namespace: Namespace, codec: WireCodec, clock: Clock, admission: BulkAdmission
    ) -> None:
        self._namespace = namespace
        self._entities = MessageEntities(namespace)
        self._admission = admission
        self._moves = LetterMoves(RemadeLetters(codec, clock, namespace.limits).message)

    def require(self, call: Call, entity: str) -> None:
        path = EntityAddress.parse(entity).path
        check_path(path, self._namespace.limits.path_characters_max)
        call.require_for(path, path, LISTEN)

    async def move(self, call: Call, entity: str) -> Response:
        call.retry_after_s = SOON_S
        address = EntityAddress.parse(entity)
        if address.dead_letter or address.transfer_dead_letter or address.management:
            raise EntityNotFound(f"{shown(entity)} has no dead letters; name the entity whose they are.")
        queue = self._namespace.queue(address.path)
        top = _top_of(queue)
        into = call.request.query_params.get("into", top)
        check_path(into, self._namespace.limits.path_characters_max)
        call.require_on(into, SEND, _SUPPLEMENT)
        target = await self._target(queue, top, into)
        with self._admission.enter(call.caller, presence_of(call.request)) as place:
            await place.hold(call.body_bytes(BODY_BYTES_MAX) + HELD_BYTES)
            letters = letters_of(await call.body(BODY_BYTES_MAX))
            await place.turn()
            told = await self._moves.move(queue.outlet(True), target, letters, place.pace)
        return JSONResponse(_json(told))

    async def _target(self, queue: Queue, top: str, into: str) -> LetterTarget:
        """Raises EntityNotFound, EntityDisabled, InvalidOperation."""
        self._entities.sender(into)
        is_own = path_key(into) == path_key(queue.path)
        if is_own and takes_directly(queue):
            return target_of(queue, True, None)
        via = self._namespace.transfer_queues.send_via(top, into)
        if via is None:
            await self._namespace.transfer_queues.prepare(top)
            via = self._namespace.transfer_queues.send_via(top, into)
        return target_of(queue, is_own, via)


def _top_of(queue: Queue) -> str:
    """The queue itself, or the topic of a subscription."""
    description = queue.description
    return description.topic_path if isinstance(description, SubscriptionDescription) else queue.path


def letters_of(body: bytes) -> list[Letter]:
    """Raises BadArgument."""
    letters: list[Letter] = []
    at = 0
    while at < len(body):
        if at + _LETTER.size > len(body):
            raise BadArgument("The body ends within a letter.")
        number, length = _LETTER.unpack_from(body, at)
        at += _LETTER.size + length
        if at > len(body):
            raise BadArgument("The body ends within the changes of a letter.")
        if not 1 <= number <= _NUMBER_MAX:
            raise BadArgument(f"{number} is no sequence number.")
        letters.append(Letter(number, body[at - length : at]))
        if len(letters) > LETTERS_MAX:
            raise BadArgument(f"A request moves at most {LETTERS_MAX} letters.")
    if len({letter.number for letter in letters}) < len(letters):
        raise BadArgument("A number stands there twice.")
    return letters


def _json(told: Moved) -> dict[str, object]:
    return {
        "gone": told.gone,
        "locked": told.locked,
        "refused": [[number, error.sentence] for number, error in told.refused],
        "later": told.later,
        "unknown": told.unknown,
    }


class RemadeLetters:
    def __init__(self, codec: WireCodec, clock: Clock, limits: Limits) -> None:
        self._codec = codec
        self._clock = clock
        self._limits = limits

    def message(self, row: Message, changes: bytes) -> Message:
        """Raises BadArgument, and what else a message is refused with."""
        if not changes:
            return _as_it_is(row)
        try:
            payload = changed_payload(self._codec.payload(row, b"", 0), self._parts(changes), _LEFT_OUT)
            return self._codec.message(payload, False, self._limits)
        except (DecodeError, EncodeError, ValueError, TypeError, OverflowError) as error:
            raise BadArgument(f"It cannot be encoded as an AMQP message: {error}") from error

    def _parts(self, changes: bytes) -> dict[str, object]:
        found, end = decode_value(changes)
        if not isinstance(found, dict) or end != len(changes):
            raise BadArgument("Changes must be a map.")
        parts: dict[str, object] = {str(name): value for name, value in found.items()}
        delay = parts.pop(DELAY, None)
        unknown = next((name for name in parts if not is_part(name)), None)
        if unknown is not None:
            raise BadArgument(f"There is no part {shown(unknown)} of a message.")
        if isinstance(delay, int):
            parts[SCHEDULED] = self._clock.wall_ms() + max(0, min(delay, _DELAY_MS_MAX))
        elif delay is not None:
            raise BadArgument("delay must be a number of milliseconds.")
        return parts


def _as_it_is(row: Message) -> Message:
    head, bare = row.head, row.bare
    if head and head[0] & FORWARDED:
        parts = read_head(head)
        parts.hops = 0
        head = parts.encoded()
    fresh: dict[bytes, bytes] = {}
    if row.changes is not None:
        entries = entries_by_name(row.changes, 0, len(row.changes))
        fresh = {name: entry for name, entry in entries.items() if name not in _REMOVED}
    if fresh or _DEAD_LETTER in bare or _CLAIM in bare:
        bare = with_application_properties(bare, fresh, _REMOVED)
    return Message(head, bare, ttl_ms=row.ttl_ms, session_id=row.session_id, partition_key=row.partition_key)
