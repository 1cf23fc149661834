"""The checks of the simulator that the checker of chaos does not have, on histories made by hand."""

from __future__ import annotations

import pytest

from tests.chaos.history import FAIL, INFO, OK
from tests.simulator.journal import Act, Ended, Journal, Seen, Sent
from tests.simulator.topology import ALL_TRAITS, bare_of, index_of_key
from tests.simulator.verdict import judge
from tests.simulator.virtual_time import VirtualClock, VirtualLoop

_TRAITS = ALL_TRAITS[0]


class Story:
    """Tells what happened, one thing after the other."""

    def __init__(self) -> None:
        loop = VirtualLoop()
        loop.close()
        self.journal = Journal(VirtualClock(loop))
        self.time = 0.0

    def sent(self, value: str, path: str = "tasks", result: str = OK, key: str | None = None) -> Sent:
        self.time += 1
        sent = Sent(self.time, 0, value, path, key, _TRAITS, bare_of(value, _TRAITS))
        sent.done, sent.result = self.time + 0.5, result
        self.journal.sends.append(sent)
        return sent

    def seen(self, value: str, number: int, how: str = "receive", path: str = "tasks") -> Seen:
        self.time += 1
        seen = Seen(value, path, False, how, self.time, number)
        seen.bare = bare_of(value, _TRAITS)
        seen.token = value.encode() + bytes([len(self.journal.seen)])
        self.journal.seen.append(seen)
        return seen

    def ended(self, seen: Seen, verb: str = "complete", result: str = OK) -> Ended:
        self.time += 1
        ended = Ended(self.time, 0, verb, seen.path, seen.value, seen)
        ended.done, ended.result = self.time + 0.5, result
        self.journal.endings.append(ended)
        return ended

    def violations(self) -> set[str]:
        return set(judge(self.journal).violations)


@pytest.fixture
def story() -> Story:
    return Story()


def test_an_ordinary_life_is_fine(story: Story) -> None:
    """Simulator: sent, received, given back, received again, completed."""
    story.sent("00000001")
    first = story.seen("00000001", 1)
    story.ended(first, "abandon")
    again = story.seen("00000001", 1)
    again.count = 1
    story.ended(again)
    assert story.violations() == set()


def test_what_was_completed_is_not_shown_to_those_who_look_later(story: Story) -> None:
    """Simulator: also for peeks."""
    story.sent("00000001")
    story.ended(story.seen("00000001", 1))
    story.seen("00000001", 1, "peek")
    assert story.violations() == {"peeked after complete"}


def test_what_was_refused_is_not_shown(story: Story) -> None:
    """Simulator: also for peeks."""
    story.sent("00000001", result=FAIL)
    story.seen("00000001", 1, "peek")
    assert story.violations() == {"phantom"}


def test_the_index_in_a_number_follows_from_the_key(story: Story) -> None:
    """Simulator: one key lies in one fragment, which its numbers name."""
    right = index_of_key("key-1") << 48 | 1
    wrong = (index_of_key("key-1") + 1) % 4 << 48 | 1
    story.sent("00000001", "orders", key="key-1")
    story.ended(story.seen("00000001", right, path="orders"))
    assert story.violations() == set()
    story.sent("00000002", "orders", key="key-1")
    story.ended(story.seen("00000002", wrong, path="orders"))
    assert story.violations() == {"wrong fragment for its key"}


def test_first_deliveries_of_a_key_are_in_order(story: Story) -> None:
    """Simulator: whatever is delivered again later."""
    for value in ("00000001", "00000002"):
        story.sent(value)
    for value, number in (("00000002", 2), ("00000001", 1)):
        story.ended(story.seen(value, number))
    assert story.violations() == {"key out of order"}


def test_enqueued_times_grow_with_numbers(story: Story) -> None:
    """Simulator: as long as nobody set the clock back."""
    for value, number in (("00000001", 1), ("00000002", 2)):
        story.sent(value)
        seen = story.seen(value, number)
        seen.enqueued_ms = 10 - number
        story.ended(seen)
    assert story.violations() == {"enqueued time goes back"}


def test_nothing_scheduled_comes_early(story: Story) -> None:
    """Simulator: by the latest wall time there was."""
    story.sent("00000001").due_ms = 100
    seen = story.seen("00000001", 2)
    seen.high_ms = 99
    story.ended(seen)
    assert story.violations() == {"before its time"}


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [((0, 1), set()), ((0, 0), {"forgot a failed delivery"}), ((1, 1), {"counted too many deliveries"})],
)
def test_delivery_counts_are_those_of_failed_deliveries(
    counts: tuple[int, int], wanted: set[str], story: Story
) -> None:
    """Simulator: no more than there were, no fewer than were acknowledged."""
    story.sent("00000001")
    first = story.seen("00000001", 1)
    first.count = counts[0]
    story.ended(first, "abandon")
    second = story.seen("00000001", 1)
    second.count = counts[1]
    story.ended(second)
    assert story.violations() == wanted


@pytest.mark.parametrize(("is_sent", "is_back"), [(True, True), (False, False)])
def test_a_transaction_whose_outcome_is_unknown_is_whole(is_sent: bool, is_back: bool, story: Story) -> None:
    """Simulator: the message came back though the answer is there, or neither is."""
    story.sent("00000001")
    act = Act(story.time, 0, "transaction")
    act.endings = [story.ended(story.seen("00000001", 1), result=INFO)]
    act.sends = [story.sent("00000002", result=INFO)]
    act.invoked = act.done = story.time
    story.journal.acts.append(act)
    if is_sent:
        story.seen("00000002", 2, "drain")
    if is_back:
        story.seen("00000001", 1, "drain")
    assert story.violations() == {"torn"}


def test_a_publish_whose_outcome_is_unknown_is_whole(story: Story) -> None:
    """Simulator: copies are there together, or not at all."""
    story.sent("00000001", "events", INFO)
    story.seen("00000001", 1, "drain", "events/Subscriptions/all")
    assert story.violations() == {"torn"}


def test_whoever_asks_is_answered(story: Story) -> None:
    """Simulator: but not by a broker that has died meanwhile."""
    sent = story.sent("00000001", result=INFO)
    sent.done = float("inf")
    assert story.violations() == {"never answered"}
    story.journal.crashed()
    assert story.violations() == set()
