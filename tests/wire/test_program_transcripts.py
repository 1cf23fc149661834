"""What the SDKs of other languages say, replayed into the gateway: it is understood as it was when they said it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from busway.amqp.performatives import Close, Detach, Disposition, End, Rejected
from tests.harness.frame_factory import performatives
from tests.wire.hub_service import Step, load
from tests.wire.program_service import FOLDER, service_of

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))
#: How many of these are written depends on how bytes arrive.
_UNSTEADY = ("Flow", "Disposition")


def replay(path: Path, step_bytes: int = 1 << 30) -> list[Step]:
    async def run() -> list[Step]:
        service = service_of(path)
        await service.open()
        answers: list[Step] = []
        try:
            for _, number, data in (step for step in load(path) if step[0] == "C"):
                for at in range(0, len(data), step_bytes):
                    answers += await service.do(("C", number, data[at : at + step_bytes]))
        finally:
            await service.close()
        return answers

    return asyncio.run(run())


def told(steps: list[Step]) -> tuple[Counter[str], list[str]]:
    """How many frames of each kind were written, and the condition of each error."""
    written: dict[int, bytes] = {}
    for _, number, data in steps:
        written[number] = written.get(number, b"") + data
    frames = [frame for data in written.values() for frame in performatives(data)]
    names = Counter(type(frame).__name__ for frame in frames)
    errors = [frame.error for frame in frames if isinstance(frame, Close | Detach | End)]
    errors += [
        frame.state.error
        for frame in frames
        if isinstance(frame, Disposition) and isinstance(frame.state, Rejected)
    ]
    conditions = sorted(str(error.condition) for error in errors if error is not None)
    return Counter({name: names[name] for name in names if name not in _UNSTEADY}), conditions


def test_there_are_transcripts() -> None:
    """SDK: of Go, Java, JavaScript, Rust and JMS."""
    first_words = {path.stem.partition("-")[0] for path in TRANSCRIPTS}
    assert first_words == {"go", "java", "javascript", "rust", "qpid", "azure"}


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_program_is_understood_as_it_was(path: Path) -> None:
    """SDK: as many frames of each kind as it was happy with, and no other error."""
    assert told(replay(path)) == told([step for step in load(path) if step[0] == "S"])


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_slices_change_nothing_that_matters(path: Path) -> None:
    """L-20: the same frames, however the bytes arrive."""
    assert told(replay(path, 97)) == told(replay(path))
