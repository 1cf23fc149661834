"""How sends spread over the fragments of a partitioned entity (P-20…P-33, S-23…S-26).

Which fragment a key belongs to (P-20…P-26) is told by a hash: CRC-32 of the key's UTF-8 bytes, modulo the number
of fragments. It is part of the data format: a key must find its fragment again over restarts and versions (P-24),
so it never changes.

Theory of operation. A message with a key goes to the key's fragment, or nowhere (P-25). A message without one goes
to the next fragment in turn that takes it: one that is in service, has room (P-10), and whose store is not stuck
in a slow commit, as long as there are others. All of that is decided before a message is handed to a commit:
afterwards nothing moves, because whether it is stored is not known until the commit ends (P-31).

The unit of the turn is a slice of at most `SLICE_MESSAGES_MAX` messages that came together, so that commits and
outcomes stay in ranges (P-30). A batch is one unit whatever its size; so are its keys (S-23). A turn visits the
fragments of one store one after the other, then those of the next: a run then touches few stores, and its outcomes
lie in few ranges.

What is forwarded here without a key goes to a fragment that follows from its number at its source: a move that is
repeated after a crash finds its first try. It waits for that fragment.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.settings import FragmentSettings
from busway.message.message import Message
from busway.model.errors import BrokerError, InvalidOperation, MessageLockLost, MessageNotFound, ServerBusy
from busway.store.contract import COUNTER_MASK, INDEX_SHIFT, FragmentIndex

#: P-30: keyless messages that came together go round in slices of so many.
SLICE_MESSAGES_MAX: Final = 16


def fragment_of_key(key: str, count: int) -> FragmentIndex:
    return FragmentIndex(crc32(key.encode()) % count)


def key_of(message: Message, detects_duplicates: bool) -> str | None:
    """P-20…P-22: the session, else the partition key, else the message id where duplicates are detected. None:
    any fragment will do."""
    if message.session_id is not None:
        return message.session_id
    if message.partition_key is not None:
        return message.partition_key
    return message.message_id if detects_duplicates else None


def fragment_of_forwarded(
    message: Message, source_number: int, detects_duplicates: bool, count: int
) -> FragmentIndex:
    """F-9: by its key like any other, else by its number at its source, so that a move that is repeated after a crash
    finds its first try."""
    key = key_of(message, detects_duplicates)
    if key is not None:
        return fragment_of_key(key, count)
    return FragmentIndex((source_number & COUNTER_MASK) % count)


def index_of_number(number: int) -> FragmentIndex:
    """M-36. Negative for a number that nobody gave out."""
    return FragmentIndex(number >> INDEX_SHIFT)


def index_of_token(token: bytes) -> FragmentIndex:
    """A lock token begins with its fragment's index."""
    return FragmentIndex(token[0] << 8 | token[1] if len(token) > 1 else int.from_bytes(token, "big"))


_NO_KEY: Final = (
    "Message to a partitioned entity with duplicate detection enabled must have either PartitionKey or MessageId"
    " set"
)
_DISTINCT_KEYS: Final = (
    "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with"
    " partitioning enabled."
)
_DISTINCT_IDS: Final = (
    "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an entity"
    " with partitioning and duplicate detection enabled."
)


class Members:
    """The fragments of a partitioned entity, or of its dead-letter queue."""

    __slots__ = ("by_index", "lost", "path")

    def __init__(self, path: str, by_index: list[Fragment | None]) -> None:
        self.path = path
        #: None while its store is away.
        self.by_index = by_index
        #: Those whose store is away, as they were: only what they deleted may still come back (R-1).
        self.lost: dict[FragmentIndex, Fragment] = {}

    def loaded(self) -> list[Fragment]:
        return [member for member in self.by_index if member is not None]

    def usable(self) -> list[Fragment]:
        return [member for member in self.by_index if member is not None and member.is_usable()]

    def at(self, index: FragmentIndex) -> Fragment:
        """Raises ServerBusy while its store is away (P-25, P-48), MessageNotFound when there is none."""
        if not 0 <= index < len(self.by_index):
            raise MessageNotFound
        member = self.by_index[index]
        if member is None or not member.is_usable():
            raise ServerBusy(
                f"The part of '{self.path}' that this belongs to is not available at the moment. Please try again"
                " later."
            )
        return member

    def of_lock(self, index: FragmentIndex) -> Fragment:
        """As a token bears it. R-17: one that no fragment gave out is no lock."""
        if index >= len(self.by_index):
            raise MessageLockLost
        return self.at(index)

    def of_session(self, session_id: str) -> Fragment:
        """X-19: one session lies in one fragment."""
        return self.at(fragment_of_key(session_id, len(self.by_index)))

    def lose(self, index: FragmentIndex) -> Fragment | None:
        member = self.by_index[index]
        self.by_index[index] = None
        if member is not None:
            self.lost[index] = member
        return member

    def regain(self, index: FragmentIndex, member: Fragment) -> None:
        self.by_index[index] = member
        self.lost.pop(index, None)


class FragmentPart:
    """Messages of one send that go to one fragment, by their places in the send; or why they go nowhere."""

    __slots__ = ("error", "fragment", "places", "size_bytes")

    def __init__(self) -> None:
        self.places: list[int] = []
        self.size_bytes = 0
        self.fragment: Fragment | None = None
        self.error: BrokerError | None = None


class FragmentChoice:
    """See the head of this file."""

    __slots__ = ("_members", "_order", "_turn")

    def __init__(self, members: Members) -> None:
        self._members = members.by_index
        #: Indexes in the order of the turn.
        self._order: list[int] = []
        #: Where in that order the fragment stands that took the last keyless slice.
        self._turn = -1
        self.members_changed()

    def members_changed(self) -> None:
        """A store has brought its fragments. Those of stores never seen come last."""
        by_store: dict[str, list[int]] = {}
        for index, member in enumerate(self._members):
            by_store.setdefault("" if member is None else member.store.name, []).append(index)
        away = by_store.pop("", [])
        self._order = [index for indexes in by_store.values() for index in indexes] + away

    def of_batch(self, messages: list[Message], settings: FragmentSettings) -> Fragment:
        """All of them in one fragment. Raises InvalidOperation, ServerBusy."""
        detects = settings.detects_duplicates
        key = key_of(messages[0], detects)
        for message in messages:
            if key_of(message, detects) != key:
                raise InvalidOperation(_DISTINCT_IDS if detects else _DISTINCT_KEYS)
        if key is not None:
            return self.of_key(key, settings)
        if detects:
            raise InvalidOperation(_NO_KEY)
        return self.in_turn(sum(message.size() for message in messages), settings)

    def of_run(
        self, messages: list[Message], settings: FragmentSettings, source_numbers: list[int] | None
    ) -> list[FragmentPart]:
        """Each message for itself; in every fragment they keep their order. `source_numbers`: those of forwarded ones
        where they came from."""
        detects = settings.detects_duplicates
        if (
            not detects
            and source_numbers is None
            and len(messages) <= SLICE_MESSAGES_MAX
            and are_keyless(messages)
        ):
            return [self.of_slice(messages, 0, settings)]
        keyed: dict[FragmentIndex, FragmentPart] = {}
        slices: list[FragmentPart] = []
        refused: list[FragmentPart] = []
        for place, message in enumerate(messages):
            key = key_of(message, detects)
            if source_numbers is not None:
                number = source_numbers[place]
                index = fragment_of_forwarded(message, number, detects, len(self._members))
                part = keyed.setdefault(index, FragmentPart())
            elif key is not None:
                part = keyed.setdefault(fragment_of_key(key, len(self._members)), FragmentPart())
            elif detects:
                part = FragmentPart()
                part.error = InvalidOperation(_NO_KEY)
                refused.append(part)
            else:
                if not slices or len(slices[-1].places) >= SLICE_MESSAGES_MAX:
                    slices.append(FragmentPart())
                part = slices[-1]
            part.places.append(place)
            part.size_bytes += message.size()
        for index, part in keyed.items():
            self._assign(part, index, settings)
        for part in slices:
            self._assign(part, None, settings)
        return [*keyed.values(), *slices, *refused]

    def of_slice(self, messages: list[Message], start: int, settings: FragmentSettings) -> FragmentPart:
        """The next slice of a keyless send, in its turn."""
        end = min(start + SLICE_MESSAGES_MAX, len(messages))
        part = FragmentPart()
        part.places = list(range(start, end))
        for place in part.places:
            message = messages[place]
            part.size_bytes += len(message.head) + len(message.bare)
        self._assign(part, None, settings)
        return part

    def _assign(self, part: FragmentPart, index: FragmentIndex | None, settings: FragmentSettings) -> None:
        """To the fragment with that index, or to the one whose turn it is."""
        try:
            if index is None:
                part.fragment = self.in_turn(part.size_bytes, settings)
            else:
                part.fragment = self._usable(index, settings)
        except BrokerError as error:
            part.error = error

    def of_key(self, key: str, settings: FragmentSettings) -> Fragment:
        """The one fragment of a key (P-24). Raises ServerBusy while it is away (P-25)."""
        return self._usable(fragment_of_key(key, len(self._members)), settings)

    def _usable(self, index: FragmentIndex, settings: FragmentSettings) -> Fragment:
        member = self._members[index]
        if member is None or not member.is_usable() or member.store.is_stuck():
            raise ServerBusy(
                f"The part of '{settings.path}' that this belongs to is not available at the moment. Please try"
                " again later."
            )
        return member

    def in_turn(self, size_bytes: int, settings: FragmentSettings) -> Fragment:
        """P-30, P-31, P-10. One that refuses, for it to say why, when all do."""
        order = self._order
        count = len(order)
        slow, refusing = -1, -1
        for step in range(1, count + 1):
            turn = (self._turn + step) % count
            member = self._members[order[turn]]
            if member is None or not member.is_usable():
                continue
            if not member.intake.takes(size_bytes):
                refusing = turn
            elif not member.store.is_slow():
                self._turn = turn
                return member
            elif slow < 0:
                slow = turn
        self._turn = slow if slow >= 0 else refusing
        chosen = self._members[order[self._turn]] if self._turn >= 0 else None
        if chosen is None:
            raise ServerBusy.without(f"'{settings.path}'")
        return chosen


def are_keyless(messages: list[Message]) -> bool:
    return all([message.session_id is None and message.partition_key is None for message in messages])
