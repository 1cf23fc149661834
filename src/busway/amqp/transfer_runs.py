"""Runs of transfers, read and written without an object for each.

Theory of operation, reading. Nearly every transfer is a whole delivery in one frame: handle, delivery id and tag,
then one of a few byte strings that its client library always writes (`TransferForm`), then the payload. `take_usual`
steps over such frames of one link and notes where each lies. Whatever is not as usual it leaves where it lies: the
connection then takes that frame its own way, and that way alone words errors, writes flows, puts parts together and
knows transactions. So the loop also ends before a frame that would use up the link's credit or the session's window.

What is noted is an `ArrivedRun`, which the owner of a link asks for (`Link.takes_runs`) and gets instead of a list
of deliveries. When something unusual follows on the same link within the same read, the run becomes such a list
after all, as if there had never been one (`ArrivedRun.spill`).

Writing. Of the transfers of a run on one link only three things differ up to their payload: the size of the frame,
the delivery id and the tag. `TransferWriter.begin` writes these between bytes that are made once for the run, the
same ones that `encode_transfer_prefix` and a frame's head are made of. Whoever calls it then writes the payload to
`out`, exactly as many bytes as it has named. What a run means for credit, windows and settlement is booked by the
link (`Link.begin_run`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.byte_writer import BytesWriter, i32, i64, read_i64_be, write_i32_be, write_i64_be
from busway.amqp.decode import FRAME_HEAD_BYTES
from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
from busway.amqp.performatives import (
    decode_transfer,
    encode_transfer_prefix,
    known_transfer,
)

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.amqp.session import Session

_MASK: Final = 0xFFFF_FFFF
#: So much can be looked at without asking where the frame ends: its head, a list's head of either width, two numbers,
#: the head of a tag.
RUN_BYTES_MIN: Final = 32
#: The second half of a frame's head without its channel: two words long, of type AMQP.
_HEAD: Final = 0x0200_0000
_LIST8: Final = 0x0053_14C0
_LIST32: Final = 0x0053_14D0
#: Of a list32 that could be a list8.
_LIST_BYTES_MAX: Final = 255
_BINARY8: Final = 0xA0
_TAG_BYTES_MAX: Final = 128
#: Bytes that a uint takes with its constructor; 0 for every other constructor.
_UINT_BYTES: Final = bytes({0x43: 1, 0x52: 2, 0x70: 5}.get(code, 0) for code in range(256))

#: Of one delivery: where the body of its frame begins, its payload, its end; its id, and above that whether it is
#: settled.
_PLACE_BYTES: Final = 20
_SETTLED: Final = 1 << 32


# --- reading


class TransferForm:
    """How a client library ends its transfers: the bytes behind the tag of a list with so many fields, and what they
    say. Only such as say that this is all of a message of format 0, and not part of a transaction."""

    __slots__ = ("fields", "settled", "tail")

    def __init__(self, tail: bytes, fields: int, settled: bool) -> None:
        self.tail = tail
        self.fields: i64 = fields
        self.settled: i64 = _SETTLED if settled else 0

    def is_at(self, data: bytes, at: i64, end: i64, fields: i64) -> bool:
        tail = self.tail
        size: i64 = len(tail)
        if end - at != size or fields != self.fields:
            return False
        place: i64 = 0
        while place < size and data[at + place] == tail[place]:
            place += 1
        return place == size


#: Of a link whose peer has not shown any yet.
NO_FORM: Final = TransferForm(b"", -1, False)


class ArrivedRun:
    """Usual deliveries of one link in one read, in order, found by their number."""

    __slots__ = ("_noted", "_places", "count", "data", "spilt")

    def __init__(self, data: bytes) -> None:
        #: The read that they lie in.
        self.data = data
        self.count = 0
        #: Where they are when the run has been given up.
        self.spilt: list[IncomingDelivery] = []
        self._noted = BytesWriter()
        self._places = b""

    def note(self, body: i64, payload_at: i64, end: i64, delivery_id: i64) -> None:
        noted = self._noted
        write_i32_be(noted, i32(body))
        write_i32_be(noted, i32(payload_at))
        write_i32_be(noted, i32(end))
        write_i64_be(noted, delivery_id)
        self.count += 1

    def end_notes(self) -> None:
        """The read is worked through, or this is all that counts: now they can be found."""
        self._places = self._noted.getvalue()

    def payload_at(self, number: i64) -> i64:
        return read_i64_be(self._places, number * _PLACE_BYTES + 4) >> 32

    def payload_end(self, number: i64) -> i64:
        return read_i64_be(self._places, number * _PLACE_BYTES + 4) & _MASK

    def answer_id(self, number: i64) -> i64:
        """The delivery's id; -1 when the client wants no outcome (S-3)."""
        noted = read_i64_be(self._places, number * _PLACE_BYTES + 12)
        return -1 if noted & _SETTLED else noted

    def delivery(self, number: int) -> IncomingDelivery:
        """One of them as everybody else gets it."""
        body = read_i64_be(self._places, number * _PLACE_BYTES) >> 32
        end = self.payload_end(number)
        transfer, payload_at = decode_transfer(self.data, body, end)
        assert transfer.delivery_id is not None
        assert transfer.delivery_tag is not None
        settled = transfer.settled is True
        payload = self.data[payload_at:end]
        return IncomingDelivery(transfer.delivery_id, transfer.delivery_tag, 0, settled, payload, None)

    def spill(self) -> list[IncomingDelivery]:
        """All of them go into the list, and none is left here."""
        self.end_notes()
        for number in range(self.count):
            self.spilt.append(self.delivery(number))
        self.count = 0
        return self.spilt


def take_usual(sessions: dict[int, Session], data: bytes, offset: int, end: int, frame_bytes_max: int) -> int:
    """Takes usual transfers from `offset` on, of whatever links take runs. Returns where it ended: at something else,
    or at a frame that is not complete. Less than RUN_BYTES_MIN need not be shown to it."""
    at = offset
    while end - at >= RUN_BYTES_MIN:
        link = _link_at(sessions, data, at)
        after = at if link is None else _take_run(link, data, at, end, frame_bytes_max)
        if after == at:
            break
        at = after
    return at


def _link_at(sessions: dict[int, Session], data: bytes, at: i64) -> Link | None:
    """The link of the transfer at `at`, if it is one and the link takes runs."""
    form = read_i64_be(data, at + 8) >> 32
    if form != _LIST8 and form != _LIST32:
        return None
    session = sessions.get(read_i64_be(data, at) & 0xFFFF)
    if session is None:
        return None
    link = session.links.get(_uint(data, at + (14 if form == _LIST8 else 20)))
    return link if link is not None and link.takes_runs else None


def _take_run(link: Link, data: bytes, offset: i64, end: i64, frame_bytes_max: i64) -> i64:
    """As `take_usual`, of the link whose transfer lies at `offset`."""
    room: i64 = link.run_room()
    payload_bytes_max: i64 = link.delivery_bytes_max
    handle: i64 = link.peer_handle
    head = _HEAD | read_i64_be(data, offset) & 0xFFFF
    form = link.form
    run: ArrivedRun | None = None
    taken: i64 = 0
    at = offset
    while taken < room and end - at >= RUN_BYTES_MIN:
        start = read_i64_be(data, at)
        size = start >> 32
        stop = at + size
        if start & _MASK != head or size < RUN_BYTES_MIN or size > frame_bytes_max or stop > end:
            break
        place = _fields_at(data, at)
        if place < 0 or _uint(data, place) != handle:
            break
        list_end = _list_end(data, at)
        id_at = place + _UINT_BYTES[data[place]]
        delivery_id = _uint(data, id_at)
        tag_at = id_at + _UINT_BYTES[data[id_at]]
        if delivery_id < 0 or data[tag_at] != _BINARY8 or data[tag_at + 1] > _TAG_BYTES_MAX:
            break
        tail_at = tag_at + 2 + data[tag_at + 1]
        if tail_at > list_end or list_end > stop or stop - list_end > payload_bytes_max:
            break
        if not form.is_at(data, tail_at, list_end, data[place - 1]):
            form = _form_at(data, tail_at, list_end, data[place - 1])
            link.form = form
            if form.fields < 0:
                break
        if run is None:
            run = link.run_of(data)
        run.note(at + 8, list_end, stop, delivery_id | form.settled)
        taken += 1
        at = stop
    link.run_taken(taken)
    return at


def _fields_at(data: bytes, at: i64) -> i64:
    """Where the fields of the transfer begin whose frame lies at `at`; the byte before says how many there are. -1
    when it is no transfer, or its list is a long one."""
    start = read_i64_be(data, at + 8)
    if start >> 32 == _LIST8:
        return at + 14
    if start >> 32 != _LIST32 or start & _MASK > _LIST_BYTES_MAX or read_i64_be(data, at + 12) & 0xFFFF_FF00:
        return -1
    return at + 20


def _list_end(data: bytes, at: i64) -> i64:
    """Where a list ends for which `_fields_at` has found fields."""
    start = read_i64_be(data, at + 8)
    if start >> 32 == _LIST8:
        return at + 13 + (start >> 24 & 0xFF)
    return at + 16 + (start & _MASK)


def _uint(data: bytes, at: i64) -> i64:
    """The uint at `at`; -1 when something else stands there. There are bytes enough on both sides."""
    code = data[at]
    if code == 0x70:
        return read_i64_be(data, at - 3) & _MASK
    if code == 0x52:
        return data[at + 1]
    return 0 if code == 0x43 else -1


def _form_at(data: bytes, at: i64, end: i64, fields: i64) -> TransferForm:
    """The form that ends so, if one is known and says nothing unusual; else `NO_FORM`."""
    seen = known_transfer(data[at:end], fields)
    if seen is None or seen.message_format or seen.more or seen.aborted:
        return NO_FORM
    return TransferForm(data[at:end], fields, seen.settled is True)


# --- writing

_ID_BYTES: Final = 4
#: Where a delivery id lies in what `encode_transfer_prefix` writes: behind descriptor, sizes and handle.
_ID_AT: Final = 12


class TransferWriter:
    """Of one run: equal handles, tags of equal length, all settled or all not."""

    __slots__ = (
        "_after_id", "_before_id", "_head", "_link", "_tail", "count", "head_bytes", "next_id", "out", "settled",
    )  # fmt: skip

    def __init__(self, link: Link, tag_bytes: int, settled: bool) -> None:
        session = link.session
        prefix = encode_transfer_prefix(link.handle, 0, bytes(tag_bytes), 0, settled, False)
        tag_at = _ID_AT + _ID_BYTES + 2
        self._link = link
        self._head: i64 = _HEAD | session.channel
        self._before_id = prefix[:_ID_AT]
        self._after_id = prefix[_ID_AT + _ID_BYTES : tag_at]
        self._tail = prefix[tag_at + tag_bytes :]
        self.settled = settled
        #: Of a frame without its payload.
        self.head_bytes = FRAME_HEAD_BYTES + len(prefix)
        #: Of the delivery that is written next.
        self.next_id = session.next_delivery_id
        self.count = 0
        self.out = BytesWriter()

    def begin(self, tag: bytes, payload_bytes: int) -> None:
        """A frame up to its payload."""
        out = self.out
        delivery_id = self.next_id
        size: i64 = self.head_bytes + payload_bytes
        number: i64 = delivery_id
        write_i64_be(out, size << 32 | self._head)
        out.write(self._before_id)
        write_i32_be(out, i32(number))
        out.write(self._after_id)
        out.write(tag)
        out.write(self._tail)
        self.next_id = (delivery_id + 1) & _MASK
        self.count += 1
        if not self.settled:
            link = self._link
            link.session.books.unsettled[delivery_id] = OutgoingDelivery(link, delivery_id, tag, False)
