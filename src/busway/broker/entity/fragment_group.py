"""The fragments of a partitioned entity, or of its dead-letter queue, as one (P-40…P-55).

Theory of operation. Every fragment is a state machine of its own; this only deals out. A receiver stands on the
lanes of all fragments at once, through one `ReceiverShare` each, and takes from whichever has something; each
wake-up begins with the fragment whose first message is the oldest, so none starves. Nothing is fetched that the
receiver cannot take at that moment, so no message waits, locked, for somebody who does not ask (P-42, P-45). Lock
tokens and sequence numbers carry their fragment's index, so settlement, renewal and requests by number find their
way without a table.

A fragment whose store is away is None here. Receivers do not notice, except those that hold one of its sessions;
when it is back they stand on its lane again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from busway.broker.entity.fragment_choice import (
    SLICE_MESSAGES_MAX,
    FragmentChoice,
    FragmentPart,
    Members,
    are_keyless,
    index_of_number,
    index_of_token,
)
from busway.broker.entity.group_requests import Cancellation, SessionLines, listed_sessions, settle_durably
from busway.broker.entity.group_shares import (
    DealtSlices,
    GatheredReport,
    GroupSettling,
    PartReport,
    ReceiverShare,
    ReceiverShares,
)
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.message_sessions import MessageSession
from busway.broker.fragment.outlet import Origin, Outlet
from busway.broker.fragment.read_requests import check_fits, read
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.fragment.settings import FragmentSettings
from busway.message.message import Message
from busway.model.errors import (
    BrokerError,
    EntityDisabled,
    InvalidOperation,
    MessageNotFound,
    ServerBusy,
)
from busway.model.settlement import PartDone, RunDone, SendReport, Settlement, Verb
from busway.store.contract import FragmentIndex, Store, first_number_base

T = TypeVar("T")


class FragmentGroup(Outlet):
    """See the head of this file. It offers what a single `Fragment` offers."""

    __slots__ = (
        "_choice",
        "_lines",
        "_runtime",
        "_settling",
        "flow",
        "members",
        "settings",
        "shares",
    )

    def __init__(
        self, settings: FragmentSettings, members: list[Fragment | None], runtime: BrokerRuntime
    ) -> None:
        self.settings = settings
        self.flow = runtime.flows.of_fragment(settings.path)
        self.members = Members(settings.path, members)
        self._runtime = runtime
        self._choice = FragmentChoice(self.members)
        #: Who receives from all of them.
        self.shares = ReceiverShares()
        self._settling = GroupSettling(self.members, self.flow, runtime.clock)
        self._lines = SessionLines(self.members, self.shares, runtime.clock)

    # -- life

    def fragments(self) -> list[Fragment]:
        return self.members.loaded()

    def member(self, index: FragmentIndex) -> Fragment:
        return self.members.at(index)

    def lose(self, index: FragmentIndex, error: BrokerError) -> None:
        """Its store is away: only what it alone could give is lost."""
        member = self.members.lose(index)
        if member is not None:
            member.failed(error)

    def regain(self, index: FragmentIndex, member: Fragment) -> None:
        """Its store is back: whoever waits, waits here too."""
        self.members.regain(index, member)
        self._choice.members_changed()
        if not self.settings.allows_receive or self.settings.forwards:
            return
        self.shares.add_member(member)
        self._lines.add_member(member)

    def failed(self, error: BrokerError) -> None:
        receivers = self.shares.remove_all()
        for member in self.fragments():
            member.failed(error)
        for receiver in receivers:
            receiver.evict(error)

    def evict(self, error: BrokerError) -> None:
        receivers = self.shares.remove_all()
        for member in self.fragments():
            member.evict(error)
        for receiver in receivers:
            receiver.evict(error)

    def receivers(self) -> list[Receiver]:
        return self.shares.receivers()

    def replace_settings(self, settings: FragmentSettings) -> None:
        self.settings = settings
        for member in self.fragments():
            member.replace_settings(settings)

    # -- sending

    def is_congested(self) -> bool:
        return all(member.is_congested() for member in self.members.usable())

    def append(
        self,
        messages: list[Message],
        done: RunDone,
        *,
        atomically: bool = False,
        origin: Origin | None = None,
        source_numbers: list[int] | None = None,
    ) -> None:
        """Chooses the fragments (P-20…P-31); each then does what it does for a plain entity."""
        if not messages:
            done([])
            return
        if atomically:
            try:
                member = self._choice.of_batch(messages, self.settings)
            except BrokerError as error:
                done([(0, error)])
                return
            member.append(messages, done, atomically=True, origin=origin)
            return
        parts = self._choice.of_run(messages, self.settings, source_numbers)
        if len(parts) == 1 and parts[0].fragment is not None:
            parts[0].fragment.append(messages, done, origin=origin)
            return
        gathered = GatheredReport(len(parts), done)
        for part in parts:
            _append_part(part, messages, gathered.part(part.places), origin)

    def append_in_parts(self, messages: list[Message], report: SendReport) -> None:
        """What goes to one store ends together, and a store that takes its time holds up nobody else's outcome."""
        parts: Iterable[FragmentPart]
        if self.settings.detects_duplicates or not are_keyless(messages):
            parts = self._choice.of_run(messages, self.settings, None)
        else:  # P-30: each slice is given out when those before it have joined
            starts = range(0, len(messages), SLICE_MESSAGES_MAX)
            parts = (self._choice.of_slice(messages, start, self.settings) for start in starts)
        self._deal(parts, messages, report.part_done)

    def _deal(self, parts: Iterable[FragmentPart], messages: list[Message], done: PartDone) -> None:
        """With one commit to wait for in each store."""
        runs: dict[Store, DealtSlices] = {}
        for part in parts:
            fragment = part.fragment
            if fragment is None or not fragment.intake.takes_slices():
                _append_part(part, messages, PartReport(part.places, done).report, None)
                continue
            run = runs.get(fragment.store)
            if run is None:
                run = runs[fragment.store] = DealtSlices(done)
            run.add(fragment.intake.join_slice([messages[place] for place in part.places]), part.places)
        for run in runs.values():
            run.join()

    # -- receiving

    def check_receivable(self) -> None:
        """Raises EntityDisabled, InvalidOperation, ServerBusy."""
        for member in self.members.usable():
            member.check_receivable()
            return
        if not self.settings.allows_receive:
            raise EntityDisabled
        raise ServerBusy.without(f"'{self.settings.path}'")

    def add_receiver(self, receiver: Receiver) -> None:
        self.check_receivable()
        self.shares.add(receiver, self.members.usable())

    def remove_receiver(self, receiver: Receiver) -> None:
        self.shares.remove(receiver)

    def wake(self, receiver: Receiver) -> None:
        self.shares.wake(receiver)

    def is_fetching(self, receiver: Receiver) -> bool:
        return self.shares.is_fetching(receiver)

    def undeliver(self, deliveries: list[Delivery]) -> None:
        for index, some in _grouped(deliveries, _index_of_delivery).items():
            member = self.members.by_index[index] or self.members.lost.get(index)
            if member is not None:
                member.undeliver(some)

    # -- locks

    def settle(
        self, tokens: list[bytes], settlement: Settlement, done: RunDone, session_id: str | None = None
    ) -> None:
        self._settling.settle(tokens, settlement, done, session_id)

    async def renew(self, tokens: list[bytes]) -> list[int]:
        return await self._settling.renew(tokens)

    def locked_number(self, token: bytes) -> int | None:
        try:
            return self.members.of_lock(index_of_token(token)).locked_number(token)
        except BrokerError:
            return None

    # -- requests by number

    async def peek(self, from_number: int, count: int, session_id: str | None = None) -> list[Message]:
        """P-50…P-53: fragment after fragment by index, so that a walk with last + 1 sees each message once."""
        if session_id is not None:
            return await self.members.of_session(session_id).peek(from_number, count, session_id)
        self._check_readable()
        left_bytes = self._runtime.limits.peek_bytes_max
        left_count = min(count, self._runtime.limits.peek_messages_max)
        found: list[Message] = []
        for member in self.members.usable():
            if member.index < index_of_number(from_number):
                continue
            start = max(from_number, first_number_base(member.index))
            page = await member.reads.peek(start, left_count, left_bytes, None)
            left_count -= len(page.messages)
            left_bytes -= sum(message.size() for message in page.messages)
            if left_bytes < 0 and found:  # a page has one message at least, however large
                break
            found += page.messages
            if page.more or left_count <= 0 or left_bytes <= 0:
                break
        return found

    def _check_readable(self) -> None:
        members = self.members.usable()
        if not members:
            raise ServerBusy.without(f"'{self.settings.path}'")
        members[0].check_readable()

    async def receive_by_number(
        self, numbers: list[int], *, deletes: bool, session_id: str | None = None
    ) -> list[Delivery]:
        """R-55: routed by the upper bits; all of them or none (R-51)."""
        parts = _grouped(numbers, index_of_number)
        if len(parts) == 1:
            (index,) = parts
            return await self.member(index).receive_by_number(numbers, deletes=deletes, session_id=session_id)
        self.check_receivable()
        sizes: dict[int, int] = {}
        for index, some in parts.items():
            sizes |= await read(self.settings.path, self.member(index).reads.deferred_sizes(some))
        check_fits(numbers, sizes, self._runtime.limits.fetch_bytes_max)
        found: list[Delivery] = []
        try:
            for index, some in parts.items():
                found += await self.member(index).receive_by_number(
                    some, deletes=False, session_id=session_id
                )
        except BaseException:
            self.undeliver(found)
            raise
        return await self._deleted(found, session_id) if deletes else found

    async def _deleted(self, found: list[Delivery], session_id: str | None) -> list[Delivery]:
        """Locked in every fragment, now deleted. What a fragment fails to delete at this moment is not handed out."""
        tokens = [delivery.token for delivery in found]
        refused = dict(await settle_durably(self, tokens, Settlement(Verb.COMPLETE), session_id))
        if len(refused) == len(found):
            raise next(iter(refused.values()), MessageNotFound())
        return [Delivery(d.message, b"", 0) for place, d in enumerate(found) if place not in refused]

    async def delete_messages(
        self,
        count: int,  # noqa: ARG002 - whatever is asked for
        enqueued_before_ms: int,  # noqa: ARG002
        session_id: str | None = None,  # noqa: ARG002
        holds_session: Callable[[str], bool] | None = None,  # noqa: ARG002
    ) -> int:
        """R-82: refused on partitioned entities."""
        raise InvalidOperation(
            f"'{self.settings.path}' is partitioned: its messages cannot be deleted in batches."
        )

    async def delete_by_number(self, numbers: list[int]) -> list[int]:
        """One fragment after the other: what is deleted stays so when the next one's store is away."""
        deleted: list[int] = []
        for index, some in _grouped(numbers, index_of_number).items():
            deleted += await self.member(index).delete_by_number(some)
        return deleted

    async def cancel_scheduled(self, numbers: list[int]) -> None:
        """S-33, S-38: one missing number fails the whole request, before anything is cancelled."""
        parts = _grouped(numbers, index_of_number)
        if len(parts) <= 1:
            for index, some in parts.items():
                await self.member(index).cancel_scheduled(some)
            return
        cancellation = Cancellation()
        try:
            for index, some in parts.items():
                await cancellation.find(self.member(index), some)
            await cancellation.commit()
        finally:
            cancellation.release()

    # -- sessions

    async def accept_session(
        self, receiver: Receiver, session_id: str | None, timeout_s: float
    ) -> MessageSession:
        """X-19, X-20: a named session lies in one fragment; the next one may lie in any."""
        self.check_receivable()
        if session_id is not None:
            member = self.members.of_session(session_id)
            share = ReceiverShare(self.shares, member, receiver, holds_session=True)
            session = await member.accept_session(share, session_id, timeout_s)
        else:
            session, share = await self._lines.next_session(receiver, timeout_s)
        self.shares.hold_session(share)
        return session

    async def renew_session(self, session_id: str) -> int:
        return await self.members.of_session(session_id).renew_session(session_id)

    async def session_state(self, session_id: str) -> bytes | None:
        return await self.members.of_session(session_id).session_state(session_id)

    async def set_session_state(self, session_id: str, state: bytes | None) -> None:
        await self.members.of_session(session_id).set_session_state(session_id, state)

    async def list_sessions(self, state_set_after_ms: int | None, skip: int, top: int) -> list[str]:
        """X-17: in order over all fragments."""
        self._check_readable()
        return await listed_sessions(self.members.usable(), state_set_after_ms, skip, top)


def _append_part(part: FragmentPart, messages: list[Message], done: RunDone, origin: Origin | None) -> None:
    fragment = part.fragment
    if fragment is not None:
        fragment.append([messages[place] for place in part.places], done, origin=origin)
    elif part.error is not None:
        error = part.error
        done([(at, error) for at in range(len(part.places))])


def _grouped(items: Iterable[T], index_of: Callable[[T], FragmentIndex]) -> dict[FragmentIndex, list[T]]:
    parts: dict[FragmentIndex, list[T]] = {}
    for item in items:
        parts.setdefault(index_of(item), []).append(item)
    return parts


def _index_of_delivery(delivery: Delivery) -> FragmentIndex:
    return index_of_number(delivery.message.sequence_number)
