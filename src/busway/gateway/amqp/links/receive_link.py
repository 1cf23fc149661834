"""A link on which a client receives messages of a queue or sub-queue (R-1…R-22, R-70…R-72).

Theory of operation. The outlet pulls: it asks `room()` and hands over at most so many messages in one `deliver`,
which writes them as transfers at once. Under peek-lock a transfer is unsettled and its tag is the lock token, so a
disposition needs no table of ours: the tags are the tokens. In receive-and-delete the message is deleted before it
gets here, and the transfer is settled (R-1).

A disposition of the client becomes one settlement of the outlet for the whole run; when it is durable the client
gets its own outcome back, settled (R-16), and each failed one a rejection with the reason (R-17). The outcomes
that receivers write, as verbs of the broker (R-10…R-16):

  accepted                              complete
  released                              release, without a count
  modified, undeliverable-here = true   defer
  modified otherwise                    abandon
  rejected                              dead-letter: `com.microsoft:dead-letter` names reason and description in
                                        its info map; any other condition is itself the reason (R-15)

What else stands in the info map or among the message annotations are application properties to change (R-21).

Room is the least of four things: link credit, session window, unsettled deliveries (one SDK can hold 2,048; the
engine counts all three), and what the socket may still take. Locks outlive the link (R-19): when it goes, only the
outlet is told.

A link that is evicted (its session's lock has ended, its entity or its right is gone) leaves in two steps.
Outcomes whose commit is under way are answered first: they take effect, and a client that heard of the detach
before would have to believe that they did not. Until then nothing is delivered and what else arrives is refused.

A session (X-1…X-13): a client attaches with the source filter `com.microsoft:session-filter`: a string names a
session, null means the next available one. The attach is answered only when the session is held: the same source
with the session id in the filter, in the shape the client used (described or bare), and the end of the session's
lock as a link property.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from busway.amqp.errors import AmqpError, Condition
from busway.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Fields,
    Modified,
    Performative,
    Rejected,
    Released,
    Source,
    TransactionalState,
)
from busway.amqp.types import Array, Char, Described, Long, Symbol
from busway.broker.fragment.outlet import Delivery, Receiver
from busway.gateway.amqp.delivery_runs import DeliveryWriter
from busway.gateway.amqp.error_conditions import amqp_error
from busway.message.message import ticks_of
from busway.model.errors import (
    BadArgument,
    BrokerError,
    NotImplementedByServer,
    OperationCancelled,
    StoreOutcomeUnknown,
)
from busway.model.settlement import Settlement, Verb

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
    from busway.amqp.link import Link
    from busway.broker.fragment.outlet import MessageSession, Outlet
    from busway.broker.namespace.namespace import Queue
    from busway.broker.transaction.transactions import Transaction
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.links.link_host import Alarm, LinkHost

#: First estimate of a delivery's size, before any was seen.
_TYPICAL_BYTES: Final = 1_024
#: A transfer frame beside its payload, roughly.
_FRAME_BYTES: Final = 64
#: R-9: a drain waits so long for a read or a commit. Some clients wait 200 ms for its answer.
_DRAIN_WAIT_S: Final = 0.08


class SettleRun:
    """The deliveries of one disposition, waiting for the outlet's word."""

    __slots__ = ("answer", "deliveries", "owner", "settled")

    def __init__(
        self, owner: ReceiveLink, deliveries: list[OutgoingDelivery], answer: Performative, settled: bool
    ) -> None:
        self.owner = owner
        self.deliveries = deliveries
        self.answer = answer
        #: The client has settled by itself and wants no answer.
        self.settled = settled

    def done(self, failures: list[tuple[int, BrokerError]]) -> None:
        self.owner.run_settled(self, failures)


class ReceiveLink(Receiver):
    """The sending end of a client's receiver."""

    def __init__(
        self,
        host: LinkHost,
        link: Link,
        node: LinkNode,
        queue: Queue,
        outlet: Outlet,
        deletes: bool,
        tag_prefix: bytes,
        now: float,
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right: str | None = "Listen"
        self.used_at = now
        self.deletes = deletes
        #: The Service Bus session that this link holds; None on a plain link.
        self.session_id: str | None = None
        self._queue = queue
        self._outlet = outlet
        self._is_partitioned = outlet.settings.is_partitioned
        self._is_gone = False
        #: Runs of outcomes that wait for the outlet's word.
        self._settling = 0
        #: Why the link will be detached once those runs are answered; None as long as it stays.
        self._leaves_with: AmqpError | None = None
        #: The client's credit was not the bound when the outlet last asked: settlement may make room.
        self._is_starved = False
        self._typical_bytes = _TYPICAL_BYTES
        #: Receive-and-delete: eight random bytes and a counter make the tags.
        self._tag_prefix = tag_prefix
        self._tags = 0
        #: Rings when a drain has waited long enough; None when none waits.
        self._drain_alarm: Alarm | None = None

    # -- from the outlet

    def room(self) -> int:
        if self._is_gone or self._leaves_with is not None:
            return 0
        room = self.link.room()
        if room < self.link.credit():
            self._is_starved = True
            if room == 0 and self.link.session.is_full_of_unsettled():
                self.host.when_output_drains(self)  # settling on another link makes room, too
        # For one at least while there is any: only a full transport tells when it has drained.
        output_room = -(-self.host.output_room_bytes() // self._typical_bytes)
        if output_room < room:
            self.host.when_output_drains(self)
            room = output_room
        return room if room > 0 else 0

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Writes what credit, window and socket still admit and returns the rest."""
        if self._is_gone or self._leaves_with is not None:
            return deliveries
        link = self.link
        left_bytes = self.host.output_room_bytes()
        room = link.room()
        frame_bytes_max = link.session.frame_bytes_max
        sent_bytes = 0
        sent = 0
        run = DeliveryWriter(link, self.deletes, self._is_partitioned)
        try:
            for delivery in deliveries:
                if sent >= room or sent_bytes > left_bytes:
                    break
                tag = self._next_tag() if self.deletes else delivery.token
                size = (
                    run.write(delivery.message, tag, delivery.token, delivery.locked_until_ms) + _FRAME_BYTES
                )
                sent_bytes += size
                sent += 1
                if size > frame_bytes_max:  # it may have taken more than one place of the window
                    run.close()
                    room = sent + link.room()
        finally:
            run.close()
        if sent:
            self._typical_bytes = (self._typical_bytes + sent_bytes // sent) // 2 + 1
            self.host.output_waits(sent_bytes)
        if sent == len(deliveries):
            return []
        self.host.when_output_drains(self)
        return deliveries[sent:]

    def caught_up(self) -> None:
        if not self._is_gone and self._answer_drain():
            self.host.output_waits()

    def evict(self, error: BrokerError) -> None:
        """E-84, E-86, X-10. What is being settled is answered first."""
        if self._is_gone or self._leaves_with is not None:
            return
        self._leaves_with = self._error_of(error)
        self.session_id = None
        if self._settling == 0:
            self.host.end_link(self, self._leaves_with)

    # -- from the connection

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        """The engine refuses transfers on a link that only sends."""

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        if self._leaves_with is not None:
            if not settled:
                self.link.answer(deliveries, Rejected(self._leaves_with))
            return
        if isinstance(state, TransactionalState):
            self._transact(deliveries, state, settled)
            return
        try:
            settlement = settlement_of(state, settled)
        except BrokerError as error:
            self._outlet.flow.refused(error, len(deliveries))
            if not settled:
                self.link.answer(deliveries, Rejected(self._error_of(error)))
            return
        if settlement is None:
            return
        run = SettleRun(self, deliveries, answer_to(state), settled)
        tokens = [delivery.tag for delivery in deliveries]
        self._settling += 1
        self._outlet.settle(tokens, settlement, run.done, self.session_id)

    def _transact(self, deliveries: list[OutgoingDelivery], state: TransactionalState, settled: bool) -> None:
        """TX-1: claimed now, settled with the commit. The answer is the transaction's, with the same outcome. A
        refusal that cannot be told dooms the transaction."""
        run = SettleRun(self, deliveries, TransactionalState(state.txn_id, answer_to(state.outcome)), settled)
        refused: list[tuple[int, BrokerError]] = []
        transaction: Transaction | None = None
        try:
            transaction = self.host.transactions.find(state.txn_id)
            settlement = settlement_of(state.outcome, False)
            if settlement is None:
                raise BadArgument("The delivery state names a transaction, but no outcome.")
            tokens = [delivery.tag for delivery in deliveries]
            refused = transaction.settle(self._outlet, tokens, settlement, self.session_id)
        except BrokerError as error:
            refused = [(index, error) for index in range(len(deliveries))]
        if refused and settled and transaction is not None:
            transaction.doom(refused[0][1])
        self._outlet.flow.answered(len(deliveries), refused)
        if not settled:
            self._answer(run, refused)
            self.host.output_waits()
        self._feed()

    def credit_arrived(self) -> None:
        if self.link.credit() > 0:
            self._outlet.wake(self)
        self._answer_drain()

    def _answer_drain(self) -> bool:
        """R-9: what the queue has, and is just reading or deleting, still comes under this credit; then the rest
        of it is gone. A store that takes its time is not waited for long: what it brings is then not ours to send,
        and goes to the next who asks."""
        if not self.link.drain_requested():
            return False
        if self._outlet.is_fetching(self):
            if self._drain_alarm is None:
                self._drain_alarm = self.host.call_later(_DRAIN_WAIT_S, self._drain_waited_long)
            return False
        self._end_drain()
        return True

    def _drain_waited_long(self) -> None:
        self._drain_alarm = None
        if not self._is_gone and self.link.drain_requested():
            self._end_drain()
            self.host.output_waits()

    def _end_drain(self) -> None:
        self._silence_alarm()
        self.link.drained()

    def _silence_alarm(self) -> None:
        if self._drain_alarm is not None:
            self._drain_alarm.cancel()
            self._drain_alarm = None

    def room_grew(self) -> None:
        if not self._is_gone and self.link.credit() > 0:
            self._outlet.wake(self)

    def is_idle(self) -> bool:
        """R-22: open credit keeps a link, however quiet its queue."""
        return self.link.credit() == 0 and self._settling == 0

    def gone(self) -> None:
        self._is_gone = True
        self._silence_alarm()
        self._outlet.remove_receiver(self)
        self._queue.detach(self)

    # -- outcomes

    def run_settled(self, run: SettleRun, failures: list[tuple[int, BrokerError]]) -> None:
        """The outlet has spoken: everything that it does not name is durable."""
        self._outlet.flow.answered(len(run.deliveries), failures)
        self._settling -= 1
        if self._is_gone:
            return
        unknown = next((error for _, error in failures if isinstance(error, StoreOutcomeUnknown)), None)
        if unknown is not None:
            self.host.end_link(self, self._error_of(unknown))
            return
        if not run.settled:
            self._answer(run, failures)
            self.host.output_waits()
        if self._leaves_with is not None:
            if self._settling == 0:
                self.host.end_link(self, self._leaves_with)
        else:
            self._feed()

    def _feed(self) -> None:
        """Settled deliveries make room."""
        if self._is_starved:
            self._is_starved = False
            self.room_grew()

    def _answer(self, run: SettleRun, failures: list[tuple[int, BrokerError]]) -> None:
        if not failures:
            self.link.answer(run.deliveries, run.answer)
            return
        failed = dict(failures)
        fine = [delivery for index, delivery in enumerate(run.deliveries) if index not in failed]
        if fine:
            self.link.answer(fine, run.answer)
        for index, error in failures:
            self.link.answer([run.deliveries[index]], Rejected(self._error_of(error)))

    def _error_of(self, error: BrokerError) -> AmqpError:
        return amqp_error(error, self.host.tracking, self.node.path)

    def _next_tag(self) -> bytes:
        self._tags += 1
        return self._tag_prefix + self._tags.to_bytes(8, "big")


_COMPLETE: Final = Settlement(Verb.COMPLETE)
_RELEASE: Final = Settlement(Verb.RELEASE)
_ABANDON: Final = Settlement(Verb.ABANDON)
_DEFER: Final = Settlement(Verb.DEFER)
_DEAD_LETTER: Final = Settlement(Verb.DEAD_LETTER)

_REASON: Final = "DeadLetterReason"
_DESCRIPTION: Final = "DeadLetterErrorDescription"


def settlement_of(state: object, settled: bool) -> Settlement | None:
    """What the receiver wants done; None for a state that ends nothing. Raises BadArgument."""
    if isinstance(state, Accepted):
        return _COMPLETE
    if isinstance(state, Modified):
        return _modified(state)
    if isinstance(state, Rejected):
        return _rejected(state.error)
    if isinstance(state, Released):
        return _RELEASE
    # A receiver that settles without an outcome has forgotten the delivery and asked for nothing.
    return _RELEASE if settled else None


def answer_to(state: object) -> Performative:
    """The outcome that tells the receiver it was done: the same type, bare."""
    if isinstance(state, Modified):
        return Modified(state.delivery_failed, state.undeliverable_here, None)
    if isinstance(state, Rejected):
        return Rejected()
    if isinstance(state, Accepted):
        return ACCEPTED
    return RELEASED


def _modified(state: Modified) -> Settlement:
    defers = state.undeliverable_here is True
    if not state.message_annotations:
        return _DEFER if defers else _ABANDON
    return Settlement(Verb.DEFER if defers else Verb.ABANDON, _properties(state.message_annotations))


def _rejected(error: AmqpError | None) -> Settlement:
    if error is None:
        return _DEAD_LETTER
    if error.condition != Condition.DEAD_LETTER:
        return Settlement(
            Verb.DEAD_LETTER,
            dead_letter_reason=str(error.condition),
            dead_letter_description=error.description,
        )
    properties = _properties(error.info) if error.info else {}
    reason = _text(properties.pop(_REASON, None), _REASON)
    description = _text(properties.pop(_DESCRIPTION, None), _DESCRIPTION)
    return Settlement(Verb.DEAD_LETTER, properties or None, reason, description)


def _properties(given: dict[object, object]) -> dict[str, object]:
    """Names as text, values simple (M-34)."""
    properties: dict[str, object] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise BadArgument("The name of a property to modify must be a string.")
        if not _is_simple(value):
            raise BadArgument("The value of a property to modify cannot be a map, a list or an array.")
        properties[str(name)] = value
    return properties


def _is_simple(value: object) -> bool:
    while isinstance(value, Described):
        value = value.value
    return not isinstance(value, dict | list | Array)


def _text(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    raise BadArgument(f"{name} must be a string.")


SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
#: By which .NET asks for a session that several receivers share and take over from one another.
SHARED_SESSION_FILTER: Final = Symbol("com.microsoft:non-exclusive-session-filter:list")
_LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
_TIMEOUT: Final = Symbol("com.microsoft:timeout")
#: X-7: the wait when the client names none, and the longest wait it gets.
TIMEOUT_S_MAX: Final = 65.0


class SessionWish:
    """The session a client asks for."""

    __slots__ = ("_descriptor", "_is_described", "session_id")

    def __init__(self, session_id: str | None, descriptor: object = None, is_described: bool = False) -> None:
        #: None: the next available one.
        self.session_id = session_id
        self._descriptor = descriptor
        self._is_described = is_described

    def answer(self, source: Source, session_id: str) -> Source:
        """The client's source with the session that it got."""
        value: object = Described(self._descriptor, session_id) if self._is_described else session_id
        filters = {} if source.filter is None else dict(source.filter)
        return replace(source, filter={**filters, SESSION_FILTER: value})


def session_wish(source: Source | None, characters_max: int) -> SessionWish | None:
    """What the source's filter asks for; None when it asks for no session. Raises BadArgument (X-3), and
    NotImplementedByServer for a session that is not one receiver's alone."""
    if source is None or not source.filter:
        return None
    if SHARED_SESSION_FILTER in source.filter:
        raise NotImplementedByServer(
            f"A session has one receiver here: the filter '{SHARED_SESSION_FILTER}', by which several share it, is"
            f" not implemented. Accept the session with '{SESSION_FILTER}'."
        )
    if SESSION_FILTER not in source.filter:
        return None
    value: object = source.filter[SESSION_FILTER]
    descriptor: object = None
    is_described = isinstance(value, Described)
    if isinstance(value, Described):
        descriptor, value = value.descriptor, value.value
    if value is not None and (not isinstance(value, str) or isinstance(value, Symbol | Char)):
        raise BadArgument("The session filter must be a string, or null for the next available session.")
    if value is not None and len(value) > characters_max:
        raise BadArgument(f"A session id has at most {characters_max} characters.")
    return SessionWish(value, descriptor, is_described)


def wait_s(properties: Fields | None) -> float:
    """How long the client is willing to wait for a session (X-7)."""
    given = None if properties is None else properties.get(_TIMEOUT)
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        return TIMEOUT_S_MAX
    return min(given / 1000, TIMEOUT_S_MAX)


def lock_properties(locked_until_ms: int) -> Fields:
    """The link properties of the answering attach."""
    return {_LOCKED_UNTIL: Long(ticks_of(locked_until_ms))}


class SessionWait(Protocol):
    """The task that waits for the session."""

    def cancel(self) -> bool: ...


class SessionReceiveLink(ReceiveLink):
    """A receiver of one session, or one that waits for it. The session's lock is that of its messages (X-13)."""

    _waiting: SessionWait | None = None
    _session: MessageSession | None = None

    def wait_for(self, waiting: SessionWait) -> None:
        self._waiting = waiting

    def hold(self, session: MessageSession) -> bool:
        """False when the link went while it waited: the session is free again at once."""
        self._waiting = None
        if self._is_gone:
            session.close()
            return False
        self._session = session
        self.session_id = session.session_id
        return True

    def cancel_wait(self) -> None:
        """ERR-25: the connection is being closed; whoever still waits for a session may try again elsewhere."""
        if self._session is None:
            self.evict(OperationCancelled())

    def is_idle(self) -> bool:
        return self._session is not None and super().is_idle()

    def gone(self) -> None:
        """X-11: the session is free at once, its unsettled messages return without a count."""
        self._is_gone = True
        self._silence_alarm()
        if self._waiting is not None:
            self._waiting.cancel()
        if self._session is not None:
            self._session.close()
        self._queue.detach(self)
