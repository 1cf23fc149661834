"""Where a reader begins."""

from __future__ import annotations

import pytest

from busway.model.errors import BadArgument, ServerBusy
from busway.streams.cursor import (
    LATEST,
    NUMBER,
    START,
    TIME,
    Position,
    position_of_number,
    position_of_offset,
    position_of_time,
)
from tests.unit.streams.rig import HubRig, play


def test_offsets_are_texts_of_numbers_and_two_words() -> None:
    """H-20: '-1' is the start, '@latest' the end, whatever the comparison."""
    assert position_of_offset("-1", False).kind == START
    assert position_of_offset("-1", True).kind == START
    assert position_of_offset("@latest", False).kind == LATEST
    found = position_of_offset("12", True)
    assert (found.kind, found.value, found.is_inclusive, found.is_offset) == (NUMBER, 12, True, True)


def test_numbers_and_times_are_read() -> None:
    """H-20: sequence numbers and milliseconds."""
    number = position_of_number("9223372036854775807", False)
    assert (number.kind, number.value, number.is_inclusive) == (NUMBER, (1 << 63) - 1, False)
    assert position_of_number("-1", False).kind == START
    time = position_of_time("1700000000000", True)
    assert (time.kind, time.value, time.is_inclusive) == (TIME, 1_700_000_000_000, True)
    assert position_of_time("-62135596800000", False).kind == START


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "+1", "-2", "1.0", "٣", "²", "1" * 20, "9223372036854775808", "@end", "0x1"]
)
def test_what_is_no_position_is_refused(text: str) -> None:
    """H-20: a text that no client writes."""
    for read in (position_of_offset, position_of_number):
        with pytest.raises(BadArgument):
            read(text, False)
    if text != "-2":
        with pytest.raises(BadArgument):
            position_of_time(text, False)


def test_a_long_text_does_not_come_back_whole() -> None:
    """H-20: sentences are bounded."""
    with pytest.raises(BadArgument) as caught:
        position_of_offset("x" * 10_000, False)
    assert len(caught.value.sentence) < 500


async def starts(rig: HubRig, *positions: Position) -> list[int]:
    return [await rig.log.start_number(position) for position in positions]


def test_a_position_is_found_by_number() -> None:
    """H-20: behind it, or with it."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("a", "b")
        await rig.append("c", "d")
        assert await starts(rig, Position(START), Position(LATEST)) == [0, 4]
        assert await starts(rig, Position(NUMBER, 0), Position(NUMBER, 0, True)) == [1, 0]
        assert await starts(rig, Position(NUMBER, 3), Position(NUMBER, 3, True)) == [4, 3]

    play(scenario)


def test_a_position_behind_the_end_is_refused_in_known_words() -> None:
    """H-22: greater than the last number, with or without it."""

    async def scenario(rig: HubRig) -> None:
        with pytest.raises(BadArgument) as caught:
            await rig.log.start_number(position_of_number("0", False))
        assert caught.value.sentence == (
            "The supplied sequence number '0' is invalid. The last sequence number in the system is '-1'"
        )
        await rig.append("a", "b")
        for inclusive in (False, True):
            with pytest.raises(BadArgument) as caught:
                await rig.log.start_number(position_of_offset("2", inclusive))
            assert caught.value.sentence == (
                "The supplied offset '2' is invalid. The last offset in the system is '1'"
            )

    play(scenario)


def test_an_empty_partition_is_read_from_its_start_or_its_end() -> None:
    """H-22: '-1' and '@latest' always exist."""

    async def scenario(rig: HubRig) -> None:
        at = [position_of_offset("-1", False), position_of_offset("@latest", False)]
        assert await starts(rig, *at) == [0, 0]

    play(scenario)


def test_what_is_not_durable_yet_is_no_position() -> None:
    """H-22: the end is behind the last durable event."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("a")
        rig.store.hold_commits()
        rig.append_later("b")
        await rig.calm()
        assert await starts(rig, Position(LATEST), Position(NUMBER, 0)) == [1, 1]
        with pytest.raises(BadArgument):
            await rig.log.start_number(Position(NUMBER, 1, True))
        rig.store.release_commits()
        await rig.calm()
        assert await starts(rig, Position(NUMBER, 1, True)) == [1]

    play(scenario)


def test_a_time_is_found_inside_a_chunk() -> None:
    """H-20: the first event of that time, or later; behind the last there is the end."""

    async def scenario(rig: HubRig) -> None:
        first_ms = rig.clock.wall_ms()
        rig.store.hold_commits()
        rig.append_later("0", "1")
        await rig.calm()  # the next ones gather in one batch
        for text in ("2", "3", "4"):
            rig.clock.advance(1)
            rig.append_later(text)
        rig.store.release_commits()
        await rig.calm()
        assert len(await rig.store.chunk_heads(rig.log.key, 0, 10)) == 2
        expected = {first_ms: 0, first_ms + 1: 2, first_ms + 2000: 3, first_ms + 2001: 4, first_ms + 3000: 4}
        for at_ms, number in expected.items():
            assert await rig.log.start_number(Position(TIME, at_ms, True)) == number
            assert await rig.log.start_number(Position(TIME, at_ms - 1)) == number
        assert await starts(rig, Position(TIME, first_ms + 3001, True), Position(TIME, 1 << 60)) == [5, 5]
        assert await starts(rig, Position(TIME, 0)) == [0]

    play(scenario)


def test_a_time_in_a_damaged_chunk_begins_with_it() -> None:
    """H-20: so that the reader hears of the damage."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b", "c")
        rig.store.damaged = {1}
        rig.clock.advance(1)
        await rig.fill("d")
        last_ms = rig.clock.wall_ms()
        assert await starts(rig, Position(TIME, last_ms, True)) == [3]
        rig.store.damaged = {0, 1, 2, 3}
        assert await starts(rig, Position(TIME, last_ms, True), Position(TIME, 0)) == [3, 0]

    play(scenario)


def test_a_position_older_than_what_is_kept_begins_with_the_oldest() -> None:
    """H-22: after events have left."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b")
        await rig.advance(3600.0 * 100)
        await rig.fill("c")
        await rig.advance(3600.0 * 69)
        assert rig.log.info().begin_number == 2
        assert await starts(rig, Position(START), Position(NUMBER, 0), Position(TIME, 5)) == [2, 2, 2]

    play(scenario)


def test_a_time_cannot_be_looked_up_while_the_store_is_away() -> None:
    """H-20: the client is told to try again."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a")
        log = rig.log
        await rig.store.disable()
        with pytest.raises(ServerBusy):
            await log.start_number(Position(TIME, 0))

    play(scenario)
