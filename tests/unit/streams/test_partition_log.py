"""Appending to a log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from busway.amqp.decode import decode_value
from busway.amqp.sections import scan
from busway.message.event_chunk import Chunk
from busway.model.errors import (
    EntityDisabled,
    MessageTooLarge,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.model.limits import Limits
from busway.streams.partition_log import CHUNK_BYTES_MAX
from tests.unit.broker.told_journal import ToldJournal
from tests.unit.streams.rig import HubRig, Told, body_of, event, play


async def chunks(rig: HubRig) -> list[Chunk]:
    page = await rig.store.chunks(rig.log.key, 0, 1 << 40)
    return [Chunk(data) for data in page.chunks]


def annotations_of(record: bytes) -> dict[Any, Any]:
    value, _ = decode_value(record, scan(record).message_annotations_at)
    assert isinstance(value, dict)
    return value


def test_events_get_numbers_from_zero_without_gaps() -> None:
    """H-16: also over restarts; the offset is the number's text."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("a", "b")
        await rig.append("c")
        await rig.restart()
        await rig.append("d")
        reader = await rig.read()
        assert reader.numbers == [0, 1, 2, 3]
        assert reader.bodies() == ["a", "b", "c", "d"]
        record = reader.records[3]
        annotations = annotations_of(record)
        assert annotations["x-opt-sequence-number"] == 3
        assert annotations["x-opt-offset"] == "3"
        assert int(annotations["x-opt-enqueued-time"]) == rig.clock.wall_ms()

    play(scenario)


def test_an_empty_partition_says_so() -> None:
    """H-16: begin and last are -1, the offset is '-1'."""

    async def scenario(rig: HubRig) -> None:
        info = rig.log.info()
        assert (info.begin_number, info.last_number, info.last_offset, info.last_at_ms) == (-1, -1, "-1", 0)
        assert info.is_empty
        await rig.append("a", "b")
        info = rig.log.info()
        assert (info.begin_number, info.last_number, info.last_offset) == (0, 1, "1")
        assert info.last_at_ms == rig.clock.wall_ms()
        assert not info.is_empty
        assert info.events == 2
        heads = await rig.store.chunk_heads(rig.log.key, 0, 10)
        assert info.bytes == sum(head.size_bytes for head in heads)

    play(scenario)


def test_information_speaks_of_durable_events_only() -> None:
    """H-27: what is on its way is not there yet."""

    async def scenario(rig: HubRig) -> None:
        rig.store.hold_commits()
        rig.append_later("a")
        await rig.calm()
        info = rig.log.info()
        assert (info.begin_number, info.last_number, info.is_empty) == (-1, -1, True)
        rig.store.release_commits()
        await rig.calm()
        assert rig.log.info().last_number == 0

    play(scenario)


def test_appends_of_one_batch_share_a_chunk() -> None:
    """H-16: one row however many publishers; each is told once, when it is durable."""

    async def scenario(rig: HubRig) -> None:
        told = [rig.append_later(f"{index}a", f"{index}b") for index in range(5)]
        assert not any(each.is_told for each in told)
        await rig.calm()
        assert [each.error for each in told] == [None] * 5
        (chunk,) = await chunks(rig)
        assert (chunk.first_number, chunk.count) == (0, 10)
        assert rig.log.counters.bytes == len(chunk.data)

    play(scenario)


def test_a_large_chunk_is_closed_early() -> None:
    """H-16: above 1 MiB of records another one begins, inside one publication too."""

    async def scenario(rig: HubRig) -> None:
        body = "x" * (CHUNK_BYTES_MAX // 4)
        told = rig.append_later(*[body] * 6)
        more = rig.append_later(*[body] * 3, "last")
        await rig.calm()
        assert told.error is None
        assert more.error is None
        found = await chunks(rig)
        assert [(chunk.first_number, chunk.count) for chunk in found] == [(0, 4), (4, 4), (8, 2)]
        assert rig.log.counters.bytes == sum(len(chunk.data) for chunk in found)
        assert rig.log.counters.events == 10

    play(scenario)


def test_times_never_go_back() -> None:
    """H-16: not with the clock of the machine, not over a restart."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("a")
        rig.clock.step_wall(-3600)
        await rig.append("b")
        await rig.restart()
        rig.clock.step_wall(-3600)
        await rig.append("c")
        rig.clock.step_wall(7201)
        await rig.append("d")
        times = (await rig.read()).times
        assert times[0] == times[1] == times[2] == times[3] - 1000

    play(scenario)


def test_a_refused_append_leaves_no_gap() -> None:
    """S-1: whatever the reason, the number is given to the next."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("a")
        assert isinstance(await rig.append("x" * 2000), MessageTooLarge)
        rig.store.accepts_new_payload = False
        error = await rig.append("b")
        assert isinstance(error, QuotaExceeded)
        assert "disk space" in error.sentence
        rig.store.accepts_new_payload = True
        assert await rig.append("c") is None
        assert (await rig.read()).bodies() == ["a", "c"]
        assert await rig.numbers() == [0, 1]

    play(scenario, Limits(event_bytes_max=1000))


def test_an_append_is_all_or_nothing() -> None:
    """H-17: one event that is too large takes the others along."""

    async def scenario(rig: HubRig) -> None:
        assert isinstance(await rig.append("a", "x" * 2000, "b"), MessageTooLarge)
        assert await rig.numbers() == []

    play(scenario, Limits(event_bytes_max=1000))


def test_a_store_that_writes_at_its_limit_is_busy() -> None:
    """S-1: load is not a lack of space."""

    async def scenario(rig: HubRig) -> None:
        rig.store.hold_commits()
        told = [rig.append_later("x" * 400) for _ in range(10)]
        assert any(isinstance(each.error, ServerBusy) for each in told if each.is_told)
        rig.store.release_commits()
        await rig.calm()
        stored = [each for each in told if each.error is None]
        assert await rig.numbers() == list(range(len(stored)))

    play(scenario, batch_bytes_max=1000)


def test_a_store_that_is_away_is_busy() -> None:
    """H-12: the answer comes at once."""

    async def scenario(rig: HubRig) -> None:
        log = rig.log
        await rig.store.disable()
        assert isinstance(rig.append_later("a", log=log).error, ServerBusy)

    play(scenario)


def test_a_refused_commit_is_told_as_certain() -> None:
    """S-1: nothing was stored, and the number is free again."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("a")
        log = rig.log
        reader = rig.reader(1)
        rig.store.refuse_next_commit()
        told = [rig.append_later("b", log=log), rig.append_later("c", log=log)]
        await rig.calm()
        assert [type(each.error) for each in told] == [ServerBusy, ServerBusy]
        assert len(rig.store_failures) == 1
        assert [type(error) for error in reader.evicted_with] == [ServerBusy]
        assert isinstance(rig.append_later("d", log=log).error, ServerBusy)
        await rig.reopen()
        assert await rig.append("e") is None
        assert (await rig.read()).bodies() == ["a", "e"]
        assert await rig.numbers() == [0, 1]

    play(scenario)


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_unknown_commit_is_told_as_unknown(is_applied: bool) -> None:
    """S-1: afterwards the log goes on with what is there."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("a")
        log = rig.log
        rig.store.lose_next_commit(is_applied=is_applied)
        told = rig.append_later("b", log=log)
        await rig.calm()
        assert isinstance(told.error, StoreOutcomeUnknown)
        await rig.reopen()
        await rig.append("c")
        reader = await rig.read()
        assert reader.bodies() == (["a", "b", "c"] if is_applied else ["a", "c"])
        assert reader.numbers == list(range(len(reader.numbers)))

    play(scenario)


def test_what_gathers_behind_a_failed_commit_fails_too() -> None:
    """S-1: it is certain that it is not stored."""

    async def scenario(rig: HubRig) -> None:
        log = rig.log
        rig.store.hold_commits()
        first = rig.append_later("a", log=log)
        await rig.calm()
        second = rig.append_later("b", log=log)
        rig.store.lose_next_commit(is_applied=True)
        rig.store.release_commits()
        await rig.calm()
        assert isinstance(first.error, StoreOutcomeUnknown)
        assert isinstance(second.error, ServerBusy)
        await rig.reopen()
        assert (await rig.read()).bodies() == ["a"]

    play(scenario)


def test_nothing_is_sent_to_a_hub_that_takes_nothing() -> None:
    """H-2: status SendDisabled."""

    async def scenario(rig: HubRig) -> None:
        assert isinstance(await rig.append("a"), EntityDisabled)

    play(scenario, status="SendDisabled")


def test_no_events_are_stored_at_once() -> None:
    """H-17: an empty batch."""

    async def scenario(rig: HubRig) -> None:
        told = Told()
        rig.log.append([], told)
        assert told.error is None
        assert rig.log.info().last_number == -1

    play(scenario)


def test_one_publisher_that_fails_leaves_the_others_informed() -> None:
    """S-1: a bug at one end stays there."""

    async def scenario(rig: HubRig) -> None:
        def broken(_outcome: object) -> None:
            raise ZeroDivisionError

        rig.log.append([event("a")], broken)
        told = rig.append_later("b")
        reader = rig.reader(0)
        await rig.calm()
        assert told.error is None
        assert reader.bodies() == ["a", "b"]

    play(scenario)


def test_what_flows_is_counted_in_events() -> None:
    """O-6: in when it is durable, out when it is handed out."""

    async def scenario(rig: HubRig) -> None:
        rig.append_later("a", "b", "c")
        assert rig.log.flow.messages_in == 0
        await rig.calm()
        flow = rig.hub.flow
        assert flow.messages_in == 3
        assert flow.bytes_in == sum(event(text).size_bytes() for text in "abc")
        reader = await rig.read()
        assert flow.messages_out == 3
        assert flow.bytes_out == sum(len(record) for record in reader.records)
        assert sum(flow.latency_steps) == 3

    play(scenario)


def test_a_log_of_a_deleted_hub_still_tells_its_publishers() -> None:
    """S-1: the commit was under way."""

    async def scenario(rig: HubRig) -> None:
        log = rig.log
        told = rig.append_later("a")
        log.close(ServerBusy())
        await rig.calm()
        assert told.error is None
        assert isinstance(rig.append_later("b", log=log).error, ServerBusy)

    play(scenario)


def test_records_keep_what_was_sent() -> None:
    """H-16: the partition key, and the body byte for byte."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("body", key="k")
        (record,) = (await rig.read()).records
        annotations = annotations_of(record)
        assert annotations["x-opt-partition-key"] == "k"
        assert body_of(record) == "body"
        (chunk,) = await chunks(rig)
        assert chunk.data[chunk.body_at(0) : chunk.end(0)] == b"body"

    play(scenario)


def test_a_commit_that_ends_after_the_log_is_made_anew_changes_nothing_there() -> None:
    """S-1: the old log's runs belong to it alone."""

    async def scenario(rig: HubRig) -> None:
        rig.store.hold_commits()
        old = rig.log
        rig.append_later("a")
        await rig.calm()
        rig.hub.lose_partition(0, ServerBusy())
        rig.store.release_commits()
        await rig.calm()
        rig.hub.regain_partition(0, await rig.new_log(0))
        assert old.is_closed
        assert await rig.append("b") is None
        assert (await rig.read()).bodies() == ["a", "b"]
        await asyncio.sleep(0)

    play(scenario)


def test_published_events_are_told_to_the_journal_when_they_are_durable() -> None:
    """Journal: one call for each append, with numbers, sizes and keys; none for what is repeated or fails."""

    async def scenario(rig: HubRig) -> None:
        journal = ToldJournal()
        rig.runtime.journal = journal
        rig.append_later("a", "bcd", key="k")
        rig.append_later("e")
        assert journal.told == []
        await rig.calm()
        now_ms = rig.clock.wall_ms()
        assert [(row.number, row.key, row.enqueued_at_ms) for row in journal.told] == [
            (0, "k", now_ms), (1, "k", now_ms), (2, None, now_ms),
        ]  # fmt: skip
        assert {(row.operation, row.path, row.index) for row in journal.told} == {("publish", "clicks", 0)}
        assert journal.told[1].size - journal.told[0].size == 2
        assert journal.calls == 2
        rig.store.refuse_next_commit()
        await rig.append("lost")
        assert journal.calls == 2

    play(scenario)
