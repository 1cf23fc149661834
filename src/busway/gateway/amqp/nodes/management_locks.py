"""Management operations on what is locked: messages, renewed and settled away from their link (R-18, R-30), and
sessions, with their state (X-9, X-15, X-17)."""

import asyncio
from typing import Final

from busway.amqp.errors import Condition
from busway.amqp.types import Int, Timestamp
from busway.gateway.amqp.nodes.managed_entity import ManagedEntity
from busway.gateway.amqp.nodes.management_request import INT_MAX, RequestBody
from busway.gateway.amqp.nodes.node_response import Answer, done, nothing, string_array, timestamp_array
from busway.model.errors import BadArgument, BrokerError
from busway.model.settlement import Settlement, Verb

#: `defered` is how the clients spell it (R-18).
_VERBS: Final = {
    "completed": Verb.COMPLETE,
    "abandoned": Verb.ABANDON,
    "released": Verb.RELEASE,
    "defered": Verb.DEFER,
    "deferred": Verb.DEFER,
    "suspended": Verb.DEAD_LETTER,
}
#: The first millisecond of the year 9999: from here on a date means "whatever the date" (X-17).
_ANY_DATE_MS: Final = 253_370_764_800_000
#: Sessions in one answer; clients ask again with `skip`.
_PAGE_MAX: Final = 1_000


async def renew_lock(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-30; all of them or none."""
    tokens = body.lock_tokens("lock-tokens")
    return Answer({"expirations": timestamp_array(await entity.outlet.renew(tokens))})


async def update_disposition(entity: ManagedEntity, body: RequestBody) -> Answer:
    """Settles in one run; the first refusal is the answer, what succeeded beside it stays settled."""
    tokens = body.lock_tokens("lock-tokens")
    settlement = _settlement(body)
    session_id = entity.session_of_request(body.optional_text("session-id"))
    if entity.transaction is not None:
        return _answer_to(entity.transaction.settle(entity.outlet, tokens, settlement, session_id))
    settled: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def report(refused: list[tuple[int, BrokerError]]) -> None:
        if not settled.done():  # the asking connection may be gone meanwhile
            settled.set_result(refused)

    entity.outlet.settle(tokens, settlement, report, session_id)
    return _answer_to(await settled)


def _answer_to(refused: list[tuple[int, BrokerError]]) -> Answer:
    if refused:
        raise refused[0][1]
    return done()


def _settlement(body: RequestBody) -> Settlement:
    status = body.text("disposition-status")
    verb = _VERBS.get(status.lower())
    if verb is None:
        raise BadArgument(
            f"The value of 'disposition-status' must be one of {', '.join(_VERBS)}; it is '{status[:40]}'."
        )
    is_dead_letter = verb is Verb.DEAD_LETTER
    return Settlement(
        verb,
        properties=body.optional_map("properties-to-modify"),
        dead_letter_reason=body.optional_text("deadletter-reason") if is_dead_letter else None,
        dead_letter_description=body.optional_text("deadletter-description") if is_dead_letter else None,
    )


async def renew_session_lock(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    entity.check_holds(session_id)
    return Answer({"expiration": Timestamp(await entity.outlet.renew_session(session_id))})


async def get_session_state(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    entity.check_holds(session_id)
    return Answer({"session-state": await entity.outlet.session_state(session_id)})


async def set_session_state(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    state = body.optional_binary("session-state")
    entity.check_holds(session_id)
    await entity.outlet.set_session_state(session_id, state)
    return done()


async def get_message_sessions(entity: ManagedEntity, body: RequestBody) -> Answer:
    """X-17: with a date from the year 9999 on, sessions with messages or state; else by the state's date."""
    updated_after_ms = body.instant_ms("last-updated-time")
    skip = body.integer("skip", 0, INT_MAX)
    top = min(body.integer("top", 1, INT_MAX), _PAGE_MAX)
    if not entity.outlet.requires_session:
        raise BadArgument(f"The entity '{entity.path}' does not require sessions: it has none to list.")
    after_ms = None if updated_after_ms >= _ANY_DATE_MS else updated_after_ms
    found = await entity.outlet.list_sessions(after_ms, skip, top)
    if not found:
        return nothing(Condition.SESSION_NOT_FOUND)
    return Answer({"skip": Int(skip + len(found)), "sessions-ids": string_array(found)})
