"""Can a correct bus have done this? The checker of `tests.chaos` judges lives, locks and numbers; what depends on the
change (what it drops on purpose, which links it may end) is judged here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.changes.kinds import HUB, is_queue
from tests.chaos.checker import Verdict, check
from tests.chaos.history import INFO, OK, History
from tests.chaos.stream_checker import StreamHistory, check_streams

if TYPE_CHECKING:
    from tests.changes.world import World

#: Changes that may end links; all others keep them (E-84, E-86, ERR-27).
_ENDING: Final = ("ForwardTo", "ForwardDead", "Status", "store", "entity")


def judge(world: World) -> Verdict:
    record, change = world.record, world.cell.change
    if world.cell.kind == HUB:
        return _judge_hub(world)
    forgiven = _before_deletion(world) if change.drops_messages else set[str]()
    history = _without(record.history, forgiven)
    verdict = check(history, exactly_once=world.detects_duplicates and _is_in_one_place(world))
    lost = verdict.violations.pop("lost", [])
    if missing := [value for value in lost if value not in record.mortal]:
        verdict.violations["lost"] = missing
    _check_once(history, verdict)
    _check_acts(world, history, forgiven, verdict)
    if change.drops_messages:
        _check_nothing_survived(world, verdict)
    if not change.name.startswith(_ENDING):
        for what, count in record.counts.items():
            if what.startswith("evicted"):
                verdict.found("link ended", f"{what} × {count}")
    for what, which in record.found:
        verdict.found(what, which)
    return verdict


def _judge_hub(world: World) -> Verdict:
    """What was published to a hub that is deleted may be gone; no reading of it says anything of the next one."""
    record = world.record
    deleted = record.steps[0].done if world.cell.change.drops_messages and record.steps else 0.0
    publications = [
        replace(each, outcome=INFO) if record.first_sent[each.values[0]] <= deleted else each
        for each in record.publications
    ]
    readings = [reading for began, reading in record.readings if began > deleted]
    final, begins = record.final
    verdict = check_streams(StreamHistory(publications, readings, final, begins))
    for what, which in record.found:
        verdict.found(what, which)
    return verdict


def _is_in_one_place(world: World) -> bool:
    return not world.cell.change.name.startswith(("ForwardTo", "ForwardDead"))


def _without(history: History, forgiven: set[str]) -> History:
    kept = History()
    kept.operations = [operation for operation in history.operations if operation.value not in forgiven]
    return kept


def _before_deletion(world: World) -> set[str]:
    """What may have been in the entity when it was deleted: it is gone with it, on purpose. Until a topic has its
    subscription again it takes messages for nobody."""
    steps = world.record.steps
    gone = float("inf") if not steps else steps[0].done if is_queue(world.cell.kind) else steps[-1].done
    return {value for value, invoked in world.record.first_sent.items() if invoked <= gone}


def _check_once(history: History, verdict: Verdict) -> None:
    """Wherever a message went, it comes to one end: completed, deleted, or found in the end. More only where somebody
    sent it again without knowing, and nobody detects duplicates."""
    sends: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for operation in history.operations:
        if operation.kind == "send" and operation.result != "fail":
            sends[operation.value] += 1
        elif operation.kind == "drain" or (operation.kind == "complete" and operation.result == OK):
            ends[operation.value] += 1
    for value, count in ends.items():
        if count > 1:
            verdict.found("double", f"{value}: {count} ends of {sends[value]} sends")


def _check_acts(world: World, history: History, forgiven: set[str], verdict: Verdict) -> None:
    """What belongs together and has no known outcome is there as a whole or not at all."""
    unknown = {each.value for each in history.of("send") if each.result == INFO}
    seen = {each.value for each in history.of("receive", "drain")}
    for values, kind in world.record.acts:
        if unknown.isdisjoint(values) or not forgiven.isdisjoint(values):
            continue
        if len({value in seen for value in values}) > 1:
            verdict.found("torn", f"{kind} {values}")


def _check_nothing_survived(world: World, verdict: Verdict) -> None:
    """E-86: no old message is in an entity that was made anew."""
    deletion, path = world.record.steps[0], world.receive_path
    acknowledged = {value for value, at in world.record.acknowledged.items() if at < deletion.invoked}
    again = {
        each.value
        for each in world.record.history.of("send")
        if each.invoked >= deletion.invoked and each.result != "fail"
    }
    if world.send_path != world.subject.path and not path.startswith(world.subject.path):
        return
    if world.cell.traffic.name == "forwarding in":  # what waited at its source arrives later
        return
    if world.cell.traffic.name == "scheduled" and not is_queue(world.cell.kind):  # so does what a topic keeps
        return
    for where, value, at in world.record.shown:
        if where == path and at > deletion.done and value in acknowledged - again:
            verdict.found("survived its entity", value)
