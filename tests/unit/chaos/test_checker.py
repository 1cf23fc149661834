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


def test_a_restart_of_the_server_ends_every_lock() -> None:
    again = Operation("receive", "e", 4.0, 4.1, OK, sequence=5, locked_until=32.0)
    held = [
        Operation("send", "e", 1.0, 1.1, OK),
        Operation("receive", "e", 2.0, 2.1, OK, sequence=5, locked_until=32.0),
        again,
        Operation("drain", "e", 9.0, 9.1, OK, sequence=5),
    ]
    assert verdict_of(held) == {"lock overlap": ["e"]}
    assert verdict_of([*held, Operation("restart", "", 3.0, 3.0, OK)]) == {}


def test_a_resend_may_be_stored_again_unless_duplicates_are_detected() -> None:
    history = History()
    history.operations = [
        Operation("send", "a", 1.0, 1.1, INFO),
        Operation("send", "a", 1.2, 1.3, OK),
        Operation("drain", "a", 9.0, 9.1, OK, sequence=1),
        Operation("drain", "a", 9.0, 9.1, OK, sequence=2),
    ]
    assert check(history).holds
    assert dict(check(history, exactly_once=True).violations) == {"stored twice": ["a"]}


def test_a_late_resend_keeps_the_number_of_the_first_send() -> None:
    history = History()
    history.operations = [
        Operation("send", "a", 1.0, 1.1, OK),
        Operation("send", "b", 1.2, 1.3, OK),
        Operation("send", "a", 1.4, 1.5, OK),
        Operation("drain", "a", 9.0, 9.1, OK, sequence=1),
        Operation("drain", "b", 9.0, 9.1, OK, sequence=2),
    ]
    assert check(history, exactly_once=True).holds
