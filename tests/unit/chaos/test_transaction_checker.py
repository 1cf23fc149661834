"""The checker of transactions is only worth something if it finds what is planted."""

from __future__ import annotations

from collections import Counter

from tests.chaos.history import FAIL, INFO, OK
from tests.chaos.transaction_checker import Attempt, TransactionHistory, check_transactions

RESULTS = ("job/1/0", "job/1/1")


def history(
    *outcomes: str, found: tuple[str, ...] = (), left: int = 0, glimpsed: tuple[str, ...] = (), sent: str = OK
) -> TransactionHistory:
    """One job; its attempts are numbered from 1."""
    attempts = [
        Attempt("job", (f"job/{number}/0", f"job/{number}/1"), outcome)
        for number, outcome in enumerate(outcomes, 1)
    ]
    return TransactionHistory(
        {"job": sent}, attempts, set(glimpsed), Counter({"job": left} if left else {}), Counter(found)
    )


def found(of: TransactionHistory) -> set[str]:
    return set(check_transactions(of).violations)


def test_what_may_happen_is_no_violation() -> None:
    assert found(history(OK, found=RESULTS, glimpsed=RESULTS)) == set()
    assert found(history(FAIL, left=1)) == set()
    assert found(history(FAIL, OK, found=("job/2/0", "job/2/1"))) == set()
    assert found(history(INFO, found=RESULTS)) == set()
    assert found(history(INFO, left=1)) == set()
    assert found(history(INFO, INFO, found=RESULTS)) == set()
    assert found(history(sent=INFO)) == set()


def test_half_of_the_results_is_torn() -> None:
    assert "txn torn" in found(history(OK, found=RESULTS[:1]))
    assert "txn torn" in found(history(INFO, found=RESULTS[1:]))


def test_results_beside_their_job_are_torn() -> None:
    assert found(history(INFO, found=RESULTS, left=1)) == {"txn torn"}
    assert "txn torn" in found(history(OK, found=RESULTS, left=1))


def test_a_committed_transaction_that_is_not_there_is_lost() -> None:
    assert found(history(OK, left=1)) == {"txn lost"}
    assert found(history(OK)) == {"txn lost", "job lost"}


def test_a_job_without_results_is_lost() -> None:
    assert found(history(FAIL)) == {"job lost"}
    assert found(history(INFO)) == {"job lost"}
    assert found(history()) == {"job lost"}


def test_a_rolled_back_result_is_seen_by_nobody() -> None:
    assert "txn aborted read" in found(history(FAIL, found=RESULTS))
    assert found(history(FAIL, left=1, glimpsed=RESULTS[:1])) == {"txn aborted read"}


def test_what_was_seen_stays() -> None:
    assert found(history(INFO, left=1, glimpsed=RESULTS)) == {"txn vanished"}


def test_nothing_happens_twice() -> None:
    assert found(history(OK, found=(*RESULTS, RESULTS[0]))) == {"txn doubled"}
    assert found(history(OK, OK, found=(*RESULTS, "job/2/0", "job/2/1"))) == {"job done twice"}
    assert found(history(FAIL, left=2)) == {"job doubled"}


def test_strangers_are_noticed() -> None:
    assert found(history(OK, found=(*RESULTS, "nobody's"))) == {"unexpected"}
    stranger = history(OK, found=RESULTS)
    stranger.left["unknown job"] += 1
    assert found(stranger) == {"unexpected"}


def test_counts_tell_how_much_was_done() -> None:
    verdict = check_transactions(history(FAIL, INFO, OK, found=("job/3/0", "job/3/1")))
    assert verdict.counts == {"sent": 1, "received": 2, "rolled back": 1, "unknown": 1}
