"""One AMQP connection of a client: the engine's events in, the links' actions out.

Theory of operation. Bytes come from any transport (`data_received`), pass the engine, and each event goes to one
small handler; what the handlers make the engine write leaves in one `transport.write` at the end of the turn.
Output that arises elsewhere (a commit is durable, a message became available) marks the connection and leaves with
the present turn of the event loop, again in one write.

Two brakes keep memory bounded. Output: links deliver nothing more while the transport holds more than
OUTPUT_HIGH_BYTES, and nothing is read while it holds OUTPUT_FULL_BYTES; a peer that takes nothing for a minute is
dropped. Input: nothing is read while more than INPUT_HIGH_BYTES of messages wait for the store, or of requests for
their turn. A stranger, who has shown no token yet, gets far less: `amqp.allowance` says how much it may hold in the
engine, and its answers are bounded here.

Time. A connection names its next deadline; the gateway's one timer calls `tick` then. The phases of a connection
and their deadlines: handshake (SASL and open), first token (A-7), first link and last link gone (R-22), token ends
(A-8), idle links (R-22), the engine's heartbeats and silence.

An exception of our own code ends this connection with amqp:internal-error and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from busway.amqp.connection import Connection, Role
from busway.amqp.errors import AmqpError, Condition
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditArrived,
    DeliveriesArrived,
    Event,
    LinkAttached,
    LinkDetached,
    OutcomesArrived,
    SaslInitArrived,
    WindowOpened,
)
from busway.amqp.sasl import PLAIN, read_plain
from busway.broker.errors import AuthenticationFailed, BrokerError, QuotaExceeded, Unauthorized
from busway.broker.fragment.receiver import Attachment
from busway.gateway.amqp.capabilities import offered
from busway.gateway.amqp.holdings import KEPT_FREE_BYTES, Holdings
from busway.gateway.amqp.links.addresses import paths_of
from busway.gateway.amqp.links.attaching import Attaching
from busway.gateway.amqp.links.session_receive_link import SessionReceiveLink
from busway.gateway.amqp.nodes.request_link import RequestDesk
from busway.gateway.amqp.nodes.tokens import TokenHolder, may_lose
from busway.gateway.amqp.told_events import told_events
from busway.gateway.amqp.wire.error_conditions import amqp_error
from busway.gateway.connection_budget import SMALL_BYTES
from busway.loop_entries import LOOP, Steps, name_of

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.broker.authorization import Grant, Segments
    from busway.broker.forward.send_via import SendVia
    from busway.gateway.amqp.gateway import AmqpGateway
    from busway.gateway.amqp.links.link_host import Alarm, AttachedLink, Thirsty

_log = logging.getLogger("busway.gateway.amqp")

OUTPUT_HIGH_BYTES: Final = 1024 * 1024
OUTPUT_FULL_BYTES: Final = 4 * OUTPUT_HIGH_BYTES
INPUT_HIGH_BYTES: Final = 4 * 1024 * 1024
INPUT_LOW_BYTES: Final = INPUT_HIGH_BYTES // 2
#: One read may bring the ends of many batches: from here on they are refused.
INPUT_FULL_BYTES: Final = 4 * INPUT_HIGH_BYTES
#: Of what was written to a connection without a token and not taken by it; it is dropped above.
STRANGER_OUTPUT_BYTES_MAX: Final = 64 * 1024
STRANGER_SLICE_BYTES: Final = 16 * 1024
#: What a connection holds is looked at again when so much went to and fro.
BOOK_EVERY_BYTES: Final = 32 * 1024
#: Wall clocks step: the end of a token is looked at again at least this often.
_EXPIRY_LOOK_S: Final = 30.0
_NEVER: Final = float("inf")
#: Of what a peer may have written.
_LOGGED_CHARACTERS_MAX: Final = 200


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


class AmqpConnection:
    """Drives one engine over one transport. `LinkHost` for its links, `LinkLookup` for management nodes."""

    def __init__(self, gateway: AmqpGateway, transport: ByteTransport, peer: str = "") -> None:
        # Shared.
        self.gateway = gateway
        self.namespace = gateway.namespace
        self.limits = gateway.namespace.limits
        self.tracking = gateway.tracking.of_one_client()
        self.entropy = gateway.entropy
        self._clock = gateway.clock
        self._settings = gateway.settings
        # Of this connection.
        self.peer = peer
        self.tokens = TokenHolder(self.limits.tokens_per_connection_max, self._tokens_changed)
        self.desk = RequestDesk(self)
        self.transactions = gateway.namespace.transactions()
        self._transport = transport
        self._engine = engine = Connection(Role.SERVER, gateway.engine_settings, self.now())
        self.holdings = Holdings(engine, transport, self.desk, self.transactions, self.tokens, self.limits)
        self._budget = gateway.budget
        self.booked_bytes = 0
        self._unbooked_bytes = 0  # what went to and fro since
        self.waiting = gateway.waiting_attaches.of_one_client()
        self._attaching = Attaching(self)
        #: With the paths by which they are checked.
        self._links: dict[AttachedLink, tuple[Segments, ...]] = {}
        self._work: set[asyncio.Task[None]] = set()
        # Phases.
        self._began_at = self.now()
        self._is_open = False
        self._is_over = False
        #: True once it counts among the namespace's connections (L-11).
        self.is_authenticated = False
        #: By which the client knows this namespace, as it says itself.
        self.asked_host = ""
        #: When the last link went, or the connection was opened; None while there are links.
        self._linkless_since: float | None = None
        self._had_links = False
        #: We have said good-bye and wait for the peer's answer; the engine knows how long.
        self._is_closing = False
        # Flow.
        self._in_turn = False
        self._flush_waits = False
        self._unflushed_bytes = 0
        self._stalled_since: float | None = None
        self._thirsty: set[Thirsty] = set()
        self._is_reading = True
        #: Monotonic; the gateway calls `tick` then.
        self.deadline = self.now()

    def now(self) -> float:
        return self._clock.monotonic()

    # -- from the transport

    def data_received(self, data: bytes) -> None:
        if self.is_authenticated or len(data) <= STRANGER_SLICE_BYTES:
            self._take(data)
        else:
            self._take_slices(data)
        if self.is_stranger and not self._is_over:
            self._check_greed()

    def _take_slices(self, data: bytes) -> None:
        """A stranger's read, cut so that its answers are looked at now and then."""
        at = 0
        while at < len(data) and not self._is_over:
            end = at + STRANGER_SLICE_BYTES if self.is_stranger else len(data)
            self._take(data[at:end])
            at = end
            if self.is_stranger and not self._is_over:
                self._check_greed()

    def _check_greed(self) -> None:
        """A stranger that asks for much and takes nothing goes without a word."""
        if self._transport.get_write_buffer_size() > STRANGER_OUTPUT_BYTES_MAX:
            _log.debug("stranger takes nothing: peer=%s", self.peer)
            self.abort()

    @property
    def is_stranger(self) -> bool:
        return not self.is_authenticated

    def _take(self, data: bytes) -> None:
        if self._is_over:
            return
        began_s = LOOP.now()
        self._unbooked_bytes += len(data)
        events: list[Event] = []
        self._in_turn = True
        try:
            events = self._engine.receive(data, self.now())
            for event in events:
                self._handle(event)
        except Exception:
            self._fail()
        finally:
            self._in_turn = False
        self.flush()
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"{told_events(events)}, from {self.peer}")

    def connection_lost(self) -> None:
        """The transport is gone. Idempotent."""
        if self._is_over:
            return
        self._is_over = True
        for link in list(self._links):
            self._forget(link)
        self.desk.close()
        for task in list(self._work):
            task.cancel()
        for grant in self.tokens.grants():
            self.gateway.rights.dropped(self, grant)
        self.gateway.rights.forget(self)
        self.gateway.forget(self)
        self._budget.forget(self)
        self._engine.transport_lost()

    def pause_writing(self) -> None:
        if self._stalled_since is None:
            self._stalled_since = self.now()
            self._hurry(self.now() + self._settings.write_stall_s)

    def resume_writing(self) -> None:
        self._stalled_since = None
        self.eased()

    # -- time

    def tick(self, now: float) -> None:
        """Whatever time has brought. The next deadline is set anew."""
        if self._is_over:
            return
        self._in_turn = True
        try:
            for event in self._engine.tick(now):
                self._handle(event)
            self._keep_deadlines(now)
        except Exception:
            self._fail()
        finally:
            self._in_turn = False
        self.flush()
        if not self._is_over:
            self.deadline = self._next_deadline(now)

    def _keep_deadlines(self, now: float) -> None:
        if self._is_over or self._is_closing:
            return
        if self._is_stalled(now):
            self.abort()
        elif self._is_open and not self.is_authenticated and now >= self._began_at + self._settings.token_s:
            self.close(AmqpError(Condition.UNAUTHORIZED_ACCESS, "No token was put on '$cbs' in time."))
        elif self._linkless_until() <= now:
            self.close(self._linkless_error())
        else:
            self._end_expired()
            self._end_idle(now)

    def _is_stalled(self, now: float) -> bool:
        return self._stalled_since is not None and now >= self._stalled_since + self._settings.write_stall_s

    def _next_deadline(self, now: float) -> float:
        settings = self._settings
        engine_due = self._engine.next_deadline()
        due = _NEVER if engine_due is None else engine_due
        if self._stalled_since is not None:
            due = min(due, self._stalled_since + settings.write_stall_s)
        if not self._is_open or self._is_closing:
            return due
        if not self.is_authenticated:
            due = min(due, self._began_at + settings.token_s)
        due = min(due, self._linkless_until(), self._expiry_deadline(now))
        return min((due, *(self._idle_deadline(link, now) for link in self._links)))

    def _linkless_until(self) -> float:
        if self._linkless_since is None:
            return _NEVER
        settings = self._settings
        return self._linkless_since + (
            settings.last_link_gone_s if self._had_links else settings.first_link_s
        )

    def _linkless_error(self) -> AmqpError:
        allowed_s = self._settings.last_link_gone_s if self._had_links else self._settings.first_link_s
        told = f"The connection was closed by container '{self.gateway.engine_settings.container_id}' because it did"
        told += f" not have any active links in the past {round(allowed_s * 1000)} milliseconds."
        return AmqpError(Condition.CONNECTION_FORCED, told)

    def _expiry_deadline(self, now: float) -> float:
        expiry_ms = self.tokens.earliest_expiry_ms()
        if expiry_ms is None:
            return _NEVER
        left_s = max(0.0, (expiry_ms - self._clock.wall_ms()) / 1000)
        return now + min(left_s, _EXPIRY_LOOK_S)

    def _idle_deadline(self, link: AttachedLink, now: float) -> float:
        since = link.used_at if link.is_idle() else now
        return since + self._settings.link_idle_s

    def _end_expired(self) -> None:
        """A-8: links whose token has ended go, unless another one covers them."""
        expiry_ms = self.tokens.earliest_expiry_ms()
        now_ms = self._clock.wall_ms()
        if expiry_ms is not None and expiry_ms <= now_ms:
            ended = self.tokens.forget_expired(now_ms)
            for grant in ended:
                self.gateway.rights.dropped(self, grant)
            self.gateway.rights.concerns(self, [grant.audience for grant in ended])

    def _end_idle(self, now: float) -> None:
        """R-22: links without credit and traffic."""
        for link in list(self._links):
            if not link.is_idle():
                link.used_at = now
            elif now >= link.used_at + self._settings.link_idle_s:
                self.end_link(
                    link,
                    AmqpError(
                        Condition.LINK_DETACH_FORCED,
                        self.tracking.describe(
                            f"The link '{link.link.name[:64]}' is force detached: it was idle for "
                            f"{round(self._settings.link_idle_s)} seconds.",
                            link.node.path,
                        ),
                    ),
                )

    def _hurry(self, due: float) -> None:
        self.deadline = min(self.deadline, due)

    # -- rights

    def audiences_of(self, level_key: str | None) -> list[Segments]:
        return [grant.audience for grant in self.tokens.grants() if grant.level.key == level_key]

    def links_below(self, audiences: set[Segments]) -> list[object]:
        return [
            link
            for link, paths in self._links.items()
            if any(path[:count] in audiences for path in paths for count in range(len(path) + 1))
        ]

    def check_link(self, link: object) -> None:
        """Tokens or rules have changed: a link that has lost its right goes (A-8, A-10)."""
        attached = cast("AttachedLink", link)
        if attached not in self._links or self._is_over:
            return
        try:
            self._attaching.check_again(attached.node, attached.right)
        except Unauthorized as error:
            self._evict(attached, error)

    def _evict(self, link: AttachedLink, error: BrokerError) -> None:
        """A link that an entity knows leaves in its own way: a receiver answers what is being settled first."""
        if isinstance(link, Attachment):
            link.evict(error)
        else:
            self.end_link(link, amqp_error(error, self.tracking, link.node.path))

    def _tokens_changed(self, held: Grant, replaced: Grant | None) -> None:
        rights = self.gateway.rights
        rights.held(self, held)
        self._hurry(self._expiry_deadline(self.now()))
        if self._is_open:
            self.recognise()
        if replaced is not None:
            rights.dropped(self, replaced)
            if may_lose(held, replaced) and not self._is_over:
                rights.concerns(self, [held.audience])

    def recognise(self) -> None:
        """A-7, L-11: it has shown a token, on `$cbs` or inside a request. Strangers have their own bounds."""
        if self.is_authenticated or self._is_over:
            return
        if self.gateway.authenticated(self):
            self.is_authenticated = True
            self._engine.trust()
            return
        full = QuotaExceeded(
            f"ConnectionsQuotaExceeded: the namespace has {self.limits.connections_max} connections already."
        )
        self.close(amqp_error(full, self.tracking))

    # -- closing

    def close(self, error: AmqpError | None = None) -> None:
        """Close from our side: every link is detached with the reason, then the connection."""
        if self._is_over or self._is_closing:
            return
        self._is_closing = True
        self._hurry(self.now())
        for link in list(self._links):
            if isinstance(link, SessionReceiveLink):
                link.cancel_wait()
            self._forget(link)
        self._engine.close(error)
        self.output_waits()
        self.book()

    def _fail(self) -> None:
        """Our own mistake: this connection ends, the server goes on."""
        _log.exception("connection failed: peer=%s", self.peer)
        try:
            self.close(
                AmqpError(
                    Condition.INTERNAL_ERROR,
                    self.tracking.describe("The server met an error it did not expect. Please try again."),
                )
            )
        except Exception:
            _log.exception("connection could not be closed: peer=%s", self.peer)
            self.abort()

    def abort(self) -> None:
        """Close now, without a word."""
        self._transport.abort()
        self.connection_lost()

    # -- events

    def _handle(self, event: Event) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _sasl_init_arrived(self, event: SaslInitArrived) -> None:
        """A-7. ANONYMOUS and its kin bring no right with them."""
        accepted = event.mechanism != PLAIN or self._log_in(event.response)
        if accepted and self.tokens.has_any():
            self._engine.trust()  # before what the client has written behind its key is looked at
        for pipelined in self._engine.sasl_outcome(accepted):
            self._handle(pipelined)

    def _log_in(self, response: bytes) -> bool:
        try:
            credentials = read_plain(response)
            if credentials is None:
                raise AuthenticationFailed
            grant = self.namespace.authorizer.grant_of_key(*credentials)
        except AuthenticationFailed:
            _log.info("login refused: peer=%s", self.peer)
            return False
        self.tokens.hold_for_connection(grant)
        return True

    def _opened(self, event: ConnectionOpened) -> None:
        self.asked_host = event.open.hostname or ""
        self.tracking.know_host(event.open.hostname)
        self._is_open = True
        self._linkless_since = self.now()
        self._engine.open(capabilities=offered(event.open.desired_capabilities))
        if self.tokens.has_any():
            self.recognise()
        self._hurry(self.now())

    def _link_attached(self, event: LinkAttached) -> None:
        if not self._is_closing:
            self._attaching.attach(event.link)

    def _credit_arrived(self, event: CreditArrived) -> None:
        owner = _owner_of(event.link)
        if owner is not None:
            owner.used_at = self.now()
            owner.credit_arrived()

    def _deliveries_arrived(self, event: DeliveriesArrived) -> None:
        owner = _owner_of(event.link)
        if owner is not None:
            owner.used_at = self.now()
            owner.deliveries_arrived(event.deliveries)

    def _outcomes_arrived(self, event: OutcomesArrived) -> None:
        owner = _owner_of(event.link)
        if owner is not None:
            owner.used_at = self.now()
            owner.outcomes_arrived(event.deliveries, event.state, event.settled)

    def _window_opened(self, event: WindowOpened) -> None:
        for link in list(self._links):
            if link.link.session is event.session:
                link.room_grew()

    def _link_detached(self, event: LinkDetached) -> None:
        owner = _owner_of(event.link)
        if owner is not None:
            self._forget(owner)

    def _closed(self, event: ConnectionClosed) -> None:
        if event.error is not None:
            # Strangers and scanners, who never proved anything, do not fill the _log.
            level, error = logging.INFO if self.is_authenticated else logging.DEBUG, event.error
            reason = (error.description or "")[:_LOGGED_CHARACTERS_MAX]
            _log.log(level, "connection closed: peer=%s condition=%s: %r", self.peer, error.condition, reason)
        self.flush()
        self._transport.close()
        if self._transport.get_write_buffer_size() > 0:
            # A peer that takes nothing must not keep the socket by that.
            asyncio.get_running_loop().call_later(self._settings.close_answer_s, self._transport.abort)
        self.connection_lost()

    # -- links

    def add_link(self, link: AttachedLink) -> None:
        link.link.owner = link
        self._links[link] = paths_of(link.node)
        self._had_links = True
        self._linkless_since = None

    def end_link(self, link: AttachedLink, error: AmqpError) -> None:
        link.link.detach(error)
        self._forget(link)
        self.output_waits()

    def _forget(self, link: AttachedLink) -> None:
        if link not in self._links:
            return
        del self._links[link]
        self._thirsty.discard(link)
        link.link.owner = None
        if not self._links:
            self._linkless_since = self.now()
            self._hurry(self._linkless_until())
        link.gone()

    def send_via(self, via_path: str, destination_path: str) -> SendVia | None:
        return self.namespace.transfer_queues.send_via(via_path, destination_path)

    async def prepare_to_send_via(self, via_path: str) -> None:
        await self.namespace.transfer_queues.prepare(via_path)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        named = Steps(work, lambda: f"{name_of(work)}, for {self.peer}")
        task = asyncio.get_running_loop().create_task(named)
        self._work.add(task)
        task.add_done_callback(self._work_ended)

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("background work failed: peer=%s", self.peer, exc_info=task.exception())

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        return self.gateway.call_later(delay_s, callback)

    # -- LinkLookup

    def touch_link(self, link_name: str) -> None:
        for link in self._links:
            if link.link.name == link_name:
                link.used_at = self.now()

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

    # -- output

    def output_waits(self, size_bytes: int = 0) -> None:
        self._unflushed_bytes += size_bytes
        if not self._in_turn and not self._flush_waits and not self._is_over:
            self._flush_waits = True
            asyncio.get_running_loop().call_soon(self._flush_waiting)

    def _flush_waiting(self) -> None:
        self._flush_waits = False
        self.flush()

    def flush(self) -> None:
        """Everything the engine has to say, in one write."""
        if self._is_over:
            return
        data = self._engine.bytes_to_send()
        self._unflushed_bytes = 0
        if data:
            self._transport.write(data)
            self._balance_reading()
            self._unbooked_bytes += len(data)
        if self._unbooked_bytes >= BOOK_EVERY_BYTES:
            self.book()
        if self._thirsty and self._stalled_since is None:
            asyncio.get_running_loop().call_soon(self._wake_thirsty)

    def output_room_bytes(self, is_kept: bool = False) -> int:
        if self._stalled_since is not None or self._is_over:
            return 0
        kept_bytes = 0 if is_kept else self.holdings.kept_bytes + self._engine.allowance.waiting_bytes
        if kept_bytes > KEPT_FREE_BYTES or (self._budget.is_over and self._budget.brakes(self)):
            return 0
        return max(0, OUTPUT_HIGH_BYTES - self._unflushed_bytes - self._transport.get_write_buffer_size())

    def when_output_drains(self, thirsty: Thirsty) -> None:
        self._thirsty.add(thirsty)

    def _wake_thirsty(self) -> None:
        if self._stalled_since is not None or self._is_over:
            return
        began_s = LOOP.now()
        waiting, self._thirsty = self._thirsty, set()
        for one in waiting:
            one.room_grew()
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"deliveries to {self.peer}, which has room again")

    # -- memory

    def keep(self, size_bytes: int) -> None:
        self.holdings.kept_bytes += size_bytes
        if size_bytes < 0 and self._thirsty:
            self.output_waits()

    def book(self) -> None:
        if self._is_over:
            return
        self._unbooked_bytes = 0
        held_bytes = self.holdings.total()
        if held_bytes >= SMALL_BYTES or self.booked_bytes:
            self._budget.book(self, held_bytes)
            if self._budget.is_over:
                self._balance_reading()
            if held_bytes > self.holdings.bytes_max:
                self._close_greedy(f"This connection holds {held_bytes} bytes of memory")

    def idle_bytes(self) -> int:
        return self.holdings.idle()

    def close_for_memory(self, all_bytes: int, bytes_max: int) -> None:
        told = f"All connections hold {all_bytes} bytes of memory, more than {bytes_max}"
        self._close_greedy(f"{told} (--connections-bytes-max), and this one the most")

    def _close_greedy(self, reason: str) -> None:
        self.close(AmqpError(Condition.RESOURCE_LIMIT_EXCEEDED, f"{reason}: {self.holdings.told()}."))

    def eased(self) -> None:
        self._balance_reading()
        self._wake_thirsty()

    # -- input

    def hold_input(self, size_bytes: int) -> None:
        self.holdings.input_bytes += size_bytes
        if self._is_reading and self.holdings.input_bytes > INPUT_HIGH_BYTES:
            self._balance_reading()

    def release_input(self, size_bytes: int) -> None:
        self.holdings.input_bytes -= size_bytes
        if self._budget.is_over:
            self.book()
        if not self._is_reading:
            self._balance_reading()

    def is_crowded(self) -> bool:
        return self.holdings.input_bytes > INPUT_FULL_BYTES

    def _balance_reading(self) -> None:
        """Reads on or not, by what waits on either side."""
        if self._is_over:
            return
        input_bytes_max = INPUT_HIGH_BYTES if self._is_reading else INPUT_LOW_BYTES
        reads = (
            self.holdings.input_bytes <= input_bytes_max
            and self._transport.get_write_buffer_size() <= OUTPUT_FULL_BYTES
            and not self._budget.brakes(self)
        )
        if reads and not self._is_reading:
            self._transport.resume_reading()
        elif self._is_reading and not reads:
            self._transport.pause_reading()
        self._is_reading = reads


def _owner_of(link: Link) -> AttachedLink | None:
    return cast("AttachedLink | None", link.owner)


_HANDLERS: Final[dict[type[Event], Callable[[AmqpConnection, Any], None]]] = {
    DeliveriesArrived: AmqpConnection._deliveries_arrived,
    OutcomesArrived: AmqpConnection._outcomes_arrived,
    CreditArrived: AmqpConnection._credit_arrived,
    WindowOpened: AmqpConnection._window_opened,
    LinkAttached: AmqpConnection._link_attached,
    LinkDetached: AmqpConnection._link_detached,
    SaslInitArrived: AmqpConnection._sasl_init_arrived,
    ConnectionOpened: AmqpConnection._opened,
    ConnectionClosed: AmqpConnection._closed,
}
