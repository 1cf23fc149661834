"""Policies for dead letters, without Spark: what a file may say, and what becomes of a message by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from busway_spark.pipeline.deadletters.triage import (
    LEAVE,
    QUARANTINE,
    RESUBMIT,
    Policy,
    PolicyRule,
    WrongPolicy,
    action_of,
    quarantine,
    resubmission,
)
from tests.harness.shell import Shell

WHOLE = """
create = true
[[rule]]
reason = "Timeout"
budget = 3
backoff = "30s"
backoff_max = "5m"
quarantine = "/bad/"
[[rule]]
where = "deliveryCount > 3"
fingerprint = "it is <n>"
entity = "orders"
budget = 0
"""


def test_a_policy_is_read_from_its_file(tmp_path: Path) -> None:
    """Triage: every word of it."""
    path = tmp_path / "policy.toml"
    path.write_text(WHOLE)
    policy = Policy.read(path)
    assert policy.creates
    assert policy.quarantines() == ["bad"]
    assert policy.rules == (
        PolicyRule(3, "Timeout", backoff_s=30, backoff_max_s=300, quarantine="bad"),
        PolicyRule(0, None, "it is <n>", "orders", "deliveryCount > 3"),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x =", "it is no TOML"),
        ("", "there is no [[rule]] in it"),
        ("rule = 3", "there is no [[rule]] in it"),
        ("create = 1\n[[rule]]\nbudget = 1", "create must be true or false"),
        ("colour = 1", "A policy has no 'colour'; there are create, rule"),
        ("[[rule]]\nbudgt = 1", "rule 1 has no 'budgt'"),
        ("[[rule]]\nreason = 'x'", "rule 1: budget must say how often"),
        ("[[rule]]\nbudget = -1", "rule 1: budget must say how often"),
        ("[[rule]]\nbudget = true", "rule 1: budget must say how often"),
        ("[[rule]]\nbudget = 1\nreason = 7", "rule 1: reason must be a text"),
        ("[[rule]]\nbudget = 1\nquarantine = ' '", "rule 1: quarantine must be a text"),
        ("[[rule]]\nbudget = 1\nbackoff = 'soon'", "backoff 'soon' is no time such as 30s"),
        ("[[rule]]\nbudget = 1\nbackoff = '999d'", "backoff is longer than a year"),
        ("[[rule]]\nbudget = 1\nbackoff = '2h'\nbackoff_max = '1h'", "backoff_max is shorter"),
    ],
)
def test_what_is_wrong_with_a_policy_is_a_sentence(text: str, sentence: str) -> None:
    """Errors help: which rule, and what it may say."""
    with pytest.raises(WrongPolicy) as caught:
        Policy.parse(text)
    assert sentence in str(caught.value)


def test_a_policy_that_cannot_be_used_ends_the_command_before_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors help: the file is named; one that is missing, too."""
    path = tmp_path / "policy.toml"
    call = ["pipeline", "triage", "orders", "--policy", str(path)]
    assert "cannot be read" in Shell(capsys)(*call, code=2)
    path.write_text("[[rule]]\n")
    assert "rule 1: budget must say" in " ".join(Shell(capsys)(*call, code=2).split())


def test_a_budget_that_is_used_up_leads_into_quarantine_or_nowhere() -> None:
    """Triage: counted by the message; what no rule fits is left."""
    rule = PolicyRule(2, quarantine="bad")
    assert [action_of(rule, count) for count in range(4)] == [RESUBMIT, RESUBMIT, QUARANTINE, QUARANTINE]
    assert action_of(PolicyRule(1), 1) == LEAVE
    assert action_of(PolicyRule(0, quarantine="bad"), 0) == QUARANTINE
    assert action_of(None, 0) == LEAVE


def test_each_try_waits_twice_as_long_up_to_a_bound_and_not_with_all_others() -> None:
    """Triage: half of it or more, the same at every look at the same message, and others for others."""
    rule = PolicyRule(9, backoff_s=10, backoff_max_s=60)
    for count, whole_s in enumerate((10, 20, 40, 60, 60)):
        delays = {rule.delay_ms(count, f"orders/{number}") for number in range(50)}
        assert all(whole_s * 500 <= delay <= whole_s * 1000 for delay in delays)
        assert len(delays) > 40
        assert rule.delay_ms(count, "orders/7") == rule.delay_ms(count, "orders/7")
    assert PolicyRule(9).delay_ms(3, "orders/7") == 0
    assert rule.delay_ms(1_000_000, "orders/7") <= 60_000


def test_the_count_and_the_first_time_are_written_into_the_message() -> None:
    """Triage: nothing is remembered anywhere else."""
    once = resubmission(PolicyRule(3), 0, None, 5_000, "orders/1")
    assert once == {"properties.busway-resubmitted": 1, "properties.busway-resubmitted-first": 5_000}
    again = resubmission(PolicyRule(3, backoff_s=1), 1, 5_000, 9_000, "orders/1")
    assert again.pop("delay") in range(1_000, 2_001)
    assert again == {"properties.busway-resubmitted": 2, "properties.busway-resubmitted-first": 5_000}
    assert quarantine("Timeout", None, "orders", 7_000) == {
        "properties.busway-quarantined": 7_000,
        "properties.busway-dead-letter-reason": "Timeout",
        "properties.busway-dead-letter-description": None,
        "properties.busway-dead-letter-source": "orders",
    }
