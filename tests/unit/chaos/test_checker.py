"""The checker is only worth something if it notices: each seeded fault must be found, a clean history must pass."""

from dataclasses import replace

import pytest

from tests.chaos.checker import ASKED_TWICE_S, check
from tests.chaos.history import CUT, FAIL, INFO, LOCK_LOST, OK, RESTART, History, Operation


def clean() -> list[Operation]:
    """Three messages: completed, still stored, sent with an unknown outcome and never seen."""
    return [
        Operation("send", "a", 1.0, 1.1, OK),
        Operation("send", "b", 1.2, 1.3, OK),
        Operation("send", "c", 1.4, 1.5, INFO),
        Operation("send", "d", 1.4, 1.5, FAIL),
        Operation("accept", "h1", 1.6, 1.9, OK, session="s", locked_until=32.0),
        Operation("receive", "a", 2.0, 2.1, OK, sequence=1, locked_until=32.0, session="s", hold="h1"),
        Operation("complete", "a", 2.2, 2.3, OK, hold="h1"),
        Operation("receive", "b", 2.4, 2.5, OK, sequence=2, locked_until=32.0, session="s", hold="h1"),
        Operation("abandon", "b", 2.6, 2.7, OK, hold="h1"),
        Operation("accept", "h2", 2.0, 3.0, OK, session="s", locked_until=33.0),
        Operation("drain", "b", 9.0, 9.1, OK, sequence=2, session="s"),
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
    "settled after its lock": [
        Operation("send", "x", 3.0, 3.1, OK),
        Operation("receive", "x", 3.2, 3.3, OK, sequence=9, locked_until=4.0, consumer="c"),
        Operation("complete", "x", 4.1, 4.2, OK, consumer="c"),
    ],
    "settled after its session's lock": [
        Operation("send", "x", 3.0, 3.1, OK),
        Operation("accept", "h3", 3.1, 3.2, OK, session="t", locked_until=4.0),
        Operation("receive", "x", 3.2, 3.3, OK, sequence=9, session="t", hold="h3"),
        Operation("complete", "x", 4.1, 4.2, OK, hold="h3"),
    ],
    "key out of order": [
        Operation("send", "x", 3.0, 3.1, OK, key="k", consumer="p"),
        Operation("send", "y", 3.2, 3.3, OK, key="k", consumer="p"),
        Operation("drain", "x", 9.0, 9.1, OK, sequence=12),
        Operation("drain", "y", 9.0, 9.1, OK, sequence=11),
    ],
    "key in two fragments": [
        Operation("send", "x", 3.0, 3.1, OK, key="k", consumer="p"),
        Operation("send", "y", 3.2, 3.3, OK, key="k", consumer="q"),
        Operation("drain", "x", 9.0, 9.1, OK, sequence=12),
        Operation("drain", "y", 9.0, 9.1, OK, sequence=(1 << 48) + 13),
    ],
    "session held twice": [
        Operation("send", "x", 3.0, 3.1, OK),
        Operation("accept", "h3", 2.0, 2.5, OK, session="s", locked_until=32.0),
        Operation("receive", "x", 3.2, 3.3, OK, sequence=9, session="s", hold="h3"),
        Operation("complete", "x", 3.4, 3.5, OK, hold="h3"),
    ],
    "session skipped a message": [
        Operation("send", "x", 3.0, 3.1, OK),
        Operation("receive", "x", 3.2, 3.3, OK, sequence=9, session="s", hold="h2", alone=True),
        Operation("complete", "x", 3.4, 3.5, OK, hold="h2"),
    ],
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
    assert verdict_of([*held, Operation(RESTART, "", 3.0, 3.2, OK)]) == {}
    assert verdict_of([*held, Operation(RESTART, "", 5.0, 5.2, OK)]) == {"lock overlap": ["e"]}


def test_a_cut_connection_ends_no_lock() -> None:
    """R-19: the lock outlives the link."""
    held = [
        Operation("send", "e", 1.0, 1.1, OK),
        Operation("receive", "e", 2.0, 2.1, OK, sequence=5, locked_until=32.0),
        Operation(CUT, "", 3.0, 3.0, OK),
        Operation("receive", "e", 4.0, 4.1, OK, sequence=5, locked_until=32.0),
        Operation("drain", "e", 9.0, 9.1, OK, sequence=5),
    ]
    assert verdict_of(held) == {"lock overlap": ["e"]}


def test_only_the_holders_own_settlement_frees_a_message() -> None:
    refused = Operation("complete", "e", 3.0, 3.1, FAIL, consumer="c1", error=LOCK_LOST)
    held = [
        Operation("send", "e", 1.0, 1.1, OK),
        Operation("receive", "e", 2.0, 2.1, OK, sequence=5, locked_until=32.0, consumer="c1"),
        Operation("receive", "e", 4.0, 4.1, OK, sequence=5, locked_until=32.0, consumer="c2"),
        Operation("drain", "e", 9.0, 9.1, OK, sequence=5),
    ]
    assert verdict_of([*held, refused]) == {"lock overlap": ["e"]}
    others = Operation("abandon", "e", 3.0, 3.1, OK, consumer="c2")
    assert verdict_of([*held, others]) == {"lock overlap": ["e"]}
    assert verdict_of([*held, replace(others, consumer="c1")]) == {}


@pytest.mark.parametrize("broken", [RESTART, CUT])
def test_a_lost_lock_is_a_certain_no_unless_something_broke_meanwhile(broken: str) -> None:
    """X-10, R-17: a completion that was refused was not applied, so the message must be somewhere."""
    gone = [
        Operation("send", "e", 1.0, 1.1, OK),
        Operation("receive", "e", 2.0, 2.1, OK, sequence=5, session="s"),
        Operation("complete", "e", 3.0, 3.5, FAIL, error=LOCK_LOST),
    ]
    assert verdict_of(gone) == {"lost": ["e"]}
    assert verdict_of([*gone, Operation(broken, "", 2.0, 2.9, OK)]) == {"lost": ["e"]}
    assert verdict_of([*gone, Operation(broken, "", 3.2, 3.2, OK)]) == {}
    assert verdict_of([*gone, Operation(broken, "", 2.9, 3.0, OK)]) == {}


def test_a_lost_lock_after_a_minute_of_silence_is_the_answer_to_a_second_question() -> None:
    gone = [
        Operation("send", "e", 1.0, 1.1, OK),
        Operation("complete", "e", 3.0, 3.0 + ASKED_TWICE_S - 1, FAIL, error=LOCK_LOST),
    ]
    assert verdict_of(gone) == {"lost": ["e"]}
    assert verdict_of([gone[0], replace(gone[1], done=3.0 + ASKED_TWICE_S)]) == {}


def test_an_abandoned_message_of_a_session_comes_again_before_later_ones() -> None:
    """X-12: whoever takes one at a time sees it."""
    first = Operation("receive", "a", 2.0, 2.1, OK, sequence=1, session="s", alone=True)
    second = Operation("receive", "b", 2.6, 2.7, OK, sequence=2, session="s", alone=True)
    sent = [Operation("send", "a", 1.0, 1.1, OK), Operation("send", "b", 1.2, 1.3, OK)]
    left = [
        Operation("drain", "a", 9.0, 9.1, OK, sequence=1, session="s"),
        Operation("drain", "b", 9.0, 9.1, OK, sequence=2, session="s"),
    ]
    abandoned = Operation("abandon", "a", 2.2, 2.3, OK)
    assert verdict_of([*sent, first, abandoned, second, *left]) == {"session skipped a message": ["b"]}
    prefetched = replace(second, alone=False)
    assert verdict_of([*sent, first, abandoned, prefetched, *left]) == {}
    completed = Operation("complete", "a", 2.4, 2.5, OK)
    again = replace(first, invoked=2.3, done=2.4)
    assert verdict_of([*sent, first, abandoned, again, completed, second, left[1]]) == {}


def test_a_session_may_change_hands_after_its_last_granted_settlement() -> None:
    handed_over = [
        Operation("send", "x", 0.1, 0.2, OK),
        Operation("accept", "h1", 1.0, 1.1, OK, session="s", locked_until=9.0),
        Operation("complete", "x", 2.0, 2.1, OK, hold="h1"),
        Operation("complete", "y", 2.6, 2.7, INFO, hold="h1"),
        Operation("accept", "h2", 1.0, 2.5, OK, session="s", locked_until=9.0),
        Operation("abandon", "y", 2.8, 2.9, OK, hold="h2"),
    ]
    assert verdict_of(handed_over) == {}


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


def test_numbers_of_different_fragments_say_nothing_about_each_other() -> None:
    """M-36: each fragment counts for itself; producers with the same key have no order among them."""
    operations = [
        Operation("send", "x", 3.0, 3.1, OK),
        Operation("send", "y", 3.2, 3.3, OK),
        Operation("send", "z", 3.4, 3.5, OK, key="k", consumer="p"),
        Operation("send", "w", 3.4, 3.45, OK, key="k", consumer="q"),
        Operation("drain", "x", 9.0, 9.1, OK, sequence=(3 << 48) + 1),
        Operation("drain", "y", 9.0, 9.1, OK, sequence=(1 << 48) + 1),
        Operation("drain", "z", 9.0, 9.1, OK, sequence=(2 << 48) + 2),
        Operation("drain", "w", 9.0, 9.1, OK, sequence=(2 << 48) + 1),
    ]
    assert verdict_of(operations) == {}
