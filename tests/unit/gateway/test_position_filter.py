"""Where a reader begins, as clients write it into their source's filter."""

import pytest

from busway.amqp.performatives import Source
from busway.amqp.types import Described, Symbol, ULong
from busway.gateway.amqp.attach.event_attaching import SELECTOR_FILTER, position_in, position_of
from busway.model.errors import BadArgument, NotImplementedByServer
from busway.streams.cursor import LATEST, NUMBER, START, TIME, Position


def facts(position: Position) -> tuple[int, int, bool, bool]:
    return position.kind, position.value, position.is_inclusive, position.is_offset


def selector(text: object, descriptor: object = SELECTOR_FILTER) -> Source:
    return Source("hub", filter={SELECTOR_FILTER: Described(descriptor, text)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp.annotation.x-opt-offset > '-1'", (START, -1, False, False)),
        ("amqp.annotation.x-opt-offset > '@latest'", (LATEST, -1, False, False)),
        ("amqp.annotation.x-opt-offset > '42'", (NUMBER, 42, False, True)),
        ("amqp.annotation.x-opt-offset >= '42'", (NUMBER, 42, True, True)),
        ("amqp.annotation.x-opt-sequence-number > '7'", (NUMBER, 7, False, False)),
        ("amqp.annotation.x-opt-sequence-number >= '0'", (NUMBER, 0, True, False)),
        ("amqp.annotation.x-opt-sequence-number > '-1'", (START, -1, False, False)),
        ("amqp.annotation.x-opt-enqueued-time > '1700000000000'", (TIME, 1700000000000, False, False)),
        ("amqp.annotation.x-opt-enqueued-time >= '1700000000000'", (TIME, 1700000000000, True, False)),
        ("  amqp.annotation.x-opt-offset>'5' ", (NUMBER, 5, False, True)),
    ],
)
def test_every_comparison_that_clients_write_is_read(
    text: str, expected: tuple[int, int, bool, bool]
) -> None:
    """H-20: every comparison that clients write is read."""
    assert facts(position_in(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "amqp.annotation.x-opt-offset",
        "amqp.annotation.x-opt-offset > 5",
        "amqp.annotation.x-opt-offset < '5'",
        "amqp.annotation.x-opt-offset = '5'",
        "amqp.annotation.x-opt-offset > '5' OR 1=1",
        "amqp.annotation.x-opt-offset > '5'' '",
        "amqp.annotation.x-opt-offset > 'five'",
        "amqp.annotation.x-opt-offset > '٥'",
        "amqp.annotation.x-opt-offset > '-2'",
        "amqp.annotation.x-opt-sequence-number > '99999999999999999999'",
        "amqp.annotation.x-opt-sequence-number > '@latest'",
        "amqp.annotation.x-opt-enqueued-time > 'yesterday'",
        "amqp.annotation.x-opt-partition-key > '1'",
        "amqp.annotation.x-opt-offset > '" + "1" * 300 + "'",
    ],
)
def test_a_selector_that_cannot_be_read_is_refused(text: str) -> None:
    """H-20, H-22: never read as something else."""
    with pytest.raises(BadArgument):
        position_in(text)


@pytest.mark.parametrize("descriptor", [SELECTOR_FILTER, ULong(0x0000468C00000004)])
def test_the_filter_is_known_by_its_name_and_by_its_number(descriptor: object) -> None:
    """H-20: Python describes it by the symbol, JavaScript by the number."""
    found = position_of(selector("amqp.annotation.x-opt-offset > '3'", descriptor))
    assert facts(found) == (NUMBER, 3, False, True)


def test_a_filter_that_is_not_described_counts_by_its_key() -> None:
    """H-20: a filter that is not described counts by its key."""
    source = Source("hub", filter={SELECTOR_FILTER: "amqp.annotation.x-opt-offset > '3'"})
    assert facts(position_of(source)) == (NUMBER, 3, False, True)


@pytest.mark.parametrize("source", [None, Source("hub"), Source("hub", filter={}), selector(None)])
def test_without_a_position_a_reader_begins_at_the_start(source: Source | None) -> None:
    """H-20: without a position a reader begins at the start."""
    if source is not None and source.filter:
        source = Source("hub", filter={SELECTOR_FILTER: None})
    assert position_of(source).kind == START


def test_other_filters_are_refused_by_name() -> None:
    """H-20: a filter that is not applied would deliver what its author excluded."""
    source = Source("hub", filter={Symbol("com.microsoft:session-filter"): "s"})
    with pytest.raises(NotImplementedByServer, match="session-filter"):
        position_of(source)


@pytest.mark.parametrize("value", [5, b"bytes", Symbol("amqp.annotation.x-opt-offset > '3'"), ["a"]])
def test_a_selector_that_is_no_string_is_refused(value: object) -> None:
    """H-20: a selector that is no string is refused."""
    with pytest.raises(BadArgument, match="string"):
        position_of(selector(value))
