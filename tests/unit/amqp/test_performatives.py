"""Every composite type of the table, read and written; the hot paths against the generic one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp import performatives
from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.encode import EncodeError, encode_value
from busway.amqp.errors import AmqpError
from busway.amqp.performatives import (
    ACCEPTED,
    TABLE,
    Accepted,
    Attach,
    Close,
    Coordinator,
    Declared,
    Detach,
    Disposition,
    Flow,
    Modified,
    Open,
    Properties,
    Received,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    Source,
    Target,
    TransactionalState,
    Transfer,
    compose,
    decode_disposition,
    decode_flow,
    decode_performative,
    decode_transfer,
    encode_disposition,
    encode_flow,
    encode_performative,
    encode_transfer_prefix,
)
from busway.amqp.type_table import CompositeDefinition, Field
from busway.amqp.types import Array, Described, Int, Long, Symbol, UInt, ULong, UShort
from tests.harness.examples import examples_of

ROWS = list(TABLE.rows)
FRAMES = [row for row in ROWS if 0x10 <= row.code <= 0x18 or 0x40 <= row.code <= 0x44]
IDS = [row.name for row in ROWS]

#: One value of each kind of field, as the classes hold it.
SAMPLES: dict[str, Any] = {
    "boolean": True,
    "ubyte": 2,
    "ushort": 4999,
    "uint": 70_000,
    "ulong": 2**64 - 1,
    "timestamp": 1_700_000_000_000,
    "binary": b"\x01\x02",
    "string": "text \u2603",
    "symbol": "a:symbol",
    "map": {b"tag": None},
    "fields": {"key": "value"},
    "any": "an address",
    "message-id": "an id",
    "source": Source(address="q"),
    "target": Target(address="q"),
    "error": AmqpError("amqp:not-found", "gone", None),
    "outcome": Accepted(),
    "state": Accepted(),
}

#: A value of a wrong type for each kind, as it would come off the wire.
WRONG: dict[str, Any] = {
    "boolean": UInt(1),
    "ubyte": UShort(1),
    "ushort": UInt(1),
    "uint": ULong(1),
    "ulong": Long(1),
    "timestamp": Long(1),
    "binary": "text",
    "string": Symbol("text"),
    "symbol": "text",
    "map": [],
    "fields": "text",
    "message-id": Int(1),
    "source": Described(ULong(0x29), []),
    "target": Described(ULong(0x28), []),
    "error": Described(ULong(0x24), []),
    "outcome": UInt(1),
    "state": Described(ULong(0x28), []),
}


def sample(field: Field) -> Any:
    return ["one", "two"] if field.multiple else SAMPLES[field.kind]


def make(row: CompositeDefinition, **given: Any) -> Any:
    """Compiled classes do not take None for a flag, so what is absent gets its default."""
    return row.make(**{field.name: given.get(field.name, field.default) for field in row.fields})


def attributes(value: Any) -> dict[str, Any]:
    row = next(row for row in ROWS if row.make is type(value))
    return {field.name: getattr(value, field.name) for field in row.fields}


def wire_list(value: Any) -> list[Any]:
    """The fields of an encoded composite value as plain decoded values."""
    described, _ = decode_value(encode_performative(value))
    assert isinstance(described, Described)
    assert isinstance(described.value, list)
    return described.value


def read(row: CompositeDefinition, fields: list[Any], descriptor: object = None) -> Any:
    raw = encode_value(Described(ULong(row.code) if descriptor is None else descriptor, fields))
    value, _ = decode_value(raw)
    return compose(value)


# ---- the table


def test_the_table_has_every_composite_type_of_the_standard() -> None:
    """The lengths that clients count on, and no code or name twice."""
    lengths = {row.name.split(":")[1]: len(row.fields) for row in ROWS}
    assert lengths == {
        "open": 10, "begin": 8, "attach": 14, "flow": 11, "transfer": 11, "disposition": 6, "detach": 3, "end": 1,
        "close": 1, "sasl-mechanisms": 1, "sasl-init": 3, "sasl-challenge": 1, "sasl-response": 1,
        "sasl-outcome": 2, "error": 3, "source": 11, "target": 7, "coordinator": 1, "received": 2, "accepted": 0,
        "rejected": 1, "released": 0, "modified": 3, "declare": 1, "discharge": 2, "declared": 1,
        "transactional-state": 2, "header": 5, "properties": 13,
    }  # fmt: skip
    assert len({row.code for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_classes_take_the_fields_of_the_table_in_its_order(row: CompositeDefinition) -> None:
    """AMQP 1.4: the constructor's arguments are the fields of the row."""
    assert list(inspect.signature(row.make).parameters) == [field.name for field in row.fields]


def test_all_names_of_the_module_are_exported() -> None:
    """AMQP 2.7: what other rooms import is listed by hand."""
    for name in performatives.__all__:
        assert hasattr(performatives, name)


# ---- writing and reading by the table


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_full_value_round_trips(row: CompositeDefinition) -> None:
    """AMQP 1.4: every field present, read back by name."""
    value = make(row, **{field.name: sample(field) for field in row.fields})
    made = compose(decode_value(encode_performative(value))[0])
    assert type(made) is row.make
    assert attributes(made) == attributes(value)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_trailing_nulls_are_written(row: CompositeDefinition) -> None:
    """All fields always, as list8 behind 00 53 code, never list0."""
    value = make(row, **{field.name: sample(field) for field in row.fields if field.mandatory})
    raw = encode_performative(value)
    assert raw[:4] == bytes((0x00, 0x53, row.code, 0xC0))
    assert raw[5] == len(row.fields)
    assert len(wire_list(value)) == len(row.fields)


def test_an_error_always_has_three_fields() -> None:
    """Condition, description, and a map or null."""
    assert wire_list(AmqpError("amqp:not-found")) == ["amqp:not-found", None, None]
    raw = encode_performative(Rejected(AmqpError("amqp:not-found", "x")))
    assert raw == bytes.fromhex("005325c01b01 00531d c015 03 a30e") + b"amqp:not-found" + bytes.fromhex(
        "a10178 40"
    )


PAIRS = [(row, field) for row in ROWS for field in row.fields]
PAIR_IDS = [f"{row.name}-{field.name}" for row, field in PAIRS]


@pytest.mark.parametrize(("row", "field"), PAIRS, ids=PAIR_IDS)
def test_each_field_alone_comes_back(row: CompositeDefinition, field: Field) -> None:
    """AMQP 1.4: one optional field at a time, everything else absent."""
    present = {one.name: sample(one) for one in row.fields if one.mandatory or one is field}
    made = compose(decode_value(encode_performative(make(row, **present)))[0])
    for one in row.fields:
        assert getattr(made, one.name) == present.get(one.name, one.default)


@pytest.mark.parametrize(("row", "field"), PAIRS, ids=PAIR_IDS)
def test_an_absent_field_is_none_unless_mandatory(row: CompositeDefinition, field: Field) -> None:
    """AMQP 1.4: null in the middle; a mandatory field refuses it in both directions."""
    present = {one.name: sample(one) for one in row.fields if one is not field}
    fields = wire_list(make(row, **present | {field.name: sample(field)}))
    fields[row.fields.index(field)] = None
    if field.mandatory:
        with pytest.raises(DecodeError, match=field.name):
            read(row, fields)
        with pytest.raises((EncodeError, TypeError)):
            encode_performative(make(row, **present))
    else:
        assert getattr(read(row, fields), field.name) is field.default


@pytest.mark.parametrize(("row", "field"), PAIRS, ids=PAIR_IDS)
def test_a_field_of_another_type_is_refused(row: CompositeDefinition, field: Field) -> None:
    """AMQP 1.4: types are compared exactly."""
    if field.kind == "any":
        return
    fields = wire_list(make(row, **{one.name: sample(one) for one in row.fields}))
    fields[row.fields.index(field)] = WRONG[field.kind]
    with pytest.raises(DecodeError, match=field.name):
        read(row, fields)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_trailing_fields_may_be_left_out(row: CompositeDefinition) -> None:
    """AMQP 1.4: a list that ends early means nulls; list0 when everything is absent."""
    full = wire_list(make(row, **{field.name: sample(field) for field in row.fields}))
    needed = max((index + 1 for index, field in enumerate(row.fields) if field.mandatory), default=0)
    for count in range(needed, len(full) + 1):
        made = read(row, full[:count])
        for index, field in enumerate(row.fields):
            assert getattr(made, field.name) == (sample(field) if index < count else field.default)
    for count in range(needed):
        with pytest.raises(DecodeError):
            read(row, full[:count])


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_field_too_many_is_refused(row: CompositeDefinition) -> None:
    """AMQP 1.4: even when it is null."""
    full = wire_list(make(row, **{field.name: sample(field) for field in row.fields}))
    with pytest.raises(DecodeError, match="fields"):
        read(row, [*full, None])


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_symbolic_and_wide_descriptors_mean_the_same(row: CompositeDefinition) -> None:
    """We write the short code; we read the symbol and the 8-byte code as well, compared whole."""
    full = wire_list(make(row, **{field.name: sample(field) for field in row.fields}))
    by_code = read(row, full)
    assert attributes(read(row, full, Symbol(row.name))) == attributes(by_code)
    wide = b"\x00\x80" + row.code.to_bytes(8, "big") + encode_value(full)
    assert attributes(compose(decode_value(wide)[0])) == attributes(by_code)
    for stranger in (
        ULong(row.code + (1 << 32)),
        ULong(row.code + 256),
        Symbol(row.name + "x"),
        row.name,
        UInt(row.code),
    ):
        assert isinstance(read(row, full, stranger), Described)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_composite_value_must_be_a_list(row: CompositeDefinition) -> None:
    """AMQP 1.4: a map or a number with the right descriptor is no composite value."""
    wrongs: list[object] = [None, {}, 5, b"", Array([], 0x40)]
    for wrong in wrongs:
        value, _ = decode_value(encode_value(Described(ULong(row.code), wrong)))
        with pytest.raises(DecodeError, match="not a list"):
            compose(value)


def test_repeated_symbols_may_stand_alone() -> None:
    """AMQP 1.4: `multiple` fields take one symbol or an array of them, and nothing else."""
    row = next(row for row in ROWS if row.make is SaslMechanisms)
    assert read(row, [Symbol("PLAIN")]).sasl_server_mechanisms == ["PLAIN"]
    assert read(row, [Array([Symbol("A"), Symbol("B")], 0xA3)]).sasl_server_mechanisms == ["A", "B"]
    assert read(row, [Array([Symbol("A" * 300)], 0xB3)]).sasl_server_mechanisms == ["A" * 300]
    assert read(row, [Array([], 0xA3)]).sasl_server_mechanisms == []
    for wrong in (Array(["A"], 0xA1), [Symbol("A")], "A", Array([Symbol("A")], 0xA3, (Symbol("d"),))):
        with pytest.raises(DecodeError):
            read(row, [wrong])


def test_mechanisms_are_written_as_an_array() -> None:
    """Even a single one, because a client indexes the array."""
    assert encode_performative(SaslMechanisms(["ANONYMOUS"]))[6:10] == bytes.fromhex("e00c01a3")
    assert encode_performative(SaslMechanisms(["A", "B" * 300]))[12] == 0xF0


def test_an_empty_repeated_field_is_written_as_null() -> None:
    """AMQP 1.4: an empty array and null mean the same; only null is safe with every client."""
    assert encode_performative(Coordinator([])) == encode_performative(Coordinator())


def test_plain_keys_of_fields_become_symbols() -> None:
    """AMQP 2.8.17: the keys of `fields` are symbols; values keep their types."""
    info = wire_list(AmqpError("a", None, {"key": Int(5), ULong(1): "x"}))[2]
    assert [type(key) for key in info] == [Symbol, ULong]
    assert [type(value) for value in info.values()] == [Int, str]


def test_message_ids_keep_their_type() -> None:
    """String, uuid, ulong or binary; a plain number is a ulong."""
    assert type(wire_list(Properties(message_id=7))[0]) is ULong
    assert type(wire_list(Properties(correlation_id=b"7"))[5]) is bytes


def test_an_unknown_state_is_kept() -> None:
    """AMQP 3.4: delivery states are extensible; one that we do not know stays a described value."""
    strange = Described(Symbol("com.example:state"), [])
    raw = encode_performative(Disposition(True, 1, 1, False, strange))
    assert decode_disposition(raw, 0, len(raw)).state == strange


def test_the_coordinator_is_a_target() -> None:
    """A transaction controller attaches to a coordinator."""
    raw = encode_performative(Attach("c", 0, False, target=Coordinator(["amqp:local-transactions"])))
    made, _ = decode_performative(raw, 0, len(raw))
    assert isinstance(made, Attach)
    assert made.target == Coordinator(["amqp:local-transactions"])


# ---- frames


@pytest.mark.parametrize("row", FRAMES, ids=[row.name for row in FRAMES])
def test_a_frame_body_ends_where_its_payload_begins(row: CompositeDefinition) -> None:
    """AMQP 2.3: the bytes behind the performative are the payload."""
    raw = encode_performative(make(row, **{field.name: sample(field) for field in row.fields}))
    data = b"head" + raw + b"payload"
    made, at = decode_performative(data, 4, len(data))
    assert type(made) is row.make
    assert data[at:] == b"payload"


@pytest.mark.parametrize("row", [row for row in ROWS if row not in FRAMES], ids=lambda row: row.name)
def test_other_types_are_no_frames(row: CompositeDefinition) -> None:
    """AMQP 2.7: a source, an outcome or a header cannot stand as a frame body."""
    raw = encode_performative(make(row, **{field.name: sample(field) for field in row.fields}))
    with pytest.raises(DecodeError, match="no frame"):
        decode_performative(raw, 0, len(raw))


@pytest.mark.parametrize(
    "raw", ["", "40", "45", "00 40 45", "00 53 19 45", "00 a1 01 61 45", "00 53 10", "00 53 10 40"]
)
def test_what_is_no_frame_is_refused(raw: str) -> None:
    """AMQP 2.7: a frame body is a described list."""
    data = bytes.fromhex(raw)
    with pytest.raises(DecodeError):
        decode_performative(data, 0, len(data))


def test_secrets_stay_out_of_reprs() -> None:
    """AMQP 5.3.3: what a client sends to log in never reaches a log by accident."""
    assert "hunter2" not in repr(SaslInit("PLAIN", b"\0me\0hunter2"))


# ---- the hot ones against the generic reader

flags = st.booleans()
uints = st.one_of(st.just(0), st.integers(1, 255), st.integers(256, 2**32 - 1))
tags = st.binary(max_size=32)
states = st.sampled_from(
    [
        None,
        ACCEPTED,
        Released(),
        Rejected(None),
        Rejected(AmqpError("com.microsoft:dead-letter", "why", {"DeadLetterReason": "r"})),
        Modified(True, True, {"a": "b"}),
        Modified(),
        Received(1, 2),
        Declared(b"t"),
        TransactionalState(b"t", ACCEPTED),
    ]
) | st.builds(
    TransactionalState,
    st.binary(max_size=40),
    st.sampled_from([None, ACCEPTED, Released(), Modified(True, True), Modified(True, False, {"a": "b"})]),
)
transfers = st.builds(
    Transfer,
    uints,
    st.none() | uints,
    st.none() | tags,
    st.none() | uints,
    st.none() | flags,
    flags,
    st.none() | st.integers(0, 1),
    states,
    flags,
    flags,
    flags,
)
dispositions = st.builds(Disposition, flags, uints, st.none() | uints, flags, states, flags)
flows = st.builds(
    Flow,
    st.none() | uints,
    uints,
    uints,
    uints,
    *([st.none() | uints] * 4),
    flags,
    flags,
    st.none() | st.just({Symbol("a"): 1}),
)


def _widened(encoded: bytes) -> bytes:
    """A delivery state whose list8 is a list32, as one client writes it."""
    if encoded[:2] != b"\x00\x53" or encoded[3] != 0xC0:
        return encoded
    size, count = encoded[4], encoded[5]
    head = b"\xd0" + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big")
    return encoded[:3] + head + encoded[6:]


def _fields_in_form(value: Any, form: int) -> bytes:
    """The frame body of a value in one of several encodings that clients use."""
    fields = wire_list(value)
    row = next(row for row in ROWS if row.make is type(value))
    while form % 2 and not row.fields[len(fields) - 1].mandatory:
        if fields[-1] is not None and fields[-1] is not row.fields[len(fields) - 1].default:
            break
        fields.pop()
    body = bytearray()
    for field in fields:
        if isinstance(field, bool) and form & 2:
            body += b"\x56\x01" if field else b"\x56\x00"
        elif isinstance(field, UInt) and form & 4:
            body += b"\x70" + int(field).to_bytes(4, "big")
        else:
            body += _widened(encode_value(field)) if form & 16 else encode_value(field)
    if form & 8 or len(body) > 254:
        head = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big")
    else:
        head = bytes((0xC0, len(body) + 1, len(fields)))
    return bytes((0x00, 0x53, row.code)) + head + bytes(body)


@given(transfers, st.integers(0, 31), st.binary(max_size=20))
@settings(max_examples=examples_of(400), deadline=None)
def test_the_fast_reader_of_transfers_agrees_with_the_table(
    value: Transfer, form: int, payload: bytes
) -> None:
    """AMQP 2.7.5: whatever the encoding, seen for the first time or again."""
    data = b"before" + _fields_in_form(value, form) + payload
    generic, payload_at = decode_performative(data, 6, len(data))
    for _ in range(2):
        fast, fast_payload_at = decode_transfer(data, 6, len(data))
        assert attributes(fast) == attributes(generic) == attributes(value)
        assert fast_payload_at == payload_at
    assert data[payload_at:] == payload


def test_wide_lists_take_the_fast_way_too() -> None:
    """AMQP 2.7.5, 2.7.6: a client that always writes list32 is understood the same, payload included."""
    raw = (
        bytes.fromhex("005314 d0 00000016 0000000b 5203 5207 a00401020304 43 42 42 40 40 40 40 40")
        + b"payload"
    )
    made, at = decode_transfer(raw, 0, len(raw))
    assert (made.handle, made.delivery_id, made.delivery_tag) == (3, 7, b"\x01\x02\x03\x04")
    assert raw[at:] == b"payload"
    raw = bytes.fromhex("005315 d0 00000012 00000006 41 5203 40 41 00532445 40 ")
    with pytest.raises(DecodeError):
        decode_disposition(raw, 0, len(raw))
    raw = bytes.fromhex("005315 d0 0000000e 00000006 41 5203 40 41 00532445 40")
    assert decode_disposition(raw, 0, len(raw)).state == ACCEPTED
    with pytest.raises(DecodeError):
        decode_disposition(raw + b"x", 0, len(raw) + 1)


@given(dispositions, st.integers(0, 31))
@settings(max_examples=examples_of(400), deadline=None)
def test_the_fast_reader_of_dispositions_agrees_with_the_table(value: Disposition, form: int) -> None:
    """AMQP 2.7.6: whatever the encoding, seen for the first time or again."""
    data = b"before" + _fields_in_form(value, form)
    generic, _ = decode_performative(data, 6, len(data))
    for _ in range(2):
        assert attributes(decode_disposition(data, 6, len(data))) == attributes(generic) == attributes(value)


@given(flows, st.integers(0, 15))
@settings(max_examples=examples_of(400), deadline=None)
def test_the_fast_reader_of_flows_agrees_with_the_table(value: Flow, form: int) -> None:
    """AMQP 2.7.4: whatever the encoding."""
    data = b"before" + _fields_in_form(value, form)
    generic, _ = decode_performative(data, 6, len(data))
    assert attributes(decode_flow(data, 6, len(data))) == attributes(generic) == attributes(value)


def test_frames_of_transactions_are_remembered_without_the_id() -> None:
    """AMQP 4.5.4: each id is read from its own frame, whatever was remembered of the one before."""
    for number in range(3):
        txn_id = bytes([number]) * 16
        for outcome in (None, ACCEPTED, Modified(True, True)):
            state = TransactionalState(txn_id, outcome)
            for form in (0, 16):
                raw = _fields_in_form(Transfer(1, number, b"tag", 0, None, False, None, state), form) + b"p"
                made, at = decode_transfer(raw, 0, len(raw))
                assert (made.state, made.delivery_id, raw[at:]) == (state, number, b"p")
                raw = _fields_in_form(Disposition(True, number, None, True, state), form)
                assert decode_disposition(raw, 0, len(raw)).state == state
                with pytest.raises(DecodeError):
                    decode_disposition(raw[:-1], 0, len(raw) - 1)
            encoded = encode_disposition(True, 1, 1, True, state)
            assert decode_disposition(encoded, 0, len(encoded)).state == state
    declared = encode_disposition(True, 1, 1, True, Declared(b"i" * 16))
    assert decode_disposition(declared, 0, len(declared)).state == Declared(b"i" * 16)


def test_a_tail_seen_before_does_not_hide_a_broken_frame() -> None:
    """AMQP 2.7.5: a remembered tail counts only with the same number of fields and inside of the list."""
    good = bytes.fromhex("005314c0 07 03 5201 5202 a000")
    assert decode_transfer(good, 0, len(good))[0].delivery_tag == b""
    overlong = bytes.fromhex("005314c0 07 03 5201 5202 a009") + b"123456789"
    with pytest.raises(DecodeError):
        decode_transfer(overlong, 0, len(overlong))
    miscounted = bytes.fromhex("005314c0 07 04 5201 5202 a000")
    with pytest.raises(DecodeError):
        decode_transfer(miscounted, 0, len(miscounted))
    settled = bytes.fromhex("005315c0 07 04 41 5201 5202 41")
    assert decode_disposition(settled, 0, len(settled)).settled is True
    two_flags = bytes.fromhex("005315c0 06 04 41 5201 41 41")
    with pytest.raises(DecodeError):
        decode_disposition(two_flags, 0, len(two_flags))


def test_the_memory_of_tails_is_bounded() -> None:
    """AMQP 2.7.6: a peer that invents tails cannot fill the memory, and is still understood."""
    for number in range(2_000):
        state = Modified(message_annotations={"a": number})
        raw = encode_performative(Disposition(True, 1, 1, False, state))
        made = decode_disposition(raw, 0, len(raw))
        assert isinstance(made.state, Modified)
        assert made.state.message_annotations == {"a": number}
        raw = encode_performative(Transfer(1, 2, b"t", number))
        assert decode_transfer(raw, 0, len(raw))[0].message_format == number
    assert len(performatives._disposition_tails) <= 256
    assert len(performatives._transfer_tails) <= 256


def test_hot_readers_refuse_other_frames_and_leftovers() -> None:
    """AMQP 2.7: each reads only its own frame; flow and disposition have no payload."""
    flow = encode_flow(1, 2, 3, 4)
    disposition = encode_disposition(True, 1, 1, False)
    transfer = encode_transfer_prefix(1, 2, b"t", 0, False, False)
    with pytest.raises(DecodeError):
        decode_transfer(flow, 0, len(flow))
    with pytest.raises(DecodeError):
        decode_flow(transfer, 0, len(transfer))
    with pytest.raises(DecodeError):
        decode_disposition(flow, 0, len(flow))
    with pytest.raises(DecodeError):
        decode_flow(flow + b"x", 0, len(flow) + 1)
    with pytest.raises(DecodeError):
        decode_disposition(disposition + b"x", 0, len(disposition) + 1)


@given(uints, st.none() | uints, st.none() | tags, st.none() | uints, flags, flags, states, flags)
@settings(max_examples=examples_of(200), deadline=None)
def test_transfer_prefixes_are_read_back(
    handle: int,
    delivery_id: int | None,
    tag: bytes | None,
    message_format: int | None,
    settled: bool,
    more: bool,
    state: Any,
    aborted: bool,
) -> None:
    """Eleven fields each time, whichever template was used."""
    raw = encode_transfer_prefix(handle, delivery_id, tag, message_format, settled, more, state, aborted)
    made, at = decode_performative(raw, 0, len(raw))
    assert at == len(raw)
    expected = Transfer(handle, delivery_id, tag, message_format, settled, more, state=state, aborted=aborted)
    assert attributes(made) == attributes(expected)
    assert raw[5] == 11 if raw[3] == 0xC0 else raw[8:12] == b"\x00\x00\x00\x0b"


@given(flags, uints, uints, flags, st.one_of(states, st.just(Rejected(AmqpError("c", "d" * 300)))))
@settings(max_examples=examples_of(200), deadline=None)
def test_dispositions_are_read_back(role: bool, first: int, last: int, settled: bool, state: Any) -> None:
    """Six fields each time; a long error takes the wide list."""
    raw = encode_disposition(role, first, last, settled, state)
    made, at = decode_performative(raw, 0, len(raw))
    assert at == len(raw)
    assert attributes(made) == attributes(Disposition(role, first, last, settled, state))


@given(flows)
@settings(max_examples=examples_of(200), deadline=None)
def test_flows_are_read_back(flow: Flow) -> None:
    """Eleven fields each time."""
    fields = list(attributes(flow).values())[:10]
    raw = encode_flow(*fields)
    made, at = decode_performative(raw, 0, len(raw))
    assert at == len(raw)
    assert attributes(made) == attributes(Flow(*fields))


def test_a_delivery_tag_has_at_most_32_bytes() -> None:
    """AMQP 2.8.7: ours never exceed it."""
    with pytest.raises(EncodeError):
        encode_transfer_prefix(1, 2, b"x" * 33, 0, False, False)


def test_frames_of_the_standard_look_as_clients_expect() -> None:
    """Open, detach and close byte by byte."""
    assert encode_performative(Open("c", max_frame_size=65_536, channel_max=4999, idle_time_out=120_000)) == (
        bytes.fromhex("005310c0 17 0a a10163 40 7000010000 601387 700001d4c0 40 40 40 40 40")
    )
    assert encode_performative(Detach(3, True)) == bytes.fromhex("005316c0 05 03 5203 41 40")
    assert encode_performative(Close()) == bytes.fromhex("005318c0 02 01 40")


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_flow_whose_last_number_runs_into_the_next_frame_is_malformed(cut: int) -> None:
    """A number that ends behind its frame is read from the bytes of the next one; that must be noticed."""
    numbers = b"\x70\x00\x00\x00\x01" * 8
    body = bytes((0x00, 0x53, 0x13, 0xC0, 1 + len(numbers) - cut, 11)) + numbers
    end = len(body) - cut
    with pytest.raises(DecodeError):
        decode_flow(body + b"\x40" * 16, 0, end)
