"""What messages go into and come out of, as everything around the broker sees it.

A plain queue has one fragment behind each of its outlets (`fragment`), a partitioned one several
(`fragment_group`). Whoever sends, receives or settles works with this surface and need not know which it is (P-4).

The broker itself moves messages too: `Origin` is where such messages come from, `Onward` is what takes them on
(F-1). How: `forward`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mypy_extensions import mypyc_attr

from busway.broker.fragment.locks import Attachment as Attachment
from busway.broker.fragment.locks import Delivery as Delivery
from busway.broker.fragment.locks import Receiver as Receiver
from busway.broker.fragment.message_sessions import MessageSession as MessageSession
from busway.broker.fragment.settings import FragmentSettings as FragmentSettings
from busway.message.message import Message
from busway.model.errors import BrokerError
from busway.model.settlement import RunDone, SendReport, Settlement
from busway.store.contract import CommitBatch, FragmentIndex

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.model.flow import FlowCounts


class Origin(Protocol):
    """Whoever moves messages here is told when they join a batch: they leave their old place in the same commit."""

    def joined(self, batch: CommitBatch, messages: list[Message], store_name: str) -> None:
        """These have joined, in this very step. Of a send that joins in parts: one part after the other."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Onward:
    """Takes what arrives in a fragment on to another entity, instead of handing it to receivers."""

    def __init__(self) -> None:
        #: Numbers of rows that are on their way.
        self.moving: set[int] = set()

    def wake(self) -> None:
        """Something may have arrived."""
        raise NotImplementedError

    def arrived(self, numbers: list[int]) -> None:
        """Rows have come with numbers they had before: dead letters, in any order."""
        raise NotImplementedError

    def stop(self) -> None:
        """The fragment is out of use."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet:
    """See the head of this file. What each call means, and raises, is said in `Fragment`."""

    __slots__ = ()

    settings: FragmentSettings
    #: The counts of the whole entity.
    flow: FlowCounts

    @property
    def requires_session(self) -> bool:
        return self.settings.requires_session

    # -- life

    def fragments(self) -> list[Fragment]:
        """Those that are loaded: without the ones whose store is away."""
        raise NotImplementedError

    def member(self, index: FragmentIndex) -> Fragment:
        """The fragment with that index; a plain one has no other. Raises ServerBusy while its store is away."""
        raise NotImplementedError

    def replace_settings(self, settings: FragmentSettings) -> None:
        raise NotImplementedError

    def failed(self, error: BrokerError) -> None:
        raise NotImplementedError

    def evict(self, error: BrokerError) -> None:
        raise NotImplementedError

    def receivers(self) -> list[Receiver]:
        raise NotImplementedError

    # -- sending

    def is_congested(self) -> bool:
        """The store does not keep up: senders get no more credit."""
        raise NotImplementedError

    def append(
        self,
        messages: list[Message],
        done: RunDone,
        *,
        atomically: bool = False,
        origin: Origin | None = None,
        source_numbers: list[int] | None = None,
    ) -> None:
        raise NotImplementedError

    def append_in_parts(self, messages: list[Message], report: SendReport) -> None:
        """`append` for whoever can be told part by part."""
        raise NotImplementedError

    async def cancel_scheduled(self, numbers: list[int]) -> None:
        raise NotImplementedError

    # -- receiving

    def add_receiver(self, receiver: Receiver) -> None:
        raise NotImplementedError

    def remove_receiver(self, receiver: Receiver) -> None:
        raise NotImplementedError

    def wake(self, receiver: Receiver) -> None:
        raise NotImplementedError

    def is_fetching(self, receiver: Receiver) -> bool:
        raise NotImplementedError

    def undeliver(self, deliveries: list[Delivery]) -> None:
        raise NotImplementedError

    # -- locks

    def settle(
        self, tokens: list[bytes], settlement: Settlement, done: RunDone, session_id: str | None = None
    ) -> None:
        raise NotImplementedError

    async def renew(self, tokens: list[bytes]) -> list[int]:
        raise NotImplementedError

    def locked_number(self, token: bytes) -> int | None:
        """The number of the message that this live lock holds."""
        raise NotImplementedError

    # -- requests that begin with a read

    async def peek(self, from_number: int, count: int, session_id: str | None = None) -> list[Message]:
        raise NotImplementedError

    async def receive_by_number(
        self, numbers: list[int], *, deletes: bool, session_id: str | None = None
    ) -> list[Delivery]:
        raise NotImplementedError

    async def delete_messages(
        self,
        count: int,
        enqueued_before_ms: int,
        session_id: str | None = None,
        holds_session: Callable[[str], bool] | None = None,
    ) -> int:
        """`holds_session`: whether whoever asks holds that session; asked at the moment of the deletion."""
        raise NotImplementedError

    async def delete_by_number(self, numbers: list[int]) -> list[int]:
        """In whatever state; those that are gone then."""
        raise NotImplementedError

    # -- sessions

    async def accept_session(
        self, receiver: Receiver, session_id: str | None, timeout_s: float
    ) -> MessageSession:
        raise NotImplementedError

    async def renew_session(self, session_id: str) -> int:
        raise NotImplementedError

    async def session_state(self, session_id: str) -> bytes | None:
        raise NotImplementedError

    async def set_session_state(self, session_id: str, state: bytes | None) -> None:
        raise NotImplementedError

    async def list_sessions(self, state_set_after_ms: int | None, skip: int, top: int) -> list[str]:
        raise NotImplementedError
