"""Options, columns, offsets and values of `format("servicebus")`, without a session."""

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType, VariantVal

from busway.amqp.sections import decode_message
from busway.amqp.types import Timestamp, ULong
from busway_spark.given_options import WrongColumns
from busway_spark.servicebus.batch_reader import ranges_of
from busway_spark.servicebus.claim import Claim, WrongOffset
from busway_spark.servicebus.columns import check_readable, check_writable, readable_schema
from busway_spark.servicebus.message_columns import WrongRow, message_of
from busway_spark.servicebus.options import ServiceBusOptions, WrongOption, read_options
from busway_spark.servicebus.variant import SCALAR_METADATA, json_of, variant_of

SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
CONNECTION = f"Endpoint=sb://localhost:5672;SharedAccessKeyName=k;SharedAccessKey={SECRET}"


def options(**given: str) -> ServiceBusOptions:
    return read_options({"connectionString": CONNECTION, **given})


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"queue": "q", "maxMessagesPerTriger": "5"}, "maxMessagesPerTriger"),
        ({"queue": "q", "maxMessagesPerTrigger": "0"}, "maxMessagesPerTrigger"),
        ({"queue": "q", "maxMessagesPerTrigger": "many"}, "maxMessagesPerTrigger"),
        ({"queue": "q", "mode": "steal"}, "mode"),
        ({"queue": "q", "allowDestructive": "yes"}, "allowDestructive"),
        ({"queue": "q", "topic": "t"}, "topic"),
        ({"subscription": "s"}, "subscription"),
        ({"subQueue": "deadLetter"}, "subQueue"),
        ({"queue": "q", "subQueue": "cellar"}, "subQueue"),
        ({"queue": "q", "properties": "xml"}, "properties"),
        ({"queue": "q", "maxWaitSeconds": "nan"}, "maxWaitSeconds"),
        ({"queue": "q", "startingSequenceNumber": "9", "endingSequenceNumber": "8"}, "endingSequenceNumber"),
        ({"queue": "q", "writeId": "x" * 65}, "writeId"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], name: str) -> None:
    with pytest.raises(WrongOption, match=f"'{name}'") as caught:
        options(**given)
    assert caught.value.option == name
    assert SECRET not in str(caught.value)


def test_a_connection_string_that_cannot_be_used_is_never_quoted() -> None:
    with pytest.raises(WrongOption, match="connectionString") as caught:
        read_options({"connectionString": f"Endpoint=sb://x;SharedAccessKey={SECRET}", "queue": "q"})
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(options(queue="q"))


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({"queue": "a/b"}, "a/b"),
        ({"QUEUE": "q", "subqueue": "DEADLETTER"}, "q/$DeadLetterQueue"),
        ({"servicebus.topic": "t", "subscription": "s"}, "t/Subscriptions/s"),
        ({"topic": "t", "subscription": "s", "subQueue": "transferDeadLetter"},
         "t/Subscriptions/s/$Transfer/$DeadLetterQueue"),
        ({"entity": "/q/$DeadLetterQueue/"}, "q/$DeadLetterQueue"),
    ],
)  # fmt: skip
def test_the_address_is_made_of_what_names_the_entity(given: dict[str, str], address: str) -> None:
    assert options(**given).source_address() == address


def test_the_entity_of_the_connection_string_counts_unless_an_option_names_another() -> None:
    text = f"{CONNECTION};EntityPath=orders"
    assert read_options({"connectionString": text}).address == "orders"
    assert read_options({"connectionString": text, "queue": "q"}).address == "q"


def test_columns_can_be_chosen_and_ordered() -> None:
    assert readable_schema(options(queue="q", columns="MESSAGEID, body")).names == ["messageId", "body"]
    with pytest.raises(WrongOption, match="'columns'"):
        readable_schema(options(queue="q", columns="messageId,headers"))


def test_a_schema_of_the_query_may_leave_columns_out_but_not_change_them() -> None:
    check_readable(StructType([StructField("sequenceNumber", LongType())]), options(queue="q"))
    with pytest.raises(WrongColumns, match="'sequenceNumber'"):
        check_readable(StructType([StructField("sequenceNumber", StringType())]), options(queue="q"))


def test_rows_to_write_need_a_body_a_target_and_known_columns() -> None:
    body = StructField("body", StringType())
    check_writable(StructType([body, StructField("entity", StringType())]), options())
    with pytest.raises(WrongOption, match="'queue'"):
        check_writable(StructType([body]), options())
    with pytest.raises(WrongColumns, match="'body'"):
        check_writable(StructType([StructField("subject", StringType())]), options(queue="q"))
    with pytest.raises(WrongColumns, match="'colour'"):
        check_writable(StructType([body, StructField("colour", StringType())]), options(queue="q"))
    with pytest.raises(WrongColumns, match="'timeToLive'"):
        check_writable(StructType([body, StructField("timeToLive", StringType())]), options(queue="q"))


@given(st.one_of(st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 64) - 1), st.text(max_size=200),
                 st.floats(allow_nan=False), st.binary(max_size=200)))  # fmt: skip
def test_a_scalar_is_the_same_as_a_variant(value: object) -> None:
    back = VariantVal(variant_of(value), SCALAR_METADATA).toPython()
    assert back == value
    assert isinstance(back, Decimal) or type(back) is type(value)


def test_a_time_stays_a_time_as_a_variant() -> None:
    back = VariantVal(variant_of(Timestamp(1_700_000_000_123)), SCALAR_METADATA).toPython()
    assert back == datetime.fromtimestamp(1_700_000_000.123, UTC)


def test_properties_as_json_are_json_whatever_they_hold() -> None:
    text = json_of({"a": 1, "b": b"\xff", "c": float("inf"), "d": Timestamp(0), "e": None, "f": "ü"})
    assert text == (
        '{"a": 1, "b": "/w==", "c": "inf", "d": "1970-01-01T00:00:00+00:00", "e": null, "f": "ü"}'
    )


def test_a_row_that_cannot_be_a_message_names_its_column() -> None:
    with pytest.raises(WrongRow, match="'timeToLive'"):
        message_of({"body": b"", "timeToLive": 0}, "id")
    with pytest.raises(WrongRow, match="'properties'"):
        message_of({"body": b"", "properties": "[1]"}, "id")
    with pytest.raises(WrongRow, match="'properties'"):
        message_of({"body": b"", "properties": [("a", [1])]}, "id")


def test_a_row_without_an_id_gets_the_one_of_its_place() -> None:
    for row, expected in (({"body": "x"}, "place"), ({"body": "x", "messageId": "own"}, "own")):
        properties = decode_message(message_of(row, "place")).properties
        assert properties is not None
        assert properties.message_id == expected


@given(st.dictionaries(st.one_of(st.none(), st.text(max_size=5)),
                       st.sets(st.integers(0, (1 << 63) - 1), min_size=1, max_size=40), max_size=4))  # fmt: skip
def test_an_offset_holds_all_numbers_of_its_claim(held: dict[str | None, set[int]]) -> None:
    taken = [(session_id, number) for session_id, numbers in held.items() for number in numbers]
    claim = Claim("q").next_of(taken)
    again = Claim.of_offset(claim.offset(), "q")
    assert (again.number, again.stamp, again.has_sessions) == (
        1,
        claim.stamp,
        bool(held) and None not in held,
    )
    assert set(again.numbers()) == set(claim.numbers()) == {number for _, number in taken}
    assert {key: set(numbers) for key, numbers in claim.held.items()} == held


def test_neighbouring_numbers_take_one_place_in_an_offset() -> None:
    claim = Claim("q").next_of((None, number) for number in [5, 1, 2, 3, 9, 10])
    assert claim.offset()["held"] == [[1, 3], [5, 1], [9, 2]]


@pytest.mark.parametrize(
    "offset",
    [{}, {"claim": "1", "stamp": "", "held": []}, {"entity": "q", "claim": 1, "stamp": "", "held": [[1]]},
     {"entity": "other", "claim": 1, "stamp": "", "held": []}],
)  # fmt: skip
def test_an_offset_of_something_else_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(WrongOffset):
        Claim.of_offset(offset, "q")


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.sets(st.integers(0, 20)))
def test_ranges_cover_every_number_once_whatever_fragments_there_are(a: int, b: int, found: set[int]) -> None:
    """A walk for each range sees all that one walk would see."""
    first, last = min(a, b), max(a, b)
    ranges = ranges_of(first, last, sorted(found))
    assert ranges[0][0] == first
    assert ranges[-1][1] == last
    assert all(before[1] + 1 == after[0] for before, after in pairwise(ranges))
    assert all(start <= end for start, end in ranges)


def test_options_travel_to_executors() -> None:
    given = options(queue="q")
    assert pickle.loads(pickle.dumps(given)) == given


def test_a_number_beyond_64_signed_bits_is_a_decimal() -> None:
    assert VariantVal(variant_of(ULong((1 << 64) - 1)), SCALAR_METADATA).toPython() == (1 << 64) - 1
