"""What a store promises.

`memory` is its executable specification; `sqlite` must behave the same, and later `postgres`. Every store runs the
suite in `tests/store_contract`.

A store remembers, it never decides: no rule of the bus lives below this line. It holds *fragments*; a fragment's
rows lie in one of three places (`message.message`) under a counter unique in the fragment. Side tables exist only
for what few messages need: session index, own expiry, duplicate ids, marks of messages that came from another
store.

Copies share their payload. One publish to a topic puts N messages that hold the very same `bare` object into N
fragments in one batch. A store may keep the bytes once when several puts of a batch hold the identical object;
nobody above can tell, whatever becomes of the copies later.

Writing. The broker fills the store's open `CommitBatch` synchronously: `store.batch()` returns the batch that is
gathering now. A batch is all or nothing. While one is in fsync the next gathers; there is no timer. Each join may
leave a callback, called on the loop once the batch is durable (`None`) or has failed:

  CommitRefused   certain: nothing of the batch is stored (a statement failed and ROLLBACK succeeded)
  CommitUnknown   COMMIT itself failed: the rows may or may not be there after the store is opened again

After either the store is `FAILED`: every join raises `StoreUnavailable`, the owner forgets what it holds in memory
about the store's fragments, calls `reopen()` and loads them anew. A `StoreTaken` is a refusal after which it is
`TAKEN`: another server has it, and only an operator's word opens it here again.

Reading. Reads are coroutines that run off the loop, so that a slow disk never blocks it. A read
  - sees at least everything whose commit was reported before the read was called;
  - never shows, at the moment it returns, a row that a joined batch (gathering or in flight) deletes, moves
    away or drops, and shows `Change`s of joined batches already applied;
  - may or may not show rows that a joined batch adds.
Between the read's own correction and the caller's next statement there is no suspension point, so the caller
can act on what it got without looking twice.

A row whose checksum does not fit is never returned as a message: it is reported in `Page.damaged`.

Logs are the append-only partitions of event hubs. A log belongs to a fragment key, as messages do; its fragment
row keeps its counters. Its events lie in *chunks* (`message.event_chunk`): one row each, never changed in place.
Chunks of a log do not overlap, their numbers and times grow. A store knows of a chunk what stands in `ChunkHead`
and keeps the rest as opaque bytes under a checksum.

Writing logs. A chunk joins a batch while it is still gathering: the store takes its bytes when the batch closes.
Deletions of a batch come before its new chunks, so a chunk can be put in the place of others (compaction). Two
chunks of a log that end with the same number are refused with their batch. A chunk without events is none.

Reading logs. Reads show durable chunks only, nothing that has merely joined. They may show chunks whose deletion
has joined and is not durable yet; they are true still. Of a log whose drop has joined they show nothing. A chunk
whose checksum does not fit is never returned as one: it is named in `ChunkPage.damaged`, and the page goes on
behind it. Its bytes count, so a page holds at least one chunk when any is left, but that may be a damaged one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NewType, Protocol

from mypy_extensions import mypyc_attr

from busway.message.event_chunk import ChunkBuilder
from busway.message.message import Message


class ChunkHead:
    """What is known of a stored chunk without its bytes."""

    __slots__ = ("events", "first_at_ms", "first_number", "last_at_ms", "last_number", "size_bytes")

    def __init__(
        self,
        first_number: int,
        last_number: int,
        first_at_ms: int,
        last_at_ms: int,
        events: int,
        size_bytes: int,
    ) -> None:
        self.first_number = first_number
        self.last_number = last_number
        self.first_at_ms = first_at_ms
        self.last_at_ms = last_at_ms
        #: Fewer than the numbers it spans once it was compacted.
        self.events = events
        self.size_bytes = size_bytes


class ChunkPage:
    """An answer of chunks, in ascending number."""

    __slots__ = ("chunks", "damaged", "more")

    def __init__(self, chunks: list[bytes], damaged: list[ChunkHead], more: bool) -> None:
        #: The bytes of each, as `busway.message.event_chunk.Chunk` reads them.
        self.chunks = chunks
        self.damaged = damaged
        #: True when the answer was cut, by its size or where the store found it handy: there may be more behind the
        #: last of either list.
        self.more = more


class ProducerRow:
    """What a log remembers of an idempotent producer (H-18, H-19)."""

    __slots__ = ("epoch", "groups", "last_sequence", "producer_id", "used_at_ms")

    def __init__(
        self, producer_id: int, epoch: int, last_sequence: int, used_at_ms: int, groups: bytes = b""
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        #: -1 before the first event.
        self.last_sequence = last_sequence
        self.used_at_ms = used_at_ms
        #: By what its last groups of events are known again; opaque to a store.
        self.groups = groups


class LogChanges:
    """The part of a commit batch that is about logs; a batch has one from the first such change on."""

    __slots__ = ("chunks", "deleted", "producers", "producers_purged")

    def __init__(self) -> None:
        #: (log, chunk); live objects, their bytes are taken when the batch closes.
        self.chunks: list[tuple[int, ChunkBuilder]] = []
        #: (log, first number of the chunk). One that is not there is no error.
        self.deleted: list[tuple[int, int]] = []
        #: (log, row), laid over what is there.
        self.producers: list[tuple[int, ProducerRow]] = []
        #: (log, forget producers last used before); after the rows above.
        self.producers_purged: list[tuple[int, int]] = []


FragmentKey = NewType("FragmentKey", int)
FragmentIndex = NewType("FragmentIndex", int)
#: A row and when something happens to it: (fragment, number, wall time in ms). By time, then fragment, then number.
TimedRow = tuple[FragmentKey, int, int]

#: Rows are keyed `fragment_key << COUNTER_BITS | counter` in one integer.
COUNTER_BITS: Final = 40
COUNTER_MASK: Final = (1 << COUNTER_BITS) - 1
#: The upper bits of every number of a fragment are its index (M-36), so numbers of different fragments of an entity
#: differ. A row key does without them: the fragment's own row tells.
INDEX_SHIFT: Final = 48


class StoreState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    FAILED = "failed"  # after a failed commit: reopen() is needed
    TAKEN = (
        "taken"  # by another server: likewise, but only at an operator's word, or they would take it in turns
    )
    DISABLED = "disabled"  # taken out of service by an operator


class StoreError(Exception):
    """Something is wrong with a store."""


class StoreUnavailable(StoreError):
    """The store is not open."""


class StoreTooNew(StoreError):
    """The data was written by a newer version of Busway; this one would damage it."""


class StoreInUse(StoreError):
    """Another server has it, or may have it by another name."""


class CommitRefused(StoreError):
    """The batch was rolled back: certainly nothing of it is stored."""


class StoreTaken(CommitRefused):
    """And another server has the store by now."""


class CommitUnknown(StoreError):
    """The commit failed half way: its outcome is unknown until the store is opened again."""


CommitCallback = Callable[[StoreError | None], None]


class Counters:
    """A fragment's row: counts, sizes and high-water marks. Kept by the fragment's owner in memory and written
    with each batch that names it, so nothing is ever counted by scanning (E-100…E-102, M-35)."""

    __slots__ = (
        "accessed_at_ms",
        "active",
        "bytes",
        "deferred",
        "expiry_high_ms",
        "last_counter",
        "scheduled",
    )

    def __init__(self) -> None:
        self.last_counter = 0  #: the highest number ever given out; before the first, `first_number_base`
        self.active = 0  #: messages in PLACE_ACTIVE, locked ones included
        self.deferred = 0
        self.scheduled = 0
        self.bytes = 0  #: all places, and session states
        #: The latest expiry among active messages without an own expiry entry; a message that expires before
        #: it needs an entry. Back to 0 when nothing active is left.
        self.expiry_high_ms = 0
        self.accessed_at_ms = 0  #: 0 = never used (E-41)

    def copy(self) -> Counters:
        twin = Counters()
        twin.last_counter = self.last_counter
        twin.active = self.active
        twin.deferred = self.deferred
        twin.scheduled = self.scheduled
        twin.bytes = self.bytes
        twin.expiry_high_ms = self.expiry_high_ms
        twin.accessed_at_ms = self.accessed_at_ms
        return twin


class LogCounters:
    """The counters of a log, which the row of its fragment keeps in the columns that it has."""

    __slots__ = ("row",)

    def __init__(self, row: Counters) -> None:
        #: What batches write.
        self.row = row

    @property
    def next_number(self) -> int:
        """That its next event gets."""
        return self.row.last_counter

    @next_number.setter
    def next_number(self, number: int) -> None:
        self.row.last_counter = number

    @property
    def first_number(self) -> int:
        """Of its first event; of the next one when it has none."""
        return self.row.deferred

    @first_number.setter
    def first_number(self, number: int) -> None:
        self.row.deferred = number

    @property
    def compacted_to(self) -> int:
        """Before it no two events have one key."""
        return self.row.scheduled

    @compacted_to.setter
    def compacted_to(self, number: int) -> None:
        self.row.scheduled = number

    @property
    def events(self) -> int:
        return self.row.active

    @events.setter
    def events(self, count: int) -> None:
        self.row.active = count

    @property
    def bytes(self) -> int:
        """Of their chunks."""
        return self.row.bytes

    @bytes.setter
    def bytes(self, size_bytes: int) -> None:
        self.row.bytes = size_bytes

    @property
    def latest_ms(self) -> int:
        """The time of the latest event ever."""
        return self.row.expiry_high_ms

    @latest_ms.setter
    def latest_ms(self, at_ms: int) -> None:
        self.row.expiry_high_ms = at_ms


def first_number_base(fragment_index: int) -> int:
    """The numbers of a fragment begin behind it."""
    return fragment_index << INDEX_SHIFT


class FragmentRow:
    """What the store knows of a fragment besides its messages."""

    __slots__ = ("counters", "fragment_index", "key", "owner")

    def __init__(self, key: FragmentKey, owner: str, fragment_index: int, counters: Counters) -> None:
        self.key = key
        #: Free text for people who look into the file: the path of the entity at creation.
        self.owner = owner
        self.fragment_index = fragment_index
        self.counters = counters


class Move:
    """A row that changes its place, its fragment (inside this store) or its number, without its payload
    passing through the broker: deferral, dead-lettering, activation of a scheduled message."""

    __slots__ = (
        "changes",
        "delivery_count",
        "enqueued_at_ms",
        "expires_at_ms",
        "from_fragment",
        "from_number",
        "from_place",
        "session_id",
        "to_fragment",
        "to_number",
        "to_place",
        "with_expiry_entry",
    )

    def __init__(
        self,
        from_fragment: FragmentKey,
        from_place: int,
        from_number: int,
        to_fragment: FragmentKey,
        to_place: int,
        to_number: int,
        *,
        delivery_count: int | None = None,
        changes: bytes | None = None,
        enqueued_at_ms: int | None = None,
        expires_at_ms: int | None = None,
        session_id: str | None = None,
        with_expiry_entry: bool = False,
    ) -> None:
        self.from_fragment = from_fragment
        self.from_place = from_place
        self.from_number = from_number
        self.to_fragment = to_fragment
        self.to_place = to_place
        self.to_number = to_number
        # None keeps what the row has.
        self.delivery_count = delivery_count
        self.changes = changes
        self.enqueued_at_ms = enqueued_at_ms
        self.expires_at_ms = expires_at_ms
        #: Set when the row must be in the session index at its new place (active rows of session entities).
        self.session_id = session_id
        #: True when the row needs an own expiry entry at its new place.
        self.with_expiry_entry = with_expiry_entry


class Change:
    """New delivery count (and changed application properties) of a row that stays where it is."""

    __slots__ = ("changes", "delivery_count", "fragment", "number", "place")

    def __init__(
        self, fragment: FragmentKey, place: int, number: int, delivery_count: int, changes: bytes | None
    ) -> None:
        self.fragment = fragment
        self.place = place
        self.number = number
        self.delivery_count = delivery_count
        #: None keeps the row's own.
        self.changes = changes


class TransferMark:
    """Says that a row of another store's fragment has arrived here, so that a repeated transfer finds its first
    try. Joined with the put of the message; removed once the source has forgotten the row."""

    __slots__ = ("source_fragment", "source_number", "source_store")

    def __init__(self, source_store: str, source_fragment: FragmentKey, source_number: int) -> None:
        self.source_store = source_store
        self.source_fragment = source_fragment
        self.source_number = source_number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TransferMark):
            return NotImplemented
        return (
            self.source_number == other.source_number
            and self.source_fragment == other.source_fragment
            and self.source_store == other.source_store
        )

    def __hash__(self) -> int:
        return hash((self.source_store, self.source_fragment, self.source_number))

    def __repr__(self) -> str:
        return f"TransferMark({self.source_store!r}, {self.source_fragment}, {self.source_number})"


@mypyc_attr(allow_interpreted_subclasses=True)
class CommitBatch:
    """Everything one commit writes, for any fragments of one store. Pure data: stores read it, tests compare it.

    Order inside a batch: puts, then moves, then changes, then deletes, then the rest. The broker never puts
    and deletes the same number in one batch.
    """

    def __init__(self) -> None:
        #: (fragment, place, message). What else a message needs stands in the two lists below.
        self.puts: list[tuple[FragmentKey, int, Message]] = []
        #: Several of them may hold one body, so that it pays to look for it.
        self.puts_copies = False
        #: (fragment, session id, number) for active puts of session entities.
        self.session_entries: list[tuple[FragmentKey, str, int]] = []
        #: (fragment, expires_at_ms, number) for active puts that expire out of order.
        self.expiry_entries: list[tuple[FragmentKey, int, int]] = []
        self.moves: list[Move] = []
        self.changes: list[Change] = []
        #: (fragment, place, numbers). Index and expiry entries of the rows go with them. A list of numbers does not
        #: change any more once it stands here.
        self.deletes: list[tuple[FragmentKey, int, list[int]]] = []
        #: (fragment, session id, state or None to clear, time of the change).
        self.session_states: list[tuple[FragmentKey, str, bytes | None, int]] = []
        #: (fragment, message id, accepted_at_ms).
        self.duplicate_ids: list[tuple[FragmentKey, str, int]] = []
        #: (fragment, forget ids accepted before).
        self.duplicate_purges: list[tuple[FragmentKey, int]] = []
        #: Written with the puts of the same batch. A mark that is there already stays.
        self.transfer_marks: list[TransferMark] = []
        #: A mark that is not there is no error. Removals come after the marks of the same batch.
        self.transfer_marks_removed: list[TransferMark] = []
        #: What changes in logs; None in most batches.
        self.logs: LogChanges | None = None
        #: Live objects: their values are written when the batch closes.
        self.counters: dict[FragmentKey, Counters] = {}
        self.fragments_created: list[FragmentRow] = []
        #: From now on no read shows them; their rows are removed in slices by `sweep_dropped`.
        self.fragments_dropped: list[FragmentKey] = []
        #: Catalogue rows: key → JSON text, or None to delete.
        self.catalogue: dict[str, str | None] = {}
        self.catalogue_version: int | None = None
        self.callbacks: list[CommitCallback] = []
        #: Rough payload size, for the byte cap of an open batch.
        self.bytes = 0

    def is_empty(self) -> bool:
        return not (
            self.puts
            or self.moves
            or self.changes
            or self.deletes
            or self.session_states
            or self.duplicate_ids
            or self.duplicate_purges
            or self.transfer_marks
            or self.transfer_marks_removed
            or self.logs is not None
            or self.counters
            or self.fragments_created
            or self.fragments_dropped
            or self.catalogue
            or self.catalogue_version is not None
            or self.callbacks
        )


class Page:
    """An answer of messages, in ascending number."""

    __slots__ = ("damaged", "messages", "more")

    def __init__(self, messages: list[Message], more: bool, damaged: list[int]) -> None:
        self.messages = messages
        #: True when the answer was cut, by a limit or where the store found it handy: there may be more after the
        #: last number.
        self.more = more
        #: Numbers whose checksum did not fit.
        self.damaged = damaged


class SessionRow:
    """A session as the store knows it: rows exist while it has active messages or a state (X-16)."""

    __slots__ = ("active", "first_number", "session_id", "state", "state_set_at_ms")
    #: `active`: how many there are at least; 0 when there are none.

    def __init__(
        self,
        session_id: str,
        active: int,
        first_number: int,
        state: bytes | None,
        state_set_at_ms: int,
    ) -> None:
        self.session_id = session_id
        self.active = active
        self.first_number = first_number  #: of its active messages; 0 when none
        self.state = state
        self.state_set_at_ms = state_set_at_ms


class Store(Protocol):
    """One database that holds fragments."""

    name: str
    url: str
    state: StoreState
    #: How many commits that it had reported were missing when it was opened last, at least; 1 also where that
    #: cannot be excluded; 0 in a healthy life.
    lost_commits: int
    #: How often it has been opened by anybody, where that decides whose it is; None: a lock of its file does.
    epoch: int | None

    async def open(self) -> None:
        """Opens or creates it; migrates; raises StoreTooNew, StoreInUse, StoreError with a sentence for people."""

    async def close(self) -> None:
        """Commits what has joined, then closes. Idempotent."""

    async def reopen(self) -> None:
        """After FAILED: opens again. Raises StoreError while the cause persists."""

    def batch(self) -> CommitBatch:
        """The batch that is gathering; the store commits it by itself soon. Raises StoreUnavailable."""

    def accepts_payload(self) -> bool:
        """False while free space is below the low-water mark or the open batch is over its byte cap: new
        messages are refused, everything else goes on."""

    def is_congested(self) -> bool:
        """True while the open batch is over its byte cap (the cause is load, not space)."""

    def is_slow(self) -> bool:
        """True while a commit takes much longer than commits do: whoever can choose goes elsewhere."""

    def is_stuck(self) -> bool:
        """True while a commit takes so long that whoever comes now should rather be told to try again later."""

    async def flush(self) -> None:
        """Returns when everything joined so far is durable; raises what the callbacks were told."""

    def next_fragment_key(self) -> FragmentKey:
        """A key never used before in this store, also over restarts; durable with the next commit."""

    def loss_is_met(self) -> None:
        """What follows from `lost_commits` has joined the open batch. Once that is durable the next opening need not
        know of the loss."""

    # -- reads of messages
    async def messages(
        self, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> Page:
        """Rows of one place with number > after."""

    async def by_number(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> Page:
        """Those of the given rows that exist, ascending, all of one moment. Who may be asked for many looks at
        `sizes` first."""

    async def sizes(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> dict[int, int]:
        """About how many bytes each of the given rows has in memory, of those that exist; no body is read."""

    async def session_messages(
        self, fragment: FragmentKey, session_id: str, after: int, limit: int, bytes_max: int
    ) -> Page:
        """Active rows of one session with number > after."""

    async def peek(
        self,
        fragment: FragmentKey,
        from_number: int,
        limit: int,
        bytes_max: int,
        session_id: str | None,
    ) -> Page:
        """All places merged by number, number >= from_number; `Message.state` tells the place. With a
        session id only rows of that session. At least one row when any is left, however large."""

    async def due(self, now_ms: int, limit: int, after: TimedRow | None = None) -> list[TimedRow]:
        """Scheduled rows of any fragment whose time has come, by time. `after`: only those behind that row, whether
        it is still there or not."""

    async def next_due_ms(self, after_ms: int = -1) -> int | None:
        """The earliest scheduled time in the store that is later than the given one."""

    async def expired_entries(self, now_ms: int, limit: int, after: TimedRow | None = None) -> list[TimedRow]:
        """Rows of any fragment whose own expiry entry is at or before now, by time. `after` as in `due`."""

    async def next_expiry_ms(self, after_ms: int = -1) -> int | None:
        """The time of the earliest own expiry entry in the store that is later than the given one."""

    # -- sessions
    async def session(self, fragment: FragmentKey, session_id: str) -> SessionRow | None: ...

    async def next_sessions(
        self, fragment: FragmentKey, after_first_number: int, limit: int
    ) -> list[tuple[str, int]]:
        """Sessions with active messages by the number of their first one: (session id, first number)."""

    async def sessions(
        self,
        fragment: FragmentKey,
        state_set_after_ms: int | None,
        skip: int,
        limit: int,
        from_id: str = "",
    ) -> list[str]:
        """Session ids in order: with None all that have active messages or a state, else those whose state
        was set after that time (X-17). `from_id`: only this one and those behind it, before any are skipped."""

    async def known_ids(self, fragment: FragmentKey, ids: Iterable[str], since_ms: int) -> set[str]:
        """Those of the ids accepted at or after since_ms."""

    # -- logs
    async def chunks(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        """Durable chunks whose last number is from_number or later: at least one when any is left, however large."""

    async def chunk_heads(self, log: FragmentKey, from_number: int, limit: int) -> list[ChunkHead]:
        """The same chunks without their bytes; no checksum is looked at."""

    async def first_number_since(self, log: FragmentKey, at_ms: int) -> int | None:
        """The first number of the first durable chunk that holds an event of that time or later."""

    async def producers(self, log: FragmentKey) -> list[ProducerRow]:
        """By id."""

    # -- the rest
    async def transfer_marks(self, source_store: str | None = None) -> list[TransferMark]:
        """Durable marks of messages that came from one store, or from any, by store, fragment and number. Like a
        row, a mark that a joined batch removes is not shown."""

    async def fragments(self, keys: Sequence[FragmentKey] | None = None) -> list[FragmentRow]:
        """Rows of the given fragments, or of all; dropped ones are left out."""

    async def catalogue(self) -> tuple[int, dict[str, str]]:
        """(version, key → JSON text)."""

    async def sweep_dropped(self, limit: int) -> bool:
        """Removes up to `limit` rows of dropped fragments; True when more are left."""
