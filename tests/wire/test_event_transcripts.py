"""What the Python SDK says to an event hub, replayed into the gateway: the same bytes come out."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from busway.amqp.performatives import Attach, Detach, Transfer
from busway.amqp.sections import decode_message
from busway.amqp.types import Described
from busway.gateway.amqp.attach.event_attaching import SELECTOR_FILTER
from busway.message.event_chunk import Chunk
from busway.streams.key_hash import partition_of_key
from tests.harness.frame_factory import performatives, split_frames
from tests.wire.hub_service import FOLDER, HubService, Step, load

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))
READER_ADDRESS = "/hub/ConsumerGroups/$Default/Partitions/0"


def replay(name: str, step_bytes: int = 1 << 30) -> tuple[list[Step], list[list[bytes]]]:
    """What is answered, and the bodies that each partition holds in the end."""

    async def run() -> tuple[list[Step], list[list[bytes]]]:
        service = HubService()
        await service.open()
        try:
            answers: list[Step] = []
            for kind, number, data in load(FOLDER / f"{name}.txt"):
                if kind == "S":
                    continue
                slice_bytes = step_bytes if kind == "C" else len(data)
                for at in range(0, len(data), slice_bytes):
                    answers += await service.do((kind, number, data[at : at + slice_bytes]))
            return answers, [await _bodies(service, index) for index in range(2)]
        finally:
            await service.close()

    return asyncio.run(run())


async def _bodies(service: HubService, index: int) -> list[bytes]:
    page = await service.log(index).page(0, 1 << 20)
    return [
        b"".join(decode_message(chunk.record(place)).body)
        for chunk in map(Chunk, page.chunks)
        for place in range(chunk.count)
    ]


def said(name: str, kind: str, number: int) -> bytes:
    """By the client (C) or to it (S) on one connection."""
    return b"".join(data for who, at, data in load(FOLDER / f"{name}.txt") if (who, at) == (kind, number))


def test_there_are_transcripts() -> None:
    assert [path.stem for path in TRANSCRIPTS] == [
        "python_consumer",
        "python_producer",
        "python_questions",
        "python_stolen_consumer",
    ]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_replay_writes_the_recorded_bytes(path: Path) -> None:
    """L-20, H-16, H-20, H-24, H-27: every byte that the SDK understood then is written again."""
    answers, _ = replay(path.stem)
    assert answers == [step for step in load(path) if step[0] == "S"]


@pytest.mark.parametrize("step_bytes", [1, 7, 1_000])
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_slices_change_nothing_that_matters(path: Path, step_bytes: int) -> None:
    """L-20: the same frames, however the bytes arrive; only how much is granted at once may differ."""

    def kinds(steps: list[Step]) -> Counter[str]:
        written = [performatives(data) for _, _, data in steps]
        names = [type(each).__name__ for some in written for each in some]
        return Counter(name for name in names if name not in ("Flow", "Disposition"))

    whole, bodies = replay(path.stem)
    sliced, others = replay(path.stem, step_bytes)
    assert kinds(sliced) == kinds(whole)
    assert others == bodies


def test_the_producer_is_understood() -> None:
    """H-10, H-11, H-12, H-17: by key, by partition, anywhere."""
    _, stored = replay("python_producer")
    by_key = partition_of_key("a key", 2)
    assert b"keyed" in stored[by_key]
    at = stored[1].index(b"first")
    assert stored[1][at : at + 2] == [b"first", b"second"]
    assert sorted(stored[0] + stored[1]) == [b"anywhere", b"first", b"keyed", b"second"]


def test_the_consumer_asks_with_a_selector_and_gets_settled_events_with_metrics() -> None:
    """H-20, H-21, H-26: from a number on, with what the SDK calls last enqueued event properties."""
    attaches = [each for each in performatives(said("python_consumer", "C", 2)) if isinstance(each, Attach)]
    sources = [each.source for each in attaches if each.source is not None]
    [filters] = [each.filter for each in sources if str(each.address).endswith(READER_ADDRESS)]
    assert filters is not None
    wanted = filters[SELECTOR_FILTER]
    assert isinstance(wanted, Described)
    assert wanted.value == "amqp.annotation.x-opt-sequence-number >= '1'"
    answers, _ = replay("python_consumer")
    written = b"".join(data for _, number, data in answers if number == 2)
    events = [
        (each, decode_message(payload))
        for _, _, each, payload in split_frames(written)
        if isinstance(each, Transfer) and payload[:3] == b"\x00\x53\x71"
    ]
    assert [b"".join(event.body) for _, event in events] == [b"1", b"2", b"later"]
    assert all(transfer.settled and transfer.delivery_tag == b"" for transfer, _ in events)
    lasts = [(event.delivery_annotations or {})["last_enqueued_sequence_number"] for _, event in events]
    assert lasts == [2, 2, 3]


def test_a_stolen_consumer_is_told_by_whom() -> None:
    """H-24: amqp:link:stolen, with both epochs."""
    answers, _ = replay("python_stolen_consumer")
    detaches = [
        each.error
        for _, _, data in answers
        for each in performatives(data)
        if isinstance(each, Detach) and each.error is not None
    ]
    [error] = detaches
    assert error.condition == "amqp:link:stolen"
    assert (error.description or "").startswith(
        "New receiver 'nil' with higher epoch of '4' is created hence current receiver 'nil' with epoch '3'"
    )


def test_questions_are_answered() -> None:
    """H-27: a hub, a partition with an event, one without, one that is not there."""
    answers, _ = replay("python_questions")
    messages = [
        decode_message(payload)
        for _, _, data in answers
        for _, _, each, payload in split_frames(data)
        if isinstance(each, Transfer)
    ]
    told = [((each.application_properties or {})["status-code"], each.body) for each in messages]
    found = [(status, body) for status, body in told if status != 202]  # that of a token
    statuses = [status for status, _ in found]
    assert statuses == [200, 200, 200, 400]
    hub, full, empty = [body for _, body in found[:3]]
    assert (hub["name"], hub["partition_ids"].items, hub["partition_count"]) == ("hub", ["0", "1"], 2)
    assert (full["begin_sequence_number"], full["last_enqueued_sequence_number"]) == (0, 0)
    assert (full["last_enqueued_offset"], full["is_partition_empty"]) == ("0", False)
    assert (empty["last_enqueued_sequence_number"], empty["is_partition_empty"]) == (-1, True)
