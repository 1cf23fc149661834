"""Management operations on message sessions (X-9, X-15, X-17)."""

from typing import Final

from busway.amqp.errors import Condition
from busway.amqp.types import Int, Timestamp
from busway.broker.errors import BadArgument
from busway.gateway.amqp.nodes.managed_entity import ManagedEntity
from busway.gateway.amqp.nodes.management_answer import Answer, done, nothing, string_array
from busway.gateway.amqp.nodes.management_request import INT_MAX, RequestBody

#: The first millisecond of the year 9999: from here on a date means "whatever the date" (X-17).
_ANY_DATE_MS: Final = 253_370_764_800_000
#: Sessions in one answer; clients ask again with `skip`.
_PAGE_MAX: Final = 1_000


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
