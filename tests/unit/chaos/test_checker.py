"""The checker is only worth something if it notices: each seeded fault must be found, a clean history must pass."""

from dataclasses import replace

import pytest

from tests.chaos.checker import check
from tests.chaos.history import FAIL, INFO, OK, History, Operation


def clean() -> list[Operation]:
    """Three messages: completed, still stored, sent with an unknown outcome and never seen."""
    return [
        Operation("send", "a", 1.0, 1.1, OK),
        Operation("send", "b", 1.2, 1.3, OK),
        Operation("send", "c", 1.4, 1.5, INFO),
        Operation("send", "d", 1.4, 1.5, FAIL),
        Operation("receive", "a", 2.0, 2.1, OK, sequence=1, locked_until=32.0, session="s"),
        Operation("complete", "a", 2.2, 2.3, OK),
        Operation("receive", "b", 2.4, 2.5, OK, sequence=2, locked_until=32.0, session="s"),
        Operation("abandon", "b", 2.6, 2.7, OK),
        Operation("drain", "b", 9.0, 9.1, OK, sequence=2),
    ]


def verdict_of(operations: list[Operation]) -> dict[str, list[str]]:
    history = History()
    history.operations = sorted(operations, key=lambda operation: operation.invoked)
    return dict(check(history).violations)


def test_a_clean_history_holds() -> None:
    assert verdict_of(clean()) == {}


FAULTS: dict[str, list[Operation]] = {
    "lost": [Operation("send", "x", 3.0, 3.1, OK)],
    "unexpected": [Operation("drain", "x", 9.0, 9.1, OK, sequence=9)],
    "phantom": [Operation("drain", "d", 9.0, 9.1, OK, sequence=9)],
    "resurrected": [Operation("drain", "a", 9.0, 9.1, OK, sequence=1)],
    "completed twice": [Operation("complete", "a", 2.3, 2.4, OK)],
    "delivered after complete": [Operation("receive", "a", 3.0, 3.1, OK, sequence=1)],
    "stored twice": [Operation("drain", "b", 9.2, 9.3, OK, sequence=7)],
    "lock overlap": [Operation("receive", "b", 2.5, 2.55, OK, sequence=2, locked_until=32.0)],
    "sequence reused": [
        Operation("send", "x", 3.0, 3.1, OK),
        Operation("drain", "x", 9.0, 9.1, OK, sequence=2),
    ],
    "sequence not in real time": [
        Operation("send", "x", 3.0, 3.1, OK),
        Operation("send", "y", 3.2, 3.3, OK),
        Operation("drain", "x", 9.0, 9.1, OK, sequence=9),
        Operation("drain", "y", 9.0, 9.1, OK, sequence=8),
    ],
    "session out of order": [
        Operation("send", "x", 0.1, 0.9, INFO),
        Operation("receive", "x", 4.0, 4.1, OK, sequence=0, session="s"),
        Operation("drain", "x", 9.0, 9.1, OK, sequence=0),
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_seeded_fault_is_found(fault: str) -> None:
    assert fault in verdict_of(clean() + FAULTS[fault])


def test_an_answer_that_came_while_the_power_went_does_not_count() -> None:
    history = History()
    history.operations = [replace(clean()[0], done=5.0)]
    assert not check(history).holds
    assert check(history, acknowledged_before=4.0).holds
