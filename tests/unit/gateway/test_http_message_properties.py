"""Properties between HTTP and AMQP: every header in, every value out, and no letter that ends a line."""

import asyncio
import contextlib
import json
import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.encode import encode_value
from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Char, Decimal, Described, Float, Int, Symbol, Timestamp, UByte, ULong
from busway.broker.fragment.locks import Delivery
from busway.gateway.http.messages.http_message import (
    ReceivedMessage,
    batch_payloads,
    is_batch,
    message_id_of,
    received_message,
    single_payload,
)
from busway.gateway.http.messages.message_properties import (
    RESERVED_NAMES,
    RESERVED_PREFIXES,
    broker_properties,
    checked_value,
    headers_of,
    http_date,
    instant_ms,
    is_reserved,
    json_form,
    properties_of,
)
from busway.gateway.http.untrusted_input import parse_json
from busway.message.message import Message
from busway.model.errors import ArgumentOutOfRange, BadArgument, BrokerError

NOW_MS = 1_700_000_000_000
token_letters = st.text("abcXYZ019-_.!#$%&'*+^`|~", min_size=1, max_size=20)
simple = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
amqp_values = st.one_of(
    simple,
    st.binary(),
    st.uuids(),
    st.floats(),
    st.integers(-(1 << 63), (1 << 63) - 1).map(Timestamp),
    st.integers(0, 255).map(UByte),
    st.text("abc\r\n\x00", max_size=5).map(Symbol),
    st.binary(min_size=16, max_size=16).map(Decimal),
    st.integers(-(1 << 63), (1 << 63) - 1).map(
        lambda ticks: Described(Symbol("com.microsoft:timespan"), ticks)
    ),
    st.integers(-(1 << 63), (1 << 63) - 1).map(
        lambda ticks: Described(Symbol("com.microsoft:datetime-offset"), ticks)
    ),
    st.text("htp:/\r\n").map(lambda text: Described(Symbol("com.microsoft:uri"), text)),
)


def received(payload: bytes) -> ReceivedMessage:
    """As if a message with this payload had been delivered."""
    return received_message(Delivery(Message(b"", payload), b"", 0), payload)


# -- custom properties --


@given(st.dictionaries(token_letters, simple, max_size=8))
def test_what_goes_out_as_headers_comes_in_as_it_was(properties: dict[str, object]) -> None:
    """M-33: strings in quotes, numbers and booleans bare, both ways; only reserved names stay behind."""
    seen: set[str] = set()
    kept = {}
    for name, value in properties.items():
        if not is_reserved(name) and name.lower() not in seen:
            kept[name] = value
            seen.add(name.lower())
    headers = headers_of(properties)
    back = properties_of([(name, text.encode("ascii")) for name, text in headers])
    assert back == kept
    assert [type(value) for value in back.values()] == [type(value) for value in kept.values()]


@given(
    st.dictionaries(st.one_of(st.text(), token_letters, st.sampled_from(sorted(RESERVED_NAMES))), amqp_values)
)
def test_no_property_can_break_out_of_its_header(properties: dict[str, object]) -> None:
    """Attack: whatever names and values a message has, the answer's head is what we wrote and no more."""
    headers = headers_of(properties)
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    connection.next_event()
    head = connection.send(h11.Response(status_code=200, headers=headers))
    assert head is not None
    assert head.count(b"\r\n") == len(headers) + 2 + (b"transfer-encoding" in head.lower())
    assert head.isascii()
    assert not any(is_reserved(name) for name, _ in headers)
    for _, text in headers:
        json.loads(text)


@given(st.lists(st.tuples(st.one_of(token_letters, st.text()), st.binary())))
def test_headers_of_strangers_are_taken_or_refused(headers: list[tuple[str, bytes]]) -> None:
    """Attack: any bytes are properties that can be stored, or 400."""
    try:
        found = properties_of(headers)
    except BadArgument:
        return
    for value in found.values():
        encode_value(value)
        checked_value("x", value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"High"', "High"),
        ('"a\\u00fc\\n\\"b"', 'aü\n"b'),
        ('"5"', "5"),
        ("High", "High"),
        ("12345,ABC", "12345,ABC"),
        ("5", 5),
        ("-0", 0),
        ("5.0", 5.0),
        ("1e3", 1000.0),
        ("007", "007"),
        ("+5", "+5"),
        ("0x10", "0x10"),
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("true", True),
        ("True", "True"),
        ("null", None),
        ("", ""),
        ("{}", "{}"),
        ("ü", "ü"),
        ("9223372036854775807", 9223372036854775807),
    ],
)
def test_the_form_of_a_header_is_the_type_of_its_property(text: str, value: object) -> None:
    """M-33: what is no JSON string, number or boolean is a string as it stands."""
    found = properties_of([("Shade", text.encode())])["Shade"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "value", [b'"open', b'"a" "b"', b"\xff", b"9223372036854775808", b"1e400", b'"\\ud800"']
)
def test_a_header_that_is_no_value_is_refused(value: bytes) -> None:
    """M-33 ERR-7: a header that is no value is refused."""
    with pytest.raises(BadArgument):
        properties_of([("Shade", value)])


def test_a_property_comes_once() -> None:
    """M-33: HTTP cannot tell two spellings apart."""
    with pytest.raises(BadArgument, match="comes twice"):
        properties_of([("Shade", b"1"), ("shade", b"2")])
    assert headers_of({"Shade": 1, "shade": 2}) == [("Shade", "1")]


def test_headers_of_http_are_never_properties() -> None:
    """M-33: the closed list, in any spelling, in both directions; names keep theirs."""
    reserved = [*RESERVED_NAMES, *(prefix + "x" for prefix in RESERVED_PREFIXES)]
    assert {
        "authorization",
        "host",
        "connection",
        "transfer-encoding",
        "set-cookie",
        "location",
    } <= RESERVED_NAMES
    for name in reserved:
        assert properties_of([(name.upper(), b"1"), ("Own", b"2")]) == {"Own": 2}
        assert headers_of({name.title(): "x", "Own": 2}) == [("Own", "2")]


def test_the_closed_list_is_the_one_that_is_told() -> None:
    """M-33, Documentation: every reserved name stands on the page, and no other."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "rest.md").read_text()
    told = page.partition("Never properties")[2].partition("A received property")[0]
    words = re.findall(r"`([^`]+)`", told)
    prefixes = {word.lower() for word in words if word.endswith("-")}
    assert prefixes == set(RESERVED_PREFIXES)
    assert {word for word in words if not word.endswith("-")} == RESERVED_NAMES


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Int(5), "5"),
        (ULong((1 << 64) - 1), "18446744073709551615"),
        (Float(0.5), "0.5"),
        (math.nan, '"nan"'),
        (math.inf, '"inf"'),
        (Char("ü"), '"\\u00fc"'),
        (Symbol("s"), '"s"'),
        (b"\x00\x01", '"AAE="'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Timestamp(784111777000), '"Sun, 06 Nov 1994 08:49:37 GMT"'),
        (Timestamp(1 << 62), '"Fri, 31 Dec 9999 23:59:59 GMT"'),
        (Described(Symbol("com.microsoft:uri"), "http://x"), '"http://x"'),
        (
            Described(Symbol("com.microsoft:timespan"), 864_000_000_000 + 36_000_000_001),
            '"1.01:00:00.0000001"',
        ),
        (Described(Symbol("com.microsoft:timespan"), -10_000_000), '"-00:00:01"'),
        (
            Described(Symbol("com.microsoft:datetime-offset"), 629_197_085_770_000_000),
            '"Sun, 06 Nov 1994 08:49:37 GMT"',
        ),
        ("a\r\nSet-Cookie: b", '"a\\r\\nSet-Cookie: b"'),
    ],
)
def test_every_amqp_value_has_a_header_form(value: object, text: str) -> None:
    """M-31 M-32 M-33: every AMQP value has a header form."""
    assert headers_of({"x": value}) == [("x", text)]


def test_what_has_no_header_form_stays_behind() -> None:
    """M-33: names that are no tokens, and decimals."""
    assert headers_of({"a b": 1, "": 1, "ü": 1, "a:": 1, "x\r\n": 1, 5: 1, "d": Decimal(bytes(4))}) == []


# -- times --


@given(st.integers(0, 253_402_300_799))
def test_instants_are_read_as_they_are_written(second: int) -> None:
    """M-12 S-5: RFC 1123 and ISO 8601, both in UTC."""
    iso = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).isoformat()
    assert instant_ms(http_date(second * 1000), "x") == second * 1000
    for text in (
        iso,
        iso.replace("+00:00", "Z"),
        iso.replace("+00:00", ".1234567Z"),
        iso.removesuffix("+00:00"),
    ):
        assert instant_ms(text, "x") // 1000 == second


@pytest.mark.parametrize(
    "text", ["", "2014", "2014-13-01T00:00:00Z", "Wed, 02 Jul 2014", "x" * 1000, "00:00:01"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    """ERR-7: what is no time is refused."""
    with pytest.raises(BadArgument, match="is not a time"):
        instant_ms(text, "x")


@given(st.text())
def test_any_text_is_a_time_or_refused(text: str) -> None:
    """Attack: nothing but BadArgument comes of it."""
    try:
        instant_ms(text, "x")
    except BadArgument:
        return


# -- broker properties --

json_values = st.recursive(
    simple, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)
members = st.sampled_from(
    ["MessageId", "SessionId", "TimeToLive", "TimeToLiveTimeSpan", "ScheduledEnqueueTimeUtc", "ContentType",
     "ForcePersistence", "PartitionKey", "ViaPartitionKey", "Label", "To", "Other"]
)  # fmt: skip


@given(st.dictionaries(members, json_values))
def test_any_broker_properties_make_a_message_or_are_refused(sent: dict[str, object]) -> None:
    """Attack, S-5: what is taken can be encoded and read back."""
    header = json.dumps(sent).encode()
    try:
        payload = single_payload(b"x", [("BrokerProperties", header)], None, NOW_MS)
    except (BadArgument, ArgumentOutOfRange):
        return
    message = decode_message(payload)
    assert message.body == [b"x"]
    assert (message.properties or Properties()).message_id == sent.get("MessageId")


@given(st.binary())
def test_any_bytes_are_json_or_refused(text: bytes) -> None:
    """Attack."""
    with contextlib.suppress(BrokerError):
        parse_json(text, "It")
    with contextlib.suppress(BrokerError):
        asyncio.run(batch_payloads(text, NOW_MS, lambda _: None))


def test_a_long_time_to_live_is_told_by_the_absolute_expiry_too() -> None:
    """M-11 M-17: as AMQP clients write what header.ttl cannot hold."""
    sent = b'{"TimeToLive": 5184000}'
    message = decode_message(single_payload(b"", [("BrokerProperties", sent)], None, NOW_MS))
    assert message.header is not None
    assert message.properties is not None
    assert message.header.ttl == 0xFFFFFFFF
    assert message.properties.absolute_expiry_time == NOW_MS + 5_184_000_000
    assert broker_properties({"TimeToLive": 922337203685.47754}).ttl_ms is None


def test_the_content_type_of_the_properties_wins() -> None:
    """M-10: nobody writes that by accident, while most clients send a Content-Type by themselves."""
    sent = [("BrokerProperties", b'{"ContentType": "a/b"}')]
    for given_type, kept in (("c/d", "a/b"), (None, "a/b")):
        message = decode_message(single_payload(b"", sent, given_type, NOW_MS))
        assert message.properties is not None
        assert message.properties.content_type == kept


def test_broker_properties_come_once() -> None:
    """S-5: broker properties come once."""
    with pytest.raises(BadArgument, match="comes twice"):
        single_payload(b"", [("BrokerProperties", b"{}"), ("brokerproperties", b"{}")], None, NOW_MS)


@pytest.mark.parametrize("content_type", ["ü", "a\nb", "x" * 1025])
def test_a_content_type_that_is_none_is_refused(content_type: str) -> None:
    """M-10: a content type that is none is refused."""
    with pytest.raises(BadArgument, match="Content-Type"):
        single_payload(b"", [], content_type, NOW_MS)


def test_a_batch_is_known_by_its_content_type() -> None:
    """S-21: a batch is known by its content type."""
    assert is_batch("Application/vnd.microsoft.servicebus.JSON; charset=utf-8")
    assert not is_batch("application/json")
    assert not is_batch(None)


# -- bodies --


@pytest.mark.parametrize(
    ("body", "kind", "text", "content_type"),
    [
        ([b"a", b"", b"b"], DATA, b"ab", None),
        ("zwölf", VALUE, "zwölf".encode(), None),
        (b"\x00\xff", VALUE, b"\x00\xff", None),
        (5, VALUE, b"5", "application/json"),
        (None, VALUE, b"null", "application/json"),
        ({"a": [1, {"b": UUID(int=0)}], 5: b"\x00"}, VALUE, None, "application/json"),
        ([[1, "x"], [None]], SEQUENCE, b'[[1, "x"], [null]]', "application/json"),
    ],
)
def test_each_kind_of_body_has_a_form(
    body: object, kind: int, text: bytes | None, content_type: str | None
) -> None:
    """R-23: data raw, strings as UTF-8, binary raw, everything else as JSON."""
    got = received(encode_message(AmqpMessage(body, kind)))
    assert dict(got.headers).get("Content-Type") == content_type
    if text is None:
        text = json.dumps(json_form(body)).encode()
    assert got.body == text


def test_a_message_without_a_body_is_empty() -> None:
    """R-23: a message without a body is empty."""
    assert received(encode_message(AmqpMessage(None, 0, properties=Properties(message_id="x")))).body == b""


@pytest.mark.parametrize(
    "broken",
    [
        b"\x00\x53\x73\xc0\x03\x01\xa1\xff",  # properties: a string that runs out
        b"\x00\x53\x73\xc0\x05\x01\xa1\x02\xff\xff",  # an id that is not UTF-8
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01\xff\x54\x01",  # a property's name that is not UTF-8
    ],
)
def test_a_part_that_cannot_be_read_costs_only_that_part(broken: bytes) -> None:
    """Attack: what AMQP clients sent is stored unread, and must not make a message that nobody can receive."""
    payload = broken + b"\x00\x53\x75\xa0\x01x"
    got = received(payload)
    assert got.body == b"x"
    assert json.loads(dict(got.headers)["BrokerProperties"])["SequenceNumber"] == 0
    assert message_id_of(payload) is None


def test_a_value_that_cannot_be_read_comes_as_it_is_encoded() -> None:
    """Attack: a string that is not UTF-8."""
    payload = b"\x00\x53\x77\xa1\x02\xff\xff"
    assert received(payload).body == payload


@pytest.mark.parametrize("content_type", ["a\r\nX: y", "a\x00b", " ", ""])
def test_a_content_type_that_cannot_be_a_header_is_left_out(content_type: str) -> None:
    """Attack: symbols of AMQP may hold line ends."""
    payload = encode_message(
        AmqpMessage([b""], DATA, properties=Properties(content_type=Symbol(content_type)))
    )
    assert "Content-Type" not in dict(received(payload).headers)


@pytest.mark.parametrize(
    ("message_id", "text"),
    [(UUID(int=1), str(UUID(int=1))), (ULong(7), "7"), (b"\x01\xff", "01ff"), ("x", "x")],
)
def test_ids_of_every_type_have_a_text(message_id: object, text: str) -> None:
    """M-1: ids of every type have a text."""
    payload = encode_message(AmqpMessage([b""], DATA, properties=Properties(message_id=message_id)))
    assert json.loads(dict(received(payload).headers)["BrokerProperties"])["MessageId"] == text
