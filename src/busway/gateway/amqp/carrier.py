"""What carries the links of one connection, their `LinkHost`: its output, its input and the memory that both hold.

Theory of operation. Whatever links make the engine write while a read is worked off leaves in one
`transport.write` at the end of the turn. Output that arises elsewhere (a commit is durable, a message became
available) marks the carrier and leaves with the present turn of the event loop, again in one write.

Two brakes keep memory bounded. Output: links deliver nothing more while the transport holds more than
OUTPUT_HIGH_BYTES, and nothing is read while it holds OUTPUT_FULL_BYTES; a peer that takes nothing for a minute is
dropped. Input: nothing is read while more than INPUT_HIGH_BYTES of messages wait for the store, or of requests for
their turn. A stranger, who has shown no token yet, gets far less: `amqp.allowance` says how much it may hold in
the engine, and the connection bounds its answers.

What the connection holds is counted where it lies and added up when somebody asks (`Holdings`); two numbers that
have no other place are kept there. So nothing is ever given back twice, or forgotten, however a connection ends.

The links that stand on it are each kept with the paths by which their rights are checked (`AttachedLinks`). A
connection without links is closed after a while (R-22), sooner when it never had one; so the moment of the last
one's going is kept there too. Management nodes ask it about the other links of their connection, by name
(`LinkLookup`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from busway.amqp.connection import Connection, Role
from busway.amqp.errors import AmqpError, Condition
from busway.amqp.session import held_bytes
from busway.event_loop import LOOP, ClientWork, soon
from busway.gateway.amqp.error_conditions import amqp_error
from busway.gateway.amqp.links.addresses import paths_of
from busway.gateway.amqp.links.receive_link import SessionReceiveLink
from busway.gateway.amqp.nodes.request_link import ConnectionRequests
from busway.gateway.amqp.nodes.token_node import TokenHolder
from busway.gateway.connection_budget import SMALL_BYTES
from busway.model.errors import QuotaExceeded

if TYPE_CHECKING:
    from busway.amqp.session import Session
    from busway.broker.namespace.namespace import SendVia
    from busway.clock import Clock
    from busway.gateway.amqp.links.link_host import Alarm, AttachedLink, OutputWaiter
    from busway.gateway.amqp.shared import AdmittedConnection, GatewaySettings, Shared
    from busway.gateway.connection_budget import ConnectionBudget
    from busway.model.authorization import Grant, Segments

OUTPUT_HIGH_BYTES: Final = 1024 * 1024
OUTPUT_FULL_BYTES: Final = 4 * OUTPUT_HIGH_BYTES
INPUT_HIGH_BYTES: Final = 4 * 1024 * 1024
INPUT_LOW_BYTES: Final = INPUT_HIGH_BYTES // 2
#: One read may bring the ends of many batches: from here on they are refused. (Tests make it smaller.)
INPUT_FULL_BYTES = 4 * INPUT_HIGH_BYTES
#: What a connection holds is looked at again when so much went to and fro.
BOOK_EVERY_BYTES: Final = 32 * 1024
#: A connection that holds more than this and one answer of the largest size is closed: with the bounds as they are at
#: 48 MiB. One more read, and one more answer, can add to it: never more than 64 MiB together.
HELD_BYTES_MAX: Final = 32 * 1024 * 1024
#: What may wait for windows, and be kept by readers, before no more is begun. (Tests make it smaller.)
KEPT_FREE_BYTES = 16 * 1024 * 1024


class ByteTransport(Protocol):
    """What carries the bytes: a socket's transport, or a WebSocket's."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Send what is buffered, then close."""

    def abort(self) -> None:
        """Close now."""

    def get_write_buffer_size(self) -> int: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Carrier:
    """Of one connection. `tokens_changed` is told of each token with the one that it replaces."""

    def __init__(
        self,
        shared: Shared,
        transport: ByteTransport,
        admitted: AdmittedConnection,
        tokens_changed: Callable[[Grant, Grant | None], None],
    ) -> None:
        # Shared.
        self.shared = shared
        self.namespace = shared.namespace
        self.limits = shared.namespace.limits
        self.tracking = shared.tracking.of_one_client()
        self.entropy = shared.entropy
        self.now: Callable[[], float] = shared.clock.monotonic
        # Of this connection.
        self.peer = admitted.peer
        self._admitted = admitted
        self.tokens = TokenHolder(self.limits.tokens_per_connection_max, tokens_changed)
        self.requests = ConnectionRequests(self)
        self.transactions = shared.namespace.transactions()
        self.transport = transport
        self.engine = Connection(Role.SERVER, shared.engine_settings, self.now())
        self.links = AttachedLinks(shared.clock, shared.settings)
        self._work = ClientWork(self.peer)
        # Its end.
        self.is_over = False
        #: We have said good-bye and wait for the peer's answer; the engine knows how long.
        self.is_closing = False
        #: False once it has shown a token and counts among the namespace's connections (L-11).
        self.is_stranger = True
        #: By which the client knows this namespace, as it says itself.
        self.asked_host = ""
        #: Monotonic; the gateway calls `tick` then.
        self.deadline = self.now()
        # Flow.
        self.in_turn = False
        self._flush_waits = False
        self._unflushed_bytes = 0
        self.stalled_since: float | None = None
        self._output_waiters: set[OutputWaiter] = set()
        self._is_reading = True
        self._budget = shared.budget
        self.holdings = Holdings(self, shared.budget)

    def recognise(self) -> None:
        """A-7, L-11: it has shown a token, on `$cbs` or inside a request. Strangers have their own bounds."""
        if not self.is_stranger or self.is_over:
            return
        if self._admitted.recognise():
            self.is_stranger = False
            self.namespace.flows.connections.opened += 1
            self.engine.trust()
            return
        full = QuotaExceeded(
            f"ConnectionsQuotaExceeded: the namespace has {self.limits.connections_max} connections already."
        )
        self.close(amqp_error(full, self.tracking))

    def hurry(self, due: float) -> None:
        self.deadline = min(self.deadline, due)

    # -- the end

    def close(self, error: AmqpError | None = None) -> None:
        """Close from our side: every link is detached with the reason, then the connection."""
        if self.is_over or self.is_closing:
            return
        self.is_closing = True
        self.hurry(self.now())
        for link in self.links:
            if isinstance(link, SessionReceiveLink):
                link.cancel_wait()
            self.forget_link(link)
        self.engine.close(error)
        self.output_waits()
        self.holdings.book()

    def lose(self) -> None:
        """The transport is gone: everything that stands on it goes."""
        self.is_over = True
        for link in self.links:
            self.forget_link(link)
        self.requests.close()
        self._work.cancel()
        if not self.is_stranger:
            self.namespace.flows.connections.closed += 1
        self._admitted.leave()
        self._budget.forget(self.holdings)
        self.engine.transport_lost()

    # -- links

    def add_link(self, link: AttachedLink) -> None:
        self.links.add(link)

    def end_link(self, link: AttachedLink, error: AmqpError) -> None:
        link.link.detach(error)
        self.forget_link(link)
        self.output_waits()

    def forget_link(self, link: AttachedLink) -> None:
        if link not in self.links:
            return
        self.links.remove(link)
        self._output_waiters.discard(link)
        self.hurry(self.links.none_until())
        link.gone()

    def send_via(self, via_path: str, destination_path: str) -> SendVia | None:
        return self.namespace.transfer_queues.send_via(via_path, destination_path)

    async def prepare_to_send_via(self, via_path: str) -> None:
        await self.namespace.transfer_queues.prepare(via_path)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        self._work.spawn(work)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        return self.shared.call_later(delay_s, callback)

    # -- output

    def output_waits(self, size_bytes: int = 0) -> None:
        self._unflushed_bytes += size_bytes
        if not self.in_turn and not self._flush_waits and not self.is_over:
            self._flush_waits = True
            soon(self._flush_waiting)

    def _flush_waiting(self) -> None:
        self._flush_waits = False
        self.flush()

    def flush(self) -> None:
        """Everything the engine has to say, in one write."""
        if self.is_over:
            return
        holdings = self.holdings
        data = self.engine.bytes_to_send()
        self._unflushed_bytes = 0
        if data:
            self.transport.write(data)
            self.balance_reading()
            holdings.unbooked_bytes += len(data)
        if holdings.unbooked_bytes >= BOOK_EVERY_BYTES:
            holdings.book()
        if self._output_waiters and self.stalled_since is None:
            soon(self._wake_output_waiters)

    def output_room_bytes(self, is_kept: bool = False) -> int:
        if self.stalled_since is not None or self.is_over:
            return 0
        kept_bytes = 0 if is_kept else self.holdings.kept_bytes + self.engine.allowance.waiting_bytes
        if kept_bytes > KEPT_FREE_BYTES or (self._budget.is_over and self._budget.brakes(self.holdings)):
            return 0
        return max(0, OUTPUT_HIGH_BYTES - self._unflushed_bytes - self.transport.get_write_buffer_size())

    def when_output_drains(self, waiter: OutputWaiter) -> None:
        self._output_waiters.add(waiter)

    def _wake_output_waiters(self) -> None:
        if self.stalled_since is not None or self.is_over:
            return
        began_s = LOOP.now()
        waiting, self._output_waiters = self._output_waiters, set()
        for one in waiting:
            one.room_grew()
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"deliveries to {self.peer}, which has room again")

    def pause_writing(self) -> None:
        if self.stalled_since is None:
            self.stalled_since = self.now()
            self.hurry(self.stalled_since + self.shared.settings.write_stall_s)

    def resume_writing(self) -> None:
        self.stalled_since = None
        self.eased()

    def keep(self, size_bytes: int) -> None:
        self.holdings.kept_bytes += size_bytes
        if size_bytes < 0 and self._output_waiters:
            self.output_waits()

    def eased(self) -> None:
        """Whatever was braked goes on."""
        self.balance_reading()
        self._wake_output_waiters()

    # -- input

    def hold_input(self, size_bytes: int) -> None:
        self.holdings.input_bytes += size_bytes
        if self._is_reading and self.holdings.input_bytes > INPUT_HIGH_BYTES:
            self.balance_reading()

    def release_input(self, size_bytes: int) -> None:
        self.holdings.input_bytes -= size_bytes
        if self._budget.is_over:
            self.holdings.book()
        if not self._is_reading:
            self.balance_reading()

    def is_crowded(self) -> bool:
        return self.holdings.input_bytes > INPUT_FULL_BYTES

    def balance_reading(self) -> None:
        """Reads on or not, by what waits on either side."""
        if self.is_over:
            return
        input_bytes_max = INPUT_HIGH_BYTES if self._is_reading else INPUT_LOW_BYTES
        reads = (
            self.holdings.input_bytes <= input_bytes_max
            and self.transport.get_write_buffer_size() <= OUTPUT_FULL_BYTES
            and not self._budget.brakes(self.holdings)
        )
        if reads and not self._is_reading:
            self.transport.resume_reading()
        elif self._is_reading and not reads:
            self.transport.pause_reading()
        self._is_reading = reads


class Holdings:
    """What one connection makes the server hold, by kind, in bytes; booked with the budget of all connections."""

    __slots__ = (
        "_budget",
        "_carrier",
        "booked_bytes",
        "bytes_max",
        "input_bytes",
        "kept_bytes",
        "peer",
        "unbooked_bytes",
    )

    def __init__(self, carrier: Carrier, budget: ConnectionBudget) -> None:
        self._carrier = carrier
        self._budget = budget
        self.peer = carrier.peer
        self.bytes_max = HELD_BYTES_MAX + carrier.limits.fetch_bytes_max
        #: Messages that wait for the store, and requests that wait for their turn or are worked on.
        self.input_bytes = 0
        #: What readers of event hubs have fetched and not yet sent.
        self.kept_bytes = 0
        #: What the budget knows, and what went to and fro since it was told.
        self.booked_bytes = 0
        self.unbooked_bytes = 0

    def total(self) -> int:
        return self.input_bytes + self.idle_bytes()

    def idle_bytes(self) -> int:
        """What does not go by itself, and goes with the connection."""
        carrier = self._carrier
        return (
            held_bytes(carrier.engine)
            + carrier.transport.get_write_buffer_size()
            + carrier.requests.unsent_bytes
            + carrier.transactions.held_bytes
            + carrier.tokens.held_bytes
            + self.kept_bytes
        )

    def book(self) -> None:
        if self._carrier.is_over:
            return
        self.unbooked_bytes = 0
        total_bytes = self.total()
        if total_bytes >= SMALL_BYTES or self.booked_bytes:
            self._budget.book(self, total_bytes)
            if self._budget.is_over:
                self._carrier.balance_reading()
            if total_bytes > self.bytes_max:
                self._close(f"This connection holds {total_bytes} bytes of memory")

    def eased(self) -> None:
        self._carrier.eased()

    def close_for_memory(self, all_bytes: int, bytes_max: int) -> None:
        told = f"All connections hold {all_bytes} bytes of memory, more than {bytes_max}"
        self._close(f"{told} (--connections-bytes-max), and this one the most")

    def _close(self, reason: str) -> None:
        self._carrier.close(AmqpError(Condition.RESOURCE_LIMIT_EXCEEDED, f"{reason}: {self.described()}."))

    def described(self) -> str:
        """In words, for whoever is closed because of it."""
        carrier = self._carrier
        unsent_bytes = carrier.transport.get_write_buffer_size() + carrier.requests.unsent_bytes
        allowance = carrier.engine.allowance
        return (
            f"{self.input_bytes} bytes that are not stored yet,"
            f" {allowance.partial_bytes()} of unfinished deliveries,"
            f" {carrier.transactions.held_bytes} in open transactions,"
            f" {unsent_bytes} of output that is not taken,"
            f" {self.kept_bytes + allowance.waiting_bytes} that wait for windows"
        )


_NEVER: Final = float("inf")


class AttachedLinks:
    """Of one connection."""

    def __init__(self, clock: Clock, settings: GatewaySettings) -> None:
        self._clock = clock
        self._settings = settings
        #: With the paths by which they are checked.
        self._links: dict[AttachedLink, tuple[Segments, ...]] = {}
        self.had_any = False
        #: When the last one went, or the connection was opened; None while there are some, or before it is open.
        self.none_since: float | None = None

    def __iter__(self) -> Iterator[AttachedLink]:
        """Those of this moment: whoever is called may end others."""
        return iter(list(self._links))

    def __contains__(self, link: object) -> bool:
        return link in self._links

    def add(self, link: AttachedLink) -> None:
        link.link.owner = link
        self._links[link] = paths_of(link.node)
        self.had_any = True
        self.none_since = None

    def remove(self, link: AttachedLink) -> None:
        del self._links[link]
        link.link.owner = None
        if not self._links:
            self.none_since = self._clock.monotonic()

    def none_s(self) -> float:
        """How long there may be none."""
        return self._settings.last_link_gone_s if self.had_any else self._settings.first_link_s

    def none_until(self) -> float:
        return _NEVER if self.none_since is None else self.none_since + self.none_s()

    def of_session(self, session: Session) -> list[AttachedLink]:
        """Inside one AMQP session."""
        return [link for link in self._links if link.link.session is session]

    def below(self, audiences: set[Segments]) -> list[AttachedLink]:
        """Those that grants for one of these may have opened."""
        return [
            link
            for link, paths in self._links.items()
            if any(path[:count] in audiences for path in paths for count in range(len(path) + 1))
        ]

    # -- LinkLookup

    def touch_link(self, link_name: str) -> None:
        for link in self._links:
            if link.link.name == link_name:
                link.used_at = self._clock.monotonic()

    def session_of_link(self, link_name: str) -> str | None:
        for link in self._links:
            session_id: str | None = getattr(link, "session_id", None)
            if session_id is not None and link.link.name == link_name:
                return session_id
        return None

    def holds_session(self, path: str, session_id: str) -> bool:
        wanted = path.lower()
        return any(
            getattr(link, "session_id", None) == session_id and link.node.path.lower() == wanted
            for link in self._links
        )
