"""One AMQP connection of a client: the engine's events in, and what time and rights do to it.

Theory of operation. Bytes come from any transport (`data_received`), pass the engine, and each event goes to one
small handler; what the handlers make the engine write leaves in one write at the end of the turn. Its parts:

    carrier     output, input and the memory that both hold: what its links see of the connection
    links       those that stand on it (`Carrier.links`)
    attaching   who may attach what, and which kind of link comes of it
    deadlines   phases, and what is due; the gateway's one timer calls `tick` when the next deadline has come

A stranger, who has shown no token yet, is read in slices, so that what it makes us answer is looked at now and
then.

The phases and their deadlines (`Deadlines`): handshake (SASL and open, the engine's), first token (A-7), first
link and last link gone (R-22), tokens that end (A-8), idle links (R-22), output that nobody takes, the engine's
heartbeats and silence. A connection names its next deadline. `Deadlines` only looks at what is due; the connection
acts.

An exception of our own code ends this connection with amqp:internal-error and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from busway.amqp.engine_settings import PLAIN
from busway.amqp.errors import AmqpError, Condition
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionEvent,
    ConnectionOpened,
    CreditArrived,
    DeliveriesArrived,
    LinkAttached,
    LinkDetached,
    OutcomesArrived,
    SaslInitArrived,
    WindowOpened,
)
from busway.amqp.sasl import read_plain
from busway.amqp.types import Symbol
from busway.broker.fragment.outlet import Attachment
from busway.event_loop import LOOP, shown
from busway.gateway.amqp.attach.attaching import Attaching
from busway.gateway.amqp.carrier import ByteTransport, Carrier
from busway.gateway.amqp.error_conditions import amqp_error
from busway.gateway.amqp.nodes.token_node import may_lose
from busway.model.errors import AuthenticationFailed, BrokerError, Unauthorized

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.amqp.transfer_runs import ArrivedRun
    from busway.gateway.amqp.links.link_host import AttachedLink, RunTaker
    from busway.gateway.amqp.shared import Shared
    from busway.model.authorization import Grant, Segments

_log = logging.getLogger("busway.gateway.amqp")

#: Of what was written to a connection without a token and not taken by it; it is dropped above.
STRANGER_OUTPUT_BYTES_MAX: Final = 64 * 1024
STRANGER_SLICE_BYTES: Final = 16 * 1024
#: What a connection can do beyond AMQP, told only to who asks for it by name: Qpid JMS sends a delivery time
#: (`x-opt-delivery-time`), or shares a subscription among receivers, only where the server has said that it can.
CAPABILITIES: Final = frozenset({Symbol("DELAYED_DELIVERY"), Symbol("SHARED-SUBS")})
#: Of what a peer may have written.
_LOGGED_CHARACTERS_MAX: Final = 200
#: Kinds of events that are named when working them off took long.
_KINDS_MAX: Final = 3


class AmqpConnection:
    """Drives one engine over one transport. `gone` is told of its end, once."""

    def __init__(
        self,
        shared: Shared,
        transport: ByteTransport,
        peer: str = "",
        gone: Callable[[AmqpConnection], None] = lambda _: None,
    ) -> None:
        self._shared = shared
        self._gone = gone
        self._now = shared.clock.monotonic
        admitted = shared.admission.enter(peer, self.abort)
        self.carrier = Carrier(shared, transport, admitted, self._tokens_changed)
        self._engine = self.carrier.engine
        self._attaching = Attaching(self.carrier)
        self._deadlines = Deadlines(shared, self.carrier)

    # -- from the transport

    def data_received(self, data: bytes) -> None:
        carrier = self.carrier
        if not carrier.is_stranger or len(data) <= STRANGER_SLICE_BYTES:
            self._take(data)
        else:
            self._take_slices(data)
        if carrier.is_stranger and not carrier.is_over:
            self._check_greed()

    def _take_slices(self, data: bytes) -> None:
        """A stranger's read, cut so that its answers are looked at now and then."""
        carrier, at = self.carrier, 0
        while at < len(data) and not carrier.is_over:
            end = at + STRANGER_SLICE_BYTES if carrier.is_stranger else len(data)
            self._take(data[at:end])
            at = end
            if carrier.is_stranger and not carrier.is_over:
                self._check_greed()

    def _check_greed(self) -> None:
        """A stranger that asks for much and takes nothing goes without a word."""
        if self.carrier.transport.get_write_buffer_size() > STRANGER_OUTPUT_BYTES_MAX:
            _log.debug("stranger takes nothing: peer=%s", self.carrier.peer)
            self.abort()

    def _take(self, data: bytes) -> None:
        carrier = self.carrier
        if carrier.is_over:
            return
        began_s = LOOP.now()
        carrier.holdings.unbooked_bytes += len(data)
        events: list[ConnectionEvent] = []
        carrier.in_turn = True
        try:
            events = self._engine.receive(data, self._now())
            for event in events:
                self._handle(event)
        except Exception:
            self._fail()
        finally:
            carrier.in_turn = False
        carrier.flush()
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"{describe_events(events)}, from {carrier.peer}")

    def connection_lost(self) -> None:
        """The transport is gone. Idempotent."""
        carrier, rights = self.carrier, self._shared.rights
        if carrier.is_over:
            return
        carrier.lose()
        for grant in carrier.tokens.grants():
            rights.drop(self, grant)
        rights.forget(self)
        self._gone(self)

    def pause_writing(self) -> None:
        self.carrier.pause_writing()

    def resume_writing(self) -> None:
        self.carrier.resume_writing()

    # -- time

    @property
    def deadline(self) -> float:
        return self.carrier.deadline

    def tick(self, now: float) -> None:
        """Whatever time has brought. The next deadline is set anew."""
        carrier = self.carrier
        if carrier.is_over:
            return
        carrier.in_turn = True
        try:
            for event in self._engine.tick(now):
                self._handle(event)
            if not carrier.is_over and not carrier.is_closing:
                self._end_what_is_due(now)
        except Exception:
            self._fail()
        finally:
            carrier.in_turn = False
        carrier.flush()
        if not carrier.is_over:
            carrier.deadline = self._deadlines.next(now)

    def _end_what_is_due(self, now: float) -> None:
        deadlines = self._deadlines
        if deadlines.is_stalled(now):
            self.abort()
            return
        error = deadlines.end_of_phase(now)
        if error is not None:
            self.close(error)
            return
        self._end_expired()
        for link in deadlines.idle_links(now):
            self.carrier.end_link(link, deadlines.idle_error(link))

    def _end_expired(self) -> None:
        """A-8: links whose token has ended go, unless another one covers them."""
        tokens, now_ms = self.carrier.tokens, self._shared.clock.wall_ms()
        expiry_ms = tokens.earliest_expiry_ms()
        if expiry_ms is not None and expiry_ms <= now_ms:
            ended = tokens.forget_expired(now_ms)
            for grant in ended:
                self._shared.rights.drop(self, grant)
            self._shared.rights.recheck(self, [grant.audience for grant in ended])

    # -- rights

    def _tokens_changed(self, held: Grant, replaced: Grant | None) -> None:
        carrier, rights = self.carrier, self._shared.rights
        rights.hold(self, held)
        carrier.hurry(self._deadlines.expiry(self._now()))
        if self._deadlines.is_open:
            carrier.recognise()
        if replaced is not None:
            rights.drop(self, replaced)
            if may_lose(held, replaced) and not carrier.is_over:
                rights.recheck(self, [held.audience])

    def audiences_of(self, level_key: str | None) -> list[Segments]:
        return [grant.audience for grant in self.carrier.tokens.grants() if grant.level.key == level_key]

    def links_below(self, audiences: set[Segments]) -> list[object]:
        return list[object](self.carrier.links.below(audiences))

    def check_link(self, link: object) -> None:
        """Tokens or rules have changed: a link that has lost its right goes (A-8, A-10)."""
        attached = cast("AttachedLink", link)
        if attached not in self.carrier.links or self.carrier.is_over:
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
            self.carrier.end_link(link, amqp_error(error, self.carrier.tracking, link.node.path))

    # -- closing

    def close(self, error: AmqpError | None = None) -> None:
        """Close from our side: every link is detached with the reason, then the connection."""
        self.carrier.close(error)

    def _fail(self) -> None:
        """Our own mistake: this connection ends, the server goes on."""
        carrier = self.carrier
        _log.exception("connection failed: peer=%s", carrier.peer)
        sentence = "The server met an error it did not expect. Please try again."
        try:
            self.close(AmqpError(Condition.INTERNAL_ERROR, carrier.tracking.describe(sentence)))
        except Exception:
            _log.exception("connection could not be closed: peer=%s", carrier.peer)
            self.abort()

    def abort(self) -> None:
        """Close now, without a word."""
        self.carrier.transport.abort()
        self.connection_lost()

    # -- events

    def _handle(self, event: ConnectionEvent) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _sasl_init_arrived(self, event: SaslInitArrived) -> None:
        """A-7. ANONYMOUS and its kin bring no right with them."""
        accepted = event.mechanism != PLAIN or self._log_in(event.response)
        if accepted and self.carrier.tokens.has_any():
            self._engine.trust()  # before what the client has written behind its key is looked at
        for pipelined in self._engine.sasl_outcome(accepted):
            self._handle(pipelined)

    def _log_in(self, response: bytes) -> bool:
        try:
            credentials = read_plain(response)
            if credentials is None:
                raise AuthenticationFailed
            grant = self._shared.namespace.authorizer.grant_of_key(*credentials)
        except AuthenticationFailed:
            _log.info("login refused: peer=%s", self.carrier.peer)
            return False
        self.carrier.tokens.hold_for_connection(grant)
        return True

    def _opened(self, event: ConnectionOpened) -> None:
        carrier, now = self.carrier, self._now()
        carrier.asked_host = event.open.hostname or ""
        carrier.tracking.know_host(event.open.hostname)
        self._deadlines.is_open = True
        carrier.links.none_since = now
        self._engine.open(capabilities=offered(event.open.desired_capabilities))
        if carrier.tokens.has_any():
            carrier.recognise()
        carrier.hurry(now)

    def _link_attached(self, event: LinkAttached) -> None:
        if not self.carrier.is_closing:
            self._attaching.attach(event.link)

    def _credit_arrived(self, event: CreditArrived) -> None:
        owner = _owner_of(event.link)
        if owner is not None:
            owner.used_at = self._now()
            owner.credit_arrived()

    def _deliveries_arrived(self, event: DeliveriesArrived) -> None:
        owner = _owner_of(event.link)
        if owner is not None:
            owner.used_at = self._now()
            run = event.run
            if run is not None and run.count:
                cast("RunTaker", owner).run_arrived(run)
            else:
                owner.deliveries_arrived(event.deliveries)

    def _outcomes_arrived(self, event: OutcomesArrived) -> None:
        owner = _owner_of(event.link)
        if owner is not None:
            owner.used_at = self._now()
            owner.outcomes_arrived(event.deliveries, event.state, event.settled)

    def _window_opened(self, event: WindowOpened) -> None:
        for link in self.carrier.links.of_session(event.session):
            link.room_grew()

    def _link_detached(self, event: LinkDetached) -> None:
        owner = _owner_of(event.link)
        if owner is not None:
            self.carrier.forget_link(owner)

    def _closed(self, event: ConnectionClosed) -> None:
        carrier = self.carrier
        if event.error is not None:
            # Strangers and scanners, who never proved anything, do not fill the log.
            level, error = logging.DEBUG if carrier.is_stranger else logging.INFO, event.error
            reason = (error.description or "")[:_LOGGED_CHARACTERS_MAX]
            _log.log(
                level, "connection closed: peer=%s condition=%s: %r", carrier.peer, error.condition, reason
            )
        carrier.flush()
        transport = carrier.transport
        transport.close()
        if transport.get_write_buffer_size() > 0:
            # A peer that takes nothing must not keep the socket by that.
            self._shared.call_later(self._shared.settings.close_answer_s, transport.abort)
        self.connection_lost()


def offered(desired: list[str] | None) -> list[str] | None:
    """Those of the desired capabilities that there are; None for a client that desires none of them."""
    found: list[str] = [Symbol(name) for name in dict.fromkeys(desired or ()) if name in CAPABILITIES]
    return found or None


def describe_events(events: list[ConnectionEvent]) -> str:
    """What a read has brought, in words: how many events of which kind at which entity, the most frequent first."""
    counts: dict[str, int] = {}
    for event in events:
        many: list[object] | None = getattr(event, "deliveries", None)
        run: ArrivedRun | None = getattr(event, "run", None)
        word = f"{type(event).__name__}{_place(event)}"
        counts[word] = counts.get(word, 0) + (1 if many is None else len(many)) + (run.count if run else 0)
    few = sorted(counts.items(), key=lambda entry: -entry[1])[:_KINDS_MAX]
    words = ", ".join(f"{count:,} × {word}" for word, count in few)
    more = f" and {len(counts) - len(few):,} other kinds" if len(counts) > len(few) else ""
    return f"AMQP input: {words or 'frames'}{more}"


def _place(event: ConnectionEvent) -> str:
    link: Link | None = getattr(event, "link", None)
    owner = None if link is None else _owner_of(link)
    return "" if owner is None else f" at {shown(owner.node.path)}"


def _owner_of(link: Link) -> AttachedLink | None:
    return cast("AttachedLink | None", link.owner)


_HANDLERS: Final[dict[type[ConnectionEvent], Callable[[AmqpConnection, Any], None]]] = {
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


#: Wall clocks step: the end of a token is looked at again at least this often.
_EXPIRY_LOOK_S: Final = 30.0
_NEVER: Final = float("inf")


class Deadlines:
    """Of one connection."""

    def __init__(self, shared: Shared, carrier: Carrier) -> None:
        self._settings = shared.settings
        self._clock = shared.clock
        self._container_id = shared.engine_settings.container_id
        self._carrier = carrier
        self._began_at = shared.clock.monotonic()
        #: The client has opened the connection: its handshake is over.
        self.is_open = False

    def next(self, now: float) -> float:
        carrier, settings = self._carrier, self._settings
        engine_due = carrier.engine.next_deadline()
        due = _NEVER if engine_due is None else engine_due
        if carrier.stalled_since is not None:
            due = min(due, carrier.stalled_since + settings.write_stall_s)
        if not self.is_open or carrier.is_closing:
            return due
        if carrier.is_stranger:
            due = min(due, self._began_at + settings.token_s)
        due = min(due, carrier.links.none_until(), self.expiry(now))
        return min((due, *(self._idle_until(link, now) for link in carrier.links)))

    # -- what is due

    def is_stalled(self, now: float) -> bool:
        """The peer has taken nothing for too long."""
        stalled_since = self._carrier.stalled_since
        return stalled_since is not None and now >= stalled_since + self._settings.write_stall_s

    def end_of_phase(self, now: float) -> AmqpError | None:
        """Why the connection must be closed now, if it must."""
        if self.is_open and self._carrier.is_stranger and now >= self._began_at + self._settings.token_s:
            return AmqpError(Condition.UNAUTHORIZED_ACCESS, "No token was put on '$cbs' in time.")
        links = self._carrier.links
        if links.none_until() <= now:
            told = f"The connection was closed by container '{self._container_id}' because it did"
            told += f" not have any active links in the past {round(links.none_s() * 1000)} milliseconds."
            return AmqpError(Condition.CONNECTION_FORCED, told)
        return None

    def idle_links(self, now: float) -> list[AttachedLink]:
        """R-22: links without credit and traffic."""
        idle: list[AttachedLink] = []
        for link in self._carrier.links:
            if not link.is_idle():
                link.used_at = now
            elif now >= link.used_at + self._settings.link_idle_s:
                idle.append(link)
        return idle

    def idle_error(self, link: AttachedLink) -> AmqpError:
        told = f"The link '{link.link.name[:64]}' is force detached: it was idle for "
        told += f"{round(self._settings.link_idle_s)} seconds."
        return AmqpError(Condition.LINK_DETACH_FORCED, self._carrier.tracking.describe(told, link.node.path))

    # -- when it is due

    def expiry(self, now: float) -> float:
        """Of the first token that ends (A-8)."""
        expiry_ms = self._carrier.tokens.earliest_expiry_ms()
        if expiry_ms is None:
            return _NEVER
        left_s = max(0.0, (expiry_ms - self._clock.wall_ms()) / 1000)
        return now + min(left_s, _EXPIRY_LOOK_S)

    def _idle_until(self, link: AttachedLink, now: float) -> float:
        since = link.used_at if link.is_idle() else now
        return since + self._settings.link_idle_s
