"""Requests to an entity's management node: what links cannot do.

Among it are locks that are kept on messages while others are worked on: they are renewed by their tokens.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol
from uuid import UUID

from busway.amqp.errors import AmqpError
from busway.amqp.performatives import TransactionalState
from busway.amqp.sections import AmqpMessage
from busway.amqp.types import Array, Int, Long, Timestamp, UInt
from busway.client.errors import ClientError, LockLost, Refused, TimedOut, Unreachable, error_of
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage

_LONG: Final = 0x81
_UUID: Final = 0x98
#: "Whatever the date": the year 10000 (X-17).
ANY_DATE_MS: Final = 253_402_300_800_000


class Asker(Protocol):
    """Something that brings a request to a node and its answer back."""

    async def ask(
        self, properties: dict[str, object], body: object, state: TransactionalState | None = None
    ) -> AmqpMessage: ...


def _no_transaction() -> TransactionalState | None:
    return None


class Management:
    """One entity's node. Made by `ServiceBusClient.get_management`; opens itself with the first request."""

    def __init__(
        self, links: Asker, transaction_state: Callable[[], TransactionalState | None] = _no_transaction
    ) -> None:
        self._links = links
        self._transaction_state = transaction_state

    async def peek_messages(
        self, max_message_count: int = 1, sequence_number: int = 0, session_id: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        found = await self.peek_encoded(max_message_count, sequence_number, session_id)
        return [ServiceBusReceivedMessage(payload) for payload in found]

    async def peek_encoded(
        self, max_message_count: int = 1, sequence_number: int = 0, session_id: str | None = None
    ) -> list[bytes]:
        """As `peek_messages`, each message as it came."""
        body: dict[str, object] = {
            "from-sequence-number": Long(sequence_number),
            "message-count": Int(max_message_count),
        }
        answer = await self.ask("peek-message", _with_session(body, session_id))
        return [payload for payload, _ in _messages(answer)]

    async def schedule_messages(self, messages: list[ServiceBusMessage], schedule_time_ms: int) -> list[int]:
        entries = [
            {"message-id": message.message_id or "", "message": message.encode(schedule_time_ms)}
            for message in messages
        ]
        answer = await self._ask_in_transaction("schedule-message", {"messages": entries})
        return [int(number) for number in _items(answer.get("sequence-numbers")) if isinstance(number, int)]

    async def cancel_scheduled_messages(self, sequence_numbers: list[int]) -> None:
        body: dict[str, object] = {"sequence-numbers": _longs(sequence_numbers)}
        await self._ask_in_transaction("cancel-scheduled-message", body)

    async def receive_deferred_messages(
        self,
        sequence_numbers: list[int],
        *,
        deletes: bool = False,
        session_id: str | None = None,
        link_name: str | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        body: dict[str, object] = {
            "sequence-numbers": _longs(sequence_numbers),
            "receiver-settle-mode": UInt(0 if deletes else 1),
        }
        answer = await self.ask("receive-by-sequence-number", _with_session(body, session_id), link_name)
        return [ServiceBusReceivedMessage(payload, lock_token=token) for payload, token in _messages(answer)]

    async def batch_delete_messages(
        self, max_message_count: int, before_enqueued_time_ms: int, session_id: str | None = None
    ) -> int:
        body: dict[str, object] = {
            "message-count": Int(max_message_count),
            "enqueued-time-utc": Timestamp(before_enqueued_time_ms),
        }
        deleted = (await self.ask("batch-delete-messages", _with_session(body, session_id))).get(
            "message-count"
        )
        return int(deleted) if isinstance(deleted, int) else 0

    async def renew_message_lock(self, lock_token: UUID) -> int:
        """The lock's new end, in milliseconds since 1970."""
        answer = await self.ask("renew-lock", {"lock-tokens": Array([lock_token], _UUID)})
        return _first_number(_items(answer.get("expirations")))

    async def settle(
        self, lock_token: UUID, disposition: str, changes: dict[str, object] | None = None
    ) -> None:
        body: dict[str, object] = {
            "disposition-status": disposition,
            "lock-tokens": Array([lock_token], _UUID),
        }
        await self._ask_in_transaction("update-disposition", body | (changes or {}))

    async def renew_message_locks(self, lock_tokens: list[UUID]) -> None:
        """All of them or none."""
        await self.ask("renew-lock", {"lock-tokens": Array(list(lock_tokens), _UUID)})

    async def settle_all(self, lock_tokens: list[UUID], disposition: str) -> None:
        """In one run. The first refusal is raised; what succeeded beside it stays settled."""
        tokens = Array(list(lock_tokens), _UUID)
        body: dict[str, object] = {"disposition-status": disposition, "lock-tokens": tokens}
        await self._ask_in_transaction("update-disposition", body)

    async def renew_session_lock(self, session_id: str, link_name: str) -> int:
        answer = await self.ask("renew-session-lock", {"session-id": session_id}, link_name)
        return _first_number([answer.get("expiration")])

    async def get_session_state(self, session_id: str, link_name: str) -> bytes | None:
        state = (await self.ask("get-session-state", {"session-id": session_id}, link_name)).get(
            "session-state"
        )
        return state if isinstance(state, bytes) else None

    async def set_session_state(self, session_id: str, state: bytes | None, link_name: str) -> None:
        await self.ask("set-session-state", {"session-id": session_id, "session-state": state}, link_name)

    async def list_sessions(
        self, skip: int = 0, top: int = 100, updated_after_ms: int = ANY_DATE_MS
    ) -> list[str]:
        body: dict[str, object] = {
            "last-updated-time": Timestamp(updated_after_ms),
            "skip": Int(skip),
            "top": Int(top),
        }
        answer = await self.ask("get-message-sessions", body)
        return [str(session_id) for session_id in _items(answer.get("sessions-ids"))]

    async def ask(
        self, operation: str, body: dict[str, object], link_name: str | None = None
    ) -> dict[str, object]:
        """One operation: the answer's map, empty for "nothing there"; raises what the server refused with."""
        properties: dict[str, object] = {"operation": f"com.microsoft:{operation}"}
        if link_name is not None:
            properties["associated-link-name"] = link_name
        return read_answer(await self._links.ask(properties, body))

    async def _ask_in_transaction(self, operation: str, body: dict[str, object]) -> dict[str, object]:
        """As `ask`, as part of the transaction in whose block the running code is."""
        properties: dict[str, object] = {"operation": f"com.microsoft:{operation}"}
        return read_answer(await self._links.ask(properties, body, self._transaction_state()))


def read_answer(answer: AmqpMessage) -> dict[str, object]:
    properties = answer.application_properties or {}
    status = properties.get("statusCode", properties.get("status-code"))
    if not isinstance(status, int):
        raise Refused("The server answered without a status.")
    if status >= 300:
        condition = properties.get("errorCondition", properties.get("error-condition"))
        description = properties.get("statusDescription", properties.get("status-description"))
        raise error_of(AmqpError(str(condition), None if description is None else str(description)))
    return answer.body if isinstance(answer.body, dict) else {}


def _with_session(body: dict[str, object], session_id: str | None) -> dict[str, object]:
    return body if session_id is None else {**body, "session-id": session_id}


def _longs(numbers: list[int]) -> Array:
    return Array([Long(number) for number in numbers], _LONG)


def _items(value: object) -> list[object]:
    if isinstance(value, Array):
        return value.items
    return value if isinstance(value, list) else []


def _first_number(items: list[object]) -> int:
    if not items or not isinstance(items[0], int):
        raise Refused("The server answered without the new end of the lock.")
    return int(items[0])


def _messages(answer: dict[str, object]) -> list[tuple[bytes, UUID | None]]:
    found: list[tuple[bytes, UUID | None]] = []
    for entry in _items(answer.get("messages")):
        payload = entry.get("message") if isinstance(entry, dict) else None
        token = entry.get("lock-token") if isinstance(entry, dict) else None
        if isinstance(payload, bytes):
            found.append((payload, token if isinstance(token, UUID) else None))
    return found


_TOKENS_AT_ONCE: Final = 500
_LOCK_S_MIN: Final = 2.0
_LOCK_S_MAX: Final = 300.0


class HeldLocks:
    """Locks of messages that were received and are not worked on: kept until they are given back, so that the same
    messages do not come again meanwhile."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self._tokens: list[UUID] = []
        self._lock_s = _LOCK_S_MIN
        self._renew_at = 0.0

    def __len__(self) -> int:
        return len(self._tokens)

    def received(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """How long a lock lasts is told by the first that may be kept."""
        if messages and not self._tokens:
            left_s = (messages[0].locked_until_ms or 0) / 1000 - time.time()
            self._lock_s = min(max(left_s, _LOCK_S_MIN), _LOCK_S_MAX)
            self._renew_at = time.monotonic() + self._lock_s / 2

    def keep(self, tokens: Iterable[UUID]) -> None:
        self._tokens += tokens

    async def renew(self) -> None:
        """Those that are half over. What is lost meanwhile is let go."""
        if not self._tokens or time.monotonic() < self._renew_at:
            return
        kept: list[UUID] = []
        for some in slices(self._tokens):
            kept += await _renewed(self._management, some)
        self._tokens = kept
        self._renew_at = time.monotonic() + self._lock_s / 2

    async def release(self) -> None:
        """Whatever ended the work: a lost connection or lock changes nothing about what was done."""
        tokens, self._tokens = self._tokens, []
        for some in slices(tokens):
            try:
                await self._management.settle_all(some, "released")
            except (LockLost, Unreachable, TimedOut, TimeoutError):
                continue
            except ClientError:
                # A server that does not know the word: giving back counts as a delivery there.
                with contextlib.suppress(ClientError):
                    await self._management.settle_all(some, "abandoned")


def slices(tokens: list[UUID]) -> list[list[UUID]]:
    """As many as one request takes."""
    return [tokens[start : start + _TOKENS_AT_ONCE] for start in range(0, len(tokens), _TOKENS_AT_ONCE)]


async def _renewed(management: Management, tokens: list[UUID]) -> list[UUID]:
    """A run is renewed as a whole or not at all, so a lost lock is looked for."""
    try:
        await management.renew_message_locks(tokens)
    except LockLost:
        if len(tokens) == 1:
            return []
        half = len(tokens) // 2
        return [*await _renewed(management, tokens[:half]), *await _renewed(management, tokens[half:])]
    return tokens
