"""History for a subscription over HTTP, for `busway pipeline backfill`:

    GET  /$backfill/T/Subscriptions/S             when its rules began, in the numbers of captured subscriptions
    POST /$backfill/T/Subscriptions/S?fragment=N  copies to store, each once; answers {"new": n, "known": n}

A body is copies one behind the other. Each is three pieces: its id, why a rule failed (a JSON object with reason and
description, empty for a copy that a rule selected), and the message as AMQP encodes it. A piece is its length in four
bytes, big-endian, and its bytes. Both ask for Manage on the topic: who may do this can put messages where nobody else
may send.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Final

from starlette.responses import JSONResponse, Response

from busway.amqp.decode import DecodeError
from busway.broker.bulk.backfill import Backfill, HistoricCopy, Stored
from busway.broker.namespace.namespace import Namespace
from busway.gateway.http.atom.management_address import TopicAddress
from busway.gateway.http.bulk.admission import BulkAdmission, BulkPlace
from busway.gateway.http.call import SOON_S, Call
from busway.gateway.http.messages.messages import WireCodec
from busway.gateway.http.presence import presence_of
from busway.model.descriptions import MANAGE
from busway.model.entity_path import shown
from busway.model.errors import BadArgument, EntityNotFound

BODY_BYTES_MAX: Final = 8 * 1024 * 1024
COPIES_MAX: Final = 10_000
_COPIES_AT_ONCE: Final = 200
_LENGTH: Final = Struct(">I")
_DIGITS_MAX: Final = 5
_WORDS_MAX: Final = 4096


class BackfillRoute:
    def __init__(self, namespace: Namespace, codec: WireCodec, admission: BulkAdmission) -> None:
        self._admission = admission
        self._namespace = namespace
        self._codec = codec
        self._backfill = Backfill()

    def require(self, call: Call, subscription: str) -> None:
        address = TopicAddress.parse(subscription, self._namespace.limits)
        if address is None or address.subscription is None or address.rule is not None or address.lists_rules:
            raise EntityNotFound(f"{shown(subscription)} is no subscription.")
        call.require_for(address.topic, subscription, MANAGE)
        call.retry_after_s = SOON_S

    async def beginnings(self, _: Call, subscription: str) -> Response:
        return JSONResponse(self._namespace.rules.beginnings(self._path(subscription)))

    async def store(self, call: Call, subscription: str) -> Response:
        path, fragment_index = self._path(subscription), _fragment_index(call)
        with self._admission.enter(call.caller, presence_of(call.request)) as place:
            await place.hold(call.body_bytes(BODY_BYTES_MAX))
            copies = await self._copies(await call.body(BODY_BYTES_MAX), place)
            stored = await self._backfill.store(self._namespace.queue(path), fragment_index, copies)
        return JSONResponse(_json(stored))

    def _path(self, subscription: str) -> str:
        """In the one spelling of its keyword."""
        address = TopicAddress.parse(subscription, self._namespace.limits)
        assert address is not None, "`require` was asked before"
        return address.path

    async def _copies(self, body: bytes, place: BulkPlace) -> list[HistoricCopy]:
        """Some in each turn of the loop."""
        copies: list[HistoricCopy] = []
        pieces = _pieces(body)
        for first in range(0, len(pieces), 3 * _COPIES_AT_ONCE):
            await place.turn()
            some = iter(pieces[first : first + 3 * _COPIES_AT_ONCE])
            copies += [self._copy(*copy) for copy in zip(some, some, some, strict=True)]
        return copies

    def _copy(self, id_: bytes, failure: bytes, payload: bytes) -> HistoricCopy:
        try:
            message = self._codec.message(payload, False, self._namespace.limits)
            name = id_.decode()
        except (DecodeError, UnicodeDecodeError) as error:
            raise BadArgument(f"A copy cannot be read: {error}") from error
        reason, description = _failure(failure)
        return HistoricCopy(name, message, reason, description)


def _pieces(body: bytes) -> list[bytes]:
    pieces: list[bytes] = []
    at, end, read = 0, len(body), _LENGTH.unpack_from
    while at < end:
        start = at + _LENGTH.size
        if start > end:
            raise BadArgument("The body ends within a length.")
        at = start + read(body, at)[0]
        if at > end:
            raise BadArgument("The body ends within a piece.")
        pieces.append(body[start:at])
    if len(pieces) % 3 or len(pieces) > 3 * COPIES_MAX:
        raise BadArgument(f"The body must be copies of three pieces each, at most {COPIES_MAX} of them.")
    return pieces


def _failure(text: bytes) -> tuple[str | None, str]:
    if not text:
        return None, ""
    try:
        found = json.loads(text) if len(text) <= _WORDS_MAX else None
    except (ValueError, RecursionError):
        found = None
    reason = found.get("reason") if isinstance(found, dict) else None
    description = found.get("description", "") if isinstance(found, dict) else None
    if not isinstance(reason, str) or not isinstance(description, str):
        raise BadArgument(
            f"A failure must be an object with reason and description, of at most {_WORDS_MAX} bytes."
        )
    return reason, description


def _fragment_index(call: Call) -> int:
    text = call.request.query_params.get("fragment", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise BadArgument(f"fragment: {shown(text)} is not a number.")
    return int(text)


def _json(stored: Stored) -> dict[str, int]:
    return {"new": stored.new, "known": stored.known}
