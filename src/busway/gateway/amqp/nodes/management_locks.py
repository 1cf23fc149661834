"""Management operations on locks: renewal and settlement away from the link (R-18, R-30)."""

import asyncio
from typing import Final

from busway.broker.errors import BadArgument, BrokerError
from busway.broker.fragment.settlement import Settlement, Verb
from busway.gateway.amqp.nodes.managed_entity import ManagedEntity
from busway.gateway.amqp.nodes.management_answer import Answer, done, timestamp_array
from busway.gateway.amqp.nodes.management_request import RequestBody

#: `defered` is how the clients spell it (R-18).
_VERBS: Final = {
    "completed": Verb.COMPLETE,
    "abandoned": Verb.ABANDON,
    "released": Verb.RELEASE,
    "defered": Verb.DEFER,
    "deferred": Verb.DEFER,
    "suspended": Verb.DEAD_LETTER,
}


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
