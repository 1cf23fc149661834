"""What an operator's calls tell about the entities of a simulated world, and what follows for their messages."""

from __future__ import annotations

from dataclasses import replace

from busway.model.descriptions import Description, QueueDescription
from busway.rules.rule import Rule, SqlFilter
from tests.chaos.history import FAIL, INFO, OK
from tests.simulator.expectations import Expectations
from tests.simulator.journal import NEVER, Changed, Outage, Seen, Sent
from tests.simulator.operated import entities_besides
from tests.simulator.timeline import Timeline
from tests.simulator.topology import Traits, bare_of, entities

MADE = [*entities(), *entities_besides()]
BLUE = Traits("blue", "alpha", 1)
RED = Traits("red", "alpha", 1)
SUBSCRIPTION = "news/Subscriptions/blue"


def usual(path: str) -> Description:
    return next(new.description for new in MADE if new.description.path == path)


def change(verb: str, path: str, began: float, ended: float, result: str = OK) -> Changed:
    made = Changed(began, 0, verb, path)
    made.done, made.result = ended, result
    return made


def updated(path: str, began: float, ended: float, result: str = OK, **values: object) -> Changed:
    made = change("update", path, began, ended, result)
    made.description = replace(usual(path), **values)  # type: ignore[arg-type]
    return made


def sent(path: str, began: float, ended: float, traits: Traits = RED, result: str = OK) -> Sent:
    made = Sent(began, 0, "00000001", path, None, traits, bare_of("00000001", traits))
    made.done, made.result = ended, result
    return made


def seen(path: str, at: float) -> Seen:
    return Seen("00000001", path, False, "receive", at, 1)


def forwards(timeline: Timeline, began: float, ended: float) -> set[str | None]:
    states = timeline.during("tasks", began, ended)
    return {state.forwards_to for state in states if state is not None}


def test_a_life_that_begins_without_the_home_may_lack_the_last_changes() -> None:
    """Simulator: they count again when the home is back; a life that begins with it lacks nothing."""
    dead, away = Outage("", 20), Outage("store-0", 15)
    dead.up, away.up = 22, 30
    changes = [updated("tasks", 10, 12, forward_to="aside")]
    assert forwards(Timeline(MADE, changes, [away, dead]), 25, 25) == {None, "aside"}
    assert forwards(Timeline(MADE, changes, [away, dead]), 40, 40) == {"aside"}
    away.up = 21
    assert forwards(Timeline(MADE, changes, [away, dead]), 25, 25) == {"aside"}


def test_a_change_counts_from_between_its_two_moments_on() -> None:
    """Simulator: before and after it is certain how an entity was; in between it may have been both."""
    timeline = Timeline(MADE, [updated("tasks", 10, 12, forward_to="aside")])
    assert forwards(timeline, 5, 9) == {None}
    assert forwards(timeline, 5, 11) == {None, "aside"}
    assert forwards(timeline, 12.5, 20) == {"aside"}


def test_a_change_of_which_nobody_knows_may_happen_until_the_next_that_is_certain() -> None:
    """Simulator: an update, or a look at what is there. One that was refused has not happened."""
    unknown = updated("tasks", 10, 12, INFO, forward_to="aside")
    refused = updated("tasks", 13, 14, FAIL, forward_to="beyond")
    timeline = Timeline(MADE, [unknown, refused])
    assert forwards(timeline, 15, 20) == {None, "aside"}
    looked = change("look", "tasks", 30, 30)
    looked.description = usual("tasks")
    timeline = Timeline(MADE, [unknown, refused, looked])
    assert forwards(timeline, 31, 40) == {None}
    assert timeline.is_over(unknown) == 30
    assert Timeline(MADE, [unknown]).is_over(unknown) == NEVER


def test_a_message_must_be_where_the_rules_of_its_time_say() -> None:
    """Simulator, T-8: certain before and after a change of rules, open while it takes place."""
    added = change("add-rule", SUBSCRIPTION, 10, 12)
    added.rules = (Rule("some", SqlFilter("colour = 'red'")),)
    expectations = Expectations(Timeline(MADE, [added]))
    assert SUBSCRIPTION not in expectations.destinations(sent("news", 5, 6))
    assert expectations.destinations(sent("news", 9, 11))[SUBSCRIPTION] is False
    assert expectations.destinations(sent("news", 13, 14))[SUBSCRIPTION] is True
    assert expectations.destinations(sent("news", 9, 11, BLUE))[SUBSCRIPTION] is True
    later = sent("news", 5, 6)
    later.due_ms = 1
    assert expectations.destinations(later)[SUBSCRIPTION] is False


def test_what_forwards_for_a_while_is_one_group_with_its_target() -> None:
    """Simulator, F-1: and is not shown itself meanwhile."""
    changes = [updated("tasks", 10, 12, forward_to="aside"), updated("tasks", 20, 22)]
    expectations = Expectations(Timeline(MADE, changes))
    assert expectations.group("tasks") == expectations.group("aside") != expectations.group("beyond")
    assert expectations.destinations(sent("tasks", 15, 16)) == {"aside": True}
    assert expectations.reloads("aside") == [(10, 12), (20, 22)]
    assert expectations.wrongly_shown(seen("tasks", 15)) == "shown though it forwards"
    assert expectations.wrongly_shown(seen("tasks", 11)) == ""
    assert expectations.wrongly_shown(seen("tasks", 30)) == ""


def test_what_a_deleted_entity_had_may_be_gone_and_never_comes_again() -> None:
    """Simulator, E-86: another of its name has other messages."""
    created = change("create", "tasks", 20, 21)
    created.description = usual("tasks")
    expectations = Expectations(Timeline(MADE, [change("delete", "tasks", 10, 12), created]))
    old, new = sent("tasks", 5, 6), sent("tasks", 25, 26)
    assert expectations.destinations(old) == {"tasks": False}
    assert expectations.destinations(new) == {"tasks": True}
    assert expectations.is_ghost(seen("tasks", 30), [old])
    assert not expectations.is_ghost(seen("tasks", 30), [new])
    assert not expectations.is_ghost(seen("tasks", 11), [old])
    assert expectations.wrongly_accepted(sent("tasks", 13, 14))
    assert [expectations.incarnation("tasks", moment) for moment in (5.0, 30.0)] == [0, 1]


def test_a_disabled_entity_takes_and_shows_nothing() -> None:
    """Simulator, E-80: from the answer to the update until the next one is asked for."""
    changes = [updated("tasks", 10, 12, status="Disabled"), updated("tasks", 20, 22)]
    expectations = Expectations(Timeline(MADE, changes))
    assert expectations.wrongly_accepted(sent("tasks", 13, 14))
    assert not expectations.wrongly_accepted(sent("tasks", 9, 14))
    assert not expectations.wrongly_accepted(sent("tasks", 13, 21))
    assert not expectations.wrongly_accepted(sent("tasks", 13, 14, result=FAIL))
    assert expectations.wrongly_shown(seen("tasks", 15)) == "shown while disabled"
    assert expectations.wrongly_shown(seen("tasks", 21)) == ""


def test_a_time_to_live_takes_away_only_what_was_sent_under_it() -> None:
    """Simulator, M-40: the rest must be there."""
    changes = [updated("tasks", 10, 12, default_message_time_to_live_ms=1000), updated("tasks", 20, 22)]
    expectations = Expectations(Timeline(MADE, changes))
    certain = [expectations.destinations(sent("tasks", at, at + 1))["tasks"] for at in (5, 11, 15, 21, 30)]
    assert certain == [True, False, False, False, True]


def test_duplicates_may_pass_only_under_another_window() -> None:
    """Simulator, S-44: else a message is there once."""
    shorter = updated("once", 10, 12, duplicate_detection_history_time_window_ms=20_000)
    expectations = Expectations(Timeline(MADE, [shorter, updated("once", 20, 22)]))
    repeats = [expectations.may_repeat(sent("once", at, at + 1), at) for at in (5, 11, 15, 21, 30)]
    assert repeats == [False, True, True, True, False]
    assert isinstance(usual("once"), QueueDescription)


def test_duplicates_may_pass_when_another_entity_of_the_name_came_between() -> None:
    """Simulator, S-44: it knows nothing of what the first one had taken."""
    changes = [change("delete", "once", 10, 12), change("create", "once", 13, 14)]
    changes[1].description = usual("once")
    expectations = Expectations(Timeline(MADE, changes))
    repeats = [
        expectations.may_repeat(sent("once", at, at + 1), first) for first, at in [(5, 6), (5, 15), (15, 16)]
    ]
    assert repeats == [False, True, False]
