"""DRAFT of signatures, to be replaced by `fragment.py`, `queue.py`, `namespace.py` and `authorization.py`."""

from __future__ import annotations

from typing import Protocol

from busway.broker.receiver import Attachment, Delivery, Receiver
from busway.broker.settlement import RunDone, Settlement
from busway.message import Message


class MessageSession(Protocol):
    """A Service Bus session held by one receiver (X-4)."""

    session_id: str
    locked_until_ms: int

    def close(self) -> None:
        """Frees the lock at once; unsettled messages return without a count (X-11)."""


class Outlet(Protocol):
    """Something messages can be received from: a queue, or a queue's dead-letter sub-queue. A plain queue's
    outlet is its Fragment itself; later a partitioned one joins several."""

    requires_session: bool

    # -- hot: synchronous, in runs
    def add_receiver(self, receiver: Receiver) -> None:
        """Raises EntityDisabled, InvalidOperation (X-1), QuotaExceeded/ServerBusy (L-12)."""

    def remove_receiver(self, receiver: Receiver) -> None:
        """The link is gone. Its locks stay until their end (R-19)."""

    def wake(self, receiver: Receiver) -> None:
        """The receiver's room has grown; deliver what there is, now, before returning, if it is in memory."""

    def settle(self, tokens: list[bytes], settlement: Settlement, done: RunDone, session_id: str | None = None) -> None:
        """Pops the locks by token; whoever pops one owns its outcome. `done` comes when it is durable."""

    def undeliver(self, deliveries: list[Delivery]) -> None:
        """Handed over but never written to the socket: unlock without a count (or put back when deleted)."""

    # -- rare: coroutines
    async def renew(self, tokens: list[bytes]) -> list[int]: ...  # new locked_until_ms each; MessageLockLost

    async def peek(self, from_number: int, count: int, session_id: str | None = None) -> list[Message]: ...

    async def receive_by_number(
        self, numbers: list[int], *, deletes: bool, session_id: str | None = None
    ) -> list[Delivery]: ...  # all or nothing

    async def delete_messages(self, count: int, enqueued_before_ms: int, session_id: str | None = None) -> int: ...

    async def accept_session(
        self, receiver: Receiver, session_id: str | None, timeout_s: float
    ) -> MessageSession: ...  # X-3…X-8; the receiver is registered for that session; OperationTimedOut, SessionCannotBeLocked

    async def renew_session(self, session_id: str) -> int: ...  # locked_until_ms; SessionLockLost

    async def session_state(self, session_id: str) -> bytes | None: ...

    async def set_session_state(self, session_id: str, state: bytes | None) -> None: ...

    async def list_sessions(self, state_set_after_ms: int | None, skip: int, top: int) -> list[str]: ...


class Queue(Protocol):
    """An entity of the namespace. `description` is a frozen QueueDescription, replaced on update."""

    path: str

    def send(self, messages: list[Message], done: RunDone) -> None:
        """Stores each message for itself, in order (S-4); refused ones are reported by index."""

    def send_atomically(self, messages: list[Message], done: RunDone) -> None:
        """A batch: all or nothing (S-20); an error is reported for index 0."""

    async def schedule(self, messages: list[Message]) -> list[int]: ...  # S-30 b

    async def cancel_scheduled(self, numbers: list[int]) -> None: ...  # S-33

    def outlet(self, dead_letter: bool) -> Outlet: ...

    def attach(self, attachment: Attachment, *, sends: bool) -> None:
        """Registers a link so that it is evicted when the entity changes under it (E-84, E-86). Raises EntityDisabled."""

    def detach(self, attachment: Attachment) -> None: ...
