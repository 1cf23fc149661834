"""Pages that are made from the code and the tests are up to date, and COMPATIBILITY.md claims what was seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.rules import RULE, proofs, rows
from tests.sdk.programs import PROGRAMS
from tests.sdk.record import recorded

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "COMPATIBILITY.md"
KIB = 1024
RANGE = re.compile(r"([A-Z]+)-(\d+)[a-z]?…\1-(\d+)[a-z]?")
#: What a name in "proved with" means: files of tests/conformance, and programs of tests/sdk.
FILES = {
    "Python": re.compile(r"conformance/test_(?!.*javascript|other_amqp|rules_plain|transactions)"),
    "JavaScript": re.compile(r"conformance/.*javascript"),
    "AMQP": re.compile(r"conformance/test_(other_amqp|rules_plain|transactions|partitioned_transactions)"),
    "HTTP": re.compile(r"conformance/test_(rest|monitoring)|unit/gateway/test_http|unit/signals"),
    "Busway": re.compile(r"unit/"),
}
SDKS = {"Java": "java-", "Go": "go-", "Rust": "rust-", "JMS": "jms", "JavaScript": "javascript-"}
#: Operations of tests/sdk that show a capability.
SHOWN_BY = {
    "Queues": "life_of_a_queue|list_queues",
    "Topics": "life_of_a_topic",
    "Subscriptions": "life_of_a_subscription",
    "Rules": "life_of_a_rule|rules_are_listed_by_name",
    "Names and paths": "dead_letter",
    "Availability and counts": "runtime_of_a_queue",
    "Limits": "too_large",
    "Properties": "every_property_comes_back",
    "Sequence numbers": "peek|sequence_numbers_rise",
    "Time to live": "expire",
    "Send": "send|text_message",
    "Batches": "^batch",
    "Scheduling": "schedule|delayed_delivery",
    "Duplicate detection": "duplicates_are_dropped",
    "Peek-lock, receive-and-delete": "receive|peek_lock|message_listener",
    "Settlement": "dead_letter$|unlock|by_the_client",
    "Locks": "lock",
    "Delivery count": "dead_letters_do_not_count|deferring_counts",
    "Deferral": "defer",
    "Peek": "^peek|browse",
    "HTTP": "peek_lock_and_delete",
    "Dead-letter queues": "dead_letter",
    "Sessions": "session",
    "Forwarding": "forward",
    "Publication": "every_subscription_gets_a_copy|topic_and_subscription|durable_subscription",
    "SQL filters": "sql_filter|life_of_a_rule",
    "Correlation filters": "correlation_filter|life_of_a_rule",
    "Actions": "action_changes_the_copy|life_of_a_rule",
    "JMS": "selector",
    "On one entity": "committed",
    "Across entities": "across_entities",
    "Structure and size": "partitioned_queue",
    "Publishing": "by_key",
    "Reading": "from_a_number",
    "Processors with checkpoints": "processor_goes_on_from_its_checkpoint",
    "Runtime information": "properties_of_a_partition|questions",
    "Keys and tokens": "wrong_key_is_told",
    "Ways in": ".",
    "Errors": "is_told",
}


class Row(NamedTuple):
    capability: str
    proved_with: list[str]
    rules: set[str]


def capabilities() -> list[Row]:
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and RULE.search(cells[4]):
            found.append(Row(cells[0], cells[2].split(", "), expanded(cells[4])))
    return found


def expanded(text: str) -> set[str]:
    """The rules that are named, and those between the ends of a range."""
    named = set(RULE.findall(text))
    for letters, first, last in RANGE.findall(text):
        between = range(int(first), int(last) + 1)
        named |= {
            rule
            for rule in rows()
            if rule.startswith(f"{letters}-") and int(re.findall(r"\d+", rule)[0]) in between
        }
    return named


def worked(sdk: str) -> set[str]:
    """Operations that worked in the last run of the SDK's programs that was written down."""
    _, results = recorded()
    names = [program.name for program in PROGRAMS if SDKS[sdk] in program.name]
    return {
        operation
        for name in names
        for operations in results.get(name, {}).values()
        for operation, passed in operations.items()
        if passed
    }


@pytest.mark.parametrize("script", ["rules.py", "compatibility.py", "settings.py"])
def test_a_generated_page_is_up_to_date_and_complete(script: str) -> None:
    """Documentation: each rule has a test, each run of an SDK is told, each option of `serve` is explained."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_page_can_be_read() -> None:
    """Documentation: a person reads it, so it is short; every capability says what it is made of."""
    assert len(PAGE.read_bytes()) <= 60 * KIB
    assert len(capabilities()) > 45
    known = rows()
    assert [rule for row in capabilities() for rule in row.rules if rule not in known] == []


def test_every_rule_belongs_to_a_capability() -> None:
    """Documentation: nothing that the bus does is missing on the page."""
    told = set().union(*(row.rules for row in capabilities()))
    assert [rule for rule in rows() if rule not in told] == []


def test_what_is_proved_with_a_client_was_seen_with_it() -> None:
    """Documentation: a test that names a rule of the capability, or an operation that worked."""
    tests = proofs()
    unseen = []
    for row in capabilities():
        files = [where for rule in row.rules for where, _ in tests.get(rule, [])]
        for name in row.proved_with:
            is_tested = name in FILES and any(FILES[name].match(where) for where in files)
            shown_by = re.compile(SHOWN_BY.get(row.capability, "(?!)"))
            if not is_tested and not (name in SDKS and any(map(shown_by.search, worked(name)))):
                unseen.append(f"{row.capability}: {name}")
    assert unseen == []
