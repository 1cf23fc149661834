"""The same bytes given to our codec, to the official Python client's and to Proton's: they agree."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import proton
import pytest
from azure.servicebus._pyamqp import _decode as client_decode
from azure.servicebus._pyamqp import _encode as client_encode
from azure.servicebus._pyamqp import endpoints as client_endpoints
from azure.servicebus._pyamqp import error as client_error
from azure.servicebus._pyamqp import message as client_message
from azure.servicebus._pyamqp import outcomes as client_outcomes
from azure.servicebus._pyamqp import performatives as client_frames
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.decode import decode_value
from busway.amqp.encode import encode_value
from busway.amqp.errors import AmqpError
from busway.amqp.performatives import (
    ACCEPTED,
    TABLE,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Header,
    Modified,
    Open,
    Properties,
    Rejected,
    Released,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    decode_disposition,
    decode_flow,
    decode_performative,
    decode_transfer,
    encode_performative,
)
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Array, Decimal, Described, Float, Int, Symbol, Timestamp, ULong
from tests.harness.examples import examples_of
from tests.unit.amqp.amqp_values import (
    array_items,
    binaries,
    characters,
    integers,
    same,
    symbols,
    texts,
    uuids,
)


def _compounds(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=5) | st.dictionaries(st.text("abc", max_size=9), inner, max_size=5)


# ---- values: the official client

_client_primitives = st.one_of(
    st.none(), st.booleans(), integers, st.floats(allow_nan=False), uuids, binaries, texts, symbols
)
#: Not empty: the client's decoder loses its place in an empty array.
_client_arrays = st.sampled_from(
    sorted(set(array_items) - {0x73, 0x74, 0x84, 0x94, 0xD0, 0xD1, 0x72, 0x82})
).flatmap(lambda code: st.builds(Array, st.lists(array_items[code], min_size=1, max_size=5), st.just(code)))
_client_values = st.recursive(
    st.one_of(_client_primitives, _client_arrays),
    _compounds,
    max_leaves=15,
)


def as_client(value: Any) -> Any:
    """What the official client makes of a value: texts as bytes, arrays as lists, numbers without types."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Array):
        return [as_client(item) for item in value.items]
    if isinstance(value, list):
        return [as_client(item) for item in value]
    if isinstance(value, dict):
        return {as_client(key): as_client(item) for key, item in value.items()}
    if isinstance(value, Float):
        return struct.unpack(">f", struct.pack(">f", value))[0]
    return value


@given(_client_values)
@settings(max_examples=examples_of(300), deadline=None)
def test_the_official_client_reads_our_values(value: Any) -> None:
    """M-28: azure-servicebus decodes what we encode to the same value, and consumes it to the end."""
    raw = memoryview(encode_value(value))
    left, decoded = client_decode._DECODE_BY_CONSTRUCTOR[raw[0]](raw[1:])
    assert len(left) == 0
    expected = as_client(value)
    assert decoded == expected or (decoded != decoded and expected != expected)


#: The client encodes a plain number as an int of 32 bits.
_client_writable = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**31), 2**31 - 1), st.floats(), texts, binaries, uuids
    ),
    _compounds,
    max_leaves=15,
)


@given(_client_writable)
@settings(max_examples=examples_of(300), deadline=None)
def test_we_read_the_values_of_the_official_client(value: Any) -> None:
    """M-28: we decode what azure-servicebus encodes to the same value."""
    raw = bytearray()
    client_encode.encode_value(raw, value)
    decoded, after = decode_value(bytes(raw))
    assert after == len(raw)
    assert same(_plain(decoded), value)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return int(value) if isinstance(value, Int) else value


# ---- values: Proton

_proton_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        integers,
        st.floats(allow_nan=False),
        characters,
        uuids,
        binaries,
        texts,
        symbols,
    ),
    _compounds,
    max_leaves=15,
)
_PROTON_TYPES = {
    "UByte": proton.ubyte, "UShort": proton.ushort, "UInt": proton.uint, "ULong": proton.ulong, "Byte": proton.byte,
    "Short": proton.short, "Int": proton.int32, "Long": int, "Timestamp": proton.timestamp, "Float": proton.float32,
    "Char": proton.char, "Symbol": proton.symbol,
}  # fmt: skip


def as_proton(value: Any) -> Any:
    if isinstance(value, list):
        return [as_proton(item) for item in value]
    if isinstance(value, dict):
        return {key: as_proton(item) for key, item in value.items()}
    make = _PROTON_TYPES.get(type(value).__name__)
    return value if make is None else make(value)


@given(_proton_values)
@settings(max_examples=examples_of(200), deadline=None)
def test_proton_reads_our_values_and_we_read_its(value: Any) -> None:
    """M-28: Proton decodes our bytes to an equal value, and its own bytes come back with all types."""
    data = proton.Data()
    raw = encode_value(value)
    assert data.decode(raw) == len(raw)
    data.rewind()
    data.next()
    assert data.get_object() == as_proton(value)
    written = proton.Data()
    written.put_object(as_proton(value))
    decoded, _ = decode_value(bytes(written.encode()))
    assert same(decoded, value)


# ---- frames


def client_body(frame: Any, frame_type: bytes = b"\x00") -> bytes:
    _, body = client_encode.encode_frame(frame, frame_type)
    return bytes(body or b"")


def read(frame: Any) -> Any:
    body = client_body(frame)
    made, at = decode_performative(body, 0, len(body))
    assert at == len(body)
    return made


def test_we_read_the_frames_of_the_official_client() -> None:
    """Open, begin, attach, detach and sasl-init as azure-servicebus writes them."""
    opened = read(
        client_frames.OpenFrame(
            "SBSender-1", "localhost", 1_048_576, 65_535, None, None, None, None, None, {"product": "x"}
        )
    )
    assert opened == Open("SBSender-1", "localhost", 1_048_576, 65_535, properties={"product": "x"})
    begun = read(client_frames.BeginFrame(None, 0, 65_536, 65_536, 0xFFFF_FFFF, None, None, None))
    assert begun == Begin(None, 0, 65_536, 65_536, 0xFFFF_FFFF)
    detached = read(client_frames.DetachFrame(3, True, None))
    assert detached == Detach(3, True)
    init = read(client_frames.SASLInit("ANONYMOUS", b"", "localhost"))
    assert init == SaslInit("ANONYMOUS", b"", "localhost")


def test_we_read_an_attach_of_the_official_client() -> None:
    """Source with a session filter, address sent as bytes, link properties."""
    make_source: Any = client_endpoints.Source
    make_target: Any = client_endpoints.Target
    source = make_source(address="amqps://host/q", filters={b"com.microsoft:session-filter": None})
    made = read(
        client_frames.AttachFrame(
            name="link", handle=3, role=True, send_settle_mode=0, rcv_settle_mode=1, source=source,
            target=make_target(address=b"target"), unsettled=None, incomplete_unsettled=False,
            initial_delivery_count=None, max_message_size=0, offered_capabilities=None,
            desired_capabilities=[b"com.microsoft:x"], properties={b"com.microsoft:timeout": 65_000},
        )
    )  # fmt: skip
    assert isinstance(made, Attach)
    assert (made.name, made.handle, made.role, made.snd_settle_mode, made.rcv_settle_mode) == (
        "link",
        3,
        True,
        0,
        1,
    )
    assert isinstance(made.source, Source)
    assert made.source.address == "amqps://host/q"
    assert made.source.filter == {"com.microsoft:session-filter": None}
    assert isinstance(made.target, Target)
    assert made.max_message_size == 0
    assert made.desired_capabilities == ["com.microsoft:x"]
    assert made.properties == {"com.microsoft:timeout": 65_000}


@pytest.mark.parametrize("delivery_id", [0, 200, 70_000])
@pytest.mark.parametrize("message_format", [0, 0x80013700])
def test_we_read_a_transfer_of_the_official_client(delivery_id: int, message_format: int) -> None:
    """The fast reader understands its flags of two bytes, the first time and after."""
    frame = client_frames.TransferFrame(
        handle=3,
        delivery_id=delivery_id,
        delivery_tag=b"\x00\x00\x00\x07",
        message_format=message_format,
        settled=False,
        more=True,
        payload=b"payload",
    )
    body = client_body(frame)
    for _ in range(2):
        made, at = decode_transfer(body, 0, len(body))
        assert body[at:] == b"payload"
        assert (made.handle, made.delivery_id, made.delivery_tag) == (3, delivery_id, b"\x00\x00\x00\x07")
        assert (made.message_format, made.settled, made.more, made.state) == (
            message_format,
            False,
            True,
            None,
        )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (client_outcomes.Accepted(), ACCEPTED),
        (client_outcomes.Released(), Released()),
        (client_outcomes.Modified(True, False, None), Modified(True, False)),
        (client_outcomes.Modified(True, True, {b"a": b"b"}), Modified(True, True, {"a": b"b"})),
        (
            client_outcomes.Rejected(
                client_error.AMQPError(
                    condition=b"com.microsoft:dead-letter", description="why", info={b"k": "v"}
                )
            ),
            Rejected(AmqpError("com.microsoft:dead-letter", "why", {"k": "v"})),
        ),
    ],
)
def test_we_read_a_disposition_of_the_official_client(theirs: Any, ours: Any) -> None:
    """Complete, release, abandon, defer and dead-letter, by both readers."""
    body = client_body(client_frames.DispositionFrame(True, 300, 301, False, theirs, None))
    for _ in range(2):
        made = decode_disposition(body, 0, len(body))
        assert (made.role, made.first, made.last, made.settled, made.state) == (True, 300, 301, False, ours)


def test_we_read_a_flow_of_the_official_client() -> None:
    """Credit and drain."""
    body = client_body(client_frames.FlowFrame(1, 65_536, 3, 65_536, 3, 0, 100, None, True, None, None))
    made = decode_flow(body, 0, len(body))
    assert (made.next_incoming_id, made.handle, made.delivery_count, made.link_credit) == (1, 3, 0, 100)
    assert (made.drain, made.echo, made.available) == (True, False, None)


@pytest.mark.parametrize(
    "ours",
    [
        Open("c", "h", 65_536, 4999, 120_000, properties={"product": "busway"}),
        Begin(1, 1, 5000, 65_536, 255),
        Attach(
            "l",
            3,
            False,
            0,
            1,
            Source("q"),
            Target("q"),
            initial_delivery_count=0,
            max_message_size=2**64 - 1,
        ),
        Flow(1, 2, 3, 4, 5, 6, 7),
        Transfer(1, 2, b"t", 0, False),
        Disposition(False, 1, 2, True, ACCEPTED),
        Disposition(False, 1, 2, True, Rejected(AmqpError("amqp:not-found", "x"))),
        Detach(3, True, AmqpError("amqp:not-found", "gone")),
        SaslOutcome(0, b"Welcome!"),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_the_official_client_reads_our_frames(ours: Any) -> None:
    """Every field stands where azure-servicebus looks for it."""
    raw = encode_performative(ours)
    code, fields = client_decode.decode_frame(memoryview(raw))
    row = next(row for row in TABLE.rows if row.make is type(ours))
    assert code == row.code
    for field, theirs in zip(row.fields, fields, strict=False):
        value = getattr(ours, field.name)
        if isinstance(value, (int, str, bytes)):
            assert theirs == (value.encode() if isinstance(value, str) else value)


def test_the_official_client_reads_our_errors() -> None:
    """The error of a rejected outcome arrives with its three fields."""
    raw = encode_performative(Disposition(False, 1, 1, True, Rejected(AmqpError("amqp:not-found", "gone"))))
    _, fields = client_decode.decode_frame(memoryview(raw))
    assert fields[4] == {"rejected": [[b"amqp:not-found", b"gone", None]]}


# ---- messages


def test_we_read_a_message_of_the_official_client() -> None:
    """Data body, padded lists, annotations, application properties with their types."""
    theirs = client_message.Message(
        header=client_message.Header(durable=True, ttl=60_000),
        message_annotations={b"x-opt-partition-key": "k"},
        properties=client_message.Properties(message_id="id", group_id="session", content_type="text/plain"),
        application_properties={"count": 5, "name": "n", "id": UUID(int=3)},
        data=[b"one", b"two"],
    )
    raw = bytearray()
    client_encode.encode_payload(raw, theirs)
    message = decode_message(bytes(raw))
    assert (message.body_kind, message.body) == (DATA, [b"one", b"two"])
    assert message.header == Header(True, None, 60_000, None, None)
    assert message.message_annotations == {"x-opt-partition-key": "k"}
    assert message.properties == Properties("id", group_id="session", content_type="text/plain")
    assert message.application_properties == {"count": 5, "name": "n", "id": UUID(int=3)}


def test_the_official_client_and_proton_read_our_messages() -> None:
    """M-28: what we send is a message to both of them."""
    raw = encode_message(
        AmqpMessage(
            [b"body"],
            DATA,
            header=Header(ttl=5, delivery_count=2),
            properties=Properties(message_id=ULong(5), subject="label", correlation_id=UUID(int=9)),
            message_annotations={"x-opt-enqueued-time": Timestamp(1_700_000_000_000)},
            application_properties={"a": 1, "span": Described(Symbol("com.microsoft:timespan"), 7)},
        )
    )
    theirs: Any = client_decode.decode_payload(memoryview(raw))
    assert list(theirs.data) == [b"body"]
    assert theirs.header.delivery_count == 2
    assert theirs.properties.subject == b"label"
    assert theirs.message_annotations == {b"x-opt-enqueued-time": 1_700_000_000_000}
    message = proton.Message()
    message.decode(raw)
    assert message.body == b"body"
    assert message.subject == "label"
    assert message.correlation_id == UUID(int=9)
    assert message.delivery_count == 2


def test_proton_reads_decimals_as_we_keep_them() -> None:
    """M-31: decimals are carried raw."""
    data = proton.Data()
    data.decode(encode_value(Decimal(bytes(range(16)))))
    data.rewind()
    data.next()
    assert data.get_decimal128() == bytes(range(16))
