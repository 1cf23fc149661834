"""A link on which a client reads the events of one partition (H-20…H-26).

Theory of operation. The link pulls: whenever there is credit, window and output room it asks its cursor for the next
run and writes it as settled transfers with empty tags, cut straight out of the stored chunk. Nothing is remembered of
what was sent and no outcome is ever looked at (H-21). When the cursor has nothing at hand it wakes the link later;
credit, window and a drained socket wake it too. So a link is either waiting for one of them or writing.

A run that the peer's window cut short is kept, and goes on first. It is one range of one chunk, never more.

A reader that asked for it is told about its partition with every event (H-26): by delivery annotations that stand
before the record, or beside those that the sender has given to it.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from busway.amqp.decode import skip_value
from busway.amqp.encode import append_map, encode_value
from busway.amqp.sections import DELIVERY_ANNOTATIONS, compound_start
from busway.amqp.types import Long, Symbol, Timestamp
from busway.gateway.amqp.error_conditions import amqp_error
from busway.model.errors import BrokerError
from busway.streams.cursor import Cursor, EventReader

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
    from busway.amqp.link import Link
    from busway.clock import Clock
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.links.link_host import Alarm, LinkHost
    from busway.streams.cursor import EventRun
    from busway.streams.event_hub import EventHub
    from busway.streams.partition_log import LogInfo, PartitionLog

#: R-9: a drain waits so long for a read. Some clients wait 200 ms for its answer.
_DRAIN_WAIT_S: Final = 0.08
#: A transfer frame beside its payload.
_FRAME_BYTES: Final = 42
RUNTIME_METRIC: Final = Symbol("com.microsoft:enable-receiver-runtime-metric")
_SECTION: Final = b"\x00\x53\x71"
_LAST_NUMBER: Final = Symbol("last_enqueued_sequence_number")
_LAST_OFFSET: Final = Symbol("last_enqueued_offset")
_LAST_TIME: Final = Symbol("last_enqueued_time_utc")
_RETRIEVED: Final = Symbol("runtime_info_retrieval_time_utc")


class EventReceiveLink(EventReader):
    """The sending end of a client's reader."""

    def __init__(
        self,
        host: LinkHost,
        link: Link,
        node: LinkNode,
        hub: EventHub,
        log: PartitionLog,
        group: str,
        clock: Clock,
        now: float,
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right: str | None = "Listen"
        self.used_at = now
        #: H-26: each event says how far the partition is.
        self.tells_metric = False
        self._hub = hub
        self.log = log
        self._group = group
        self._clock = clock
        self._cursor: Cursor | None = None
        self._is_gone = False
        self._is_pumping = False
        #: Rings when a drain has waited long enough; None when none waits.
        self._drain_alarm: Alarm | None = None
        #: What is left of a run that did not fit: the chunk's bytes, where its records begin, and the next of them.
        self._data = b""
        self._bounds: list[int] = []
        self._next = 0
        #: H-26: it says already how far the partition is.
        self._has_metric = False
        #: What the connection was told of it, and of what the cursor keeps.
        self._kept_bytes = 0

    def begin(self, from_number: int) -> None:
        """Opens the cursor. Raises ReceiverStolen, TooManyReaders (H-23…H-25), EntityDisabled, ServerBusy."""
        cursor = self.log.cursor(from_number, self)
        try:
            self.log.readers.add(self._group, self)
        except BrokerError:
            cursor.close()
            raise
        self._cursor = cursor

    # -- from the log

    def wake(self) -> None:
        self._pump()
        self._answer_drain()

    def evict(self, error: BrokerError) -> None:
        if not self._is_gone:
            self.host.end_link(self, amqp_error(error, self.host.tracking, self.node.path))

    # -- from the connection

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        """The engine refuses transfers on a link that only sends."""

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """Everything is settled already (H-21)."""

    def credit_arrived(self) -> None:
        self._pump()
        self._answer_drain()

    def room_grew(self) -> None:
        self._pump()
        self._answer_drain()

    def is_idle(self) -> bool:
        """R-22: open credit keeps a link, however quiet its partition."""
        return self.link.credit() == 0

    def gone(self) -> None:
        self._is_gone = True
        self._data = b""
        self._bounds = []
        self._next = 0
        self._silence_alarm()
        if self._cursor is not None:
            self._cursor.close()
            self.log.readers.remove(self._group, self)
        self._note_kept()
        self._hub.detach(self)

    # -- events

    def _pump(self) -> None:
        """Writes what can be written now. A cursor may wake its reader while it is asked: once is enough."""
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._send_some():
                pass
        finally:
            self._is_pumping = False
        self._note_kept()

    def _note_kept(self) -> None:
        cursor = self._cursor
        kept_bytes = len(self._data)
        if cursor is not None and not cursor.is_closed:
            kept_bytes += cursor.kept_bytes()
        if kept_bytes != self._kept_bytes:
            change = kept_bytes - self._kept_bytes
            self._kept_bytes = kept_bytes
            self.host.keep(change)

    def _send_some(self) -> bool:
        """False when there is no room, or nothing at hand: somebody will call again."""
        room = 0 if self._is_gone else self.link.room()
        if room <= 0:
            return False
        cursor = self._cursor
        has_at_hand = len(self._bounds) > 0 or (cursor is not None and cursor.has_at_hand())
        left_bytes = self.host.output_room_bytes(has_at_hand)
        if left_bytes <= 0:
            self.host.when_output_drains(self)
            return False
        if not self._bounds:
            run = None if cursor is None else cursor.next_run(room, left_bytes)
            if run is None:
                return False
            self._take(run)
        self._write()
        return True

    def _take(self, run: EventRun) -> None:
        chunk = run.chunk
        bounds = [chunk.start(run.first)]
        for index in range(run.first, run.end):
            bounds.append(chunk.end(index))
        self._data = chunk.data
        self._bounds = bounds
        self._next = 0
        self._has_metric = False
        if self.tells_metric and any([has_annotations(chunk.data, at) for at in bounds[:-1]]):
            self._put_metric_inside()

    def _put_metric_inside(self) -> None:
        """Some records have delivery annotations already, and a message has one such section."""
        metric = runtime_metric(self.log.info(), self._clock.wall_ms())
        bounds = self._bounds
        records = [
            with_metric(metric, self._data[bounds[at] : bounds[at + 1]]) for at in range(len(bounds) - 1)
        ]
        self._bounds = [0, *accumulate(map(len, records))]
        self._data = b"".join(records)
        self._has_metric = True

    def _write(self) -> None:
        bounds = self._bounds
        first = self._next
        front = b""
        if self.tells_metric and not self._has_metric:
            front = runtime_metric(self.log.info(), self._clock.wall_ms())
        sent_to = self.link.send_settled_run(self._data, bounds, first, front)
        per_event = _FRAME_BYTES + len(front)
        size_bytes = bounds[sent_to] - bounds[first] + (sent_to - first) * per_event
        self._next = sent_to
        if sent_to == len(bounds) - 1:
            self._data = b""
            self._bounds = []
        self.host.output_waits(size_bytes)

    def _answer_drain(self) -> None:
        """R-9: what is there still comes under this credit; then the rest of it is gone. A store that takes its time
        is not waited for long: what it brings comes under the next credit."""
        if self._is_gone or not self.link.drain_requested() or self._is_held_up():
            return
        if self._is_fetching():
            if self._drain_alarm is None:
                self._drain_alarm = self.host.call_later(_DRAIN_WAIT_S, self._drain_waited_long)
            return
        self._end_drain()

    def _is_held_up(self) -> bool:
        """There is something to send, and the peer does not take it: the window or the socket is full."""
        link = self.link
        if link.credit() == 0 or self._cursor is None:
            return False
        return link.room() <= 0 or self.host.output_room_bytes() <= 0 or len(self._bounds) > 0

    def _is_fetching(self) -> bool:
        return self._cursor is not None and self.link.credit() > 0 and self._cursor.is_fetching()

    def _drain_waited_long(self) -> None:
        self._drain_alarm = None
        if not self._is_gone and self.link.drain_requested() and not self._is_held_up():
            self._end_drain()

    def _end_drain(self) -> None:
        self._silence_alarm()
        self.link.drained()
        self.host.output_waits()

    def _silence_alarm(self) -> None:
        if self._drain_alarm is not None:
            self._drain_alarm.cancel()
            self._drain_alarm = None


def runtime_metric(info: LogInfo, now_ms: int) -> bytes:
    """The encoded section."""
    return _SECTION + encode_value(
        {
            _LAST_NUMBER: Long(info.last_number),
            _LAST_OFFSET: info.last_offset,
            _LAST_TIME: Timestamp(info.last_at_ms),
            _RETRIEVED: Timestamp(now_ms),
        }
    )


def has_annotations(data: bytes, at: int) -> bool:
    """Whether the record there begins with delivery annotations of its sender."""
    return data[at + 2] == DELIVERY_ANNOTATIONS


def with_metric(metric: bytes, record: bytes) -> bytes:
    """The record with the metric in it, or before it."""
    if not has_annotations(record, 0):
        return metric + record
    own_end = skip_value(record, len(_SECTION), len(record))
    own_count, own_at = compound_start(record, len(_SECTION), own_end)
    count, at = compound_start(metric, len(_SECTION), len(metric))
    out = bytearray(_SECTION)
    append_map(out, record[own_at:own_end] + metric[at:], own_count + count)
    return bytes(out) + record[own_end:]
