"""Is a history one that a correct bus can produce? One pass per property, no search: bodies are unique, so each
message's life can be followed by its value.

A run must end with a full drain (`drain` operations: what was still stored); what then never turned up is lost.
Locks live in the server's memory, so a `restart` operation ends all that were held at that moment.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field

from tests.chaos.history import FAIL, INFO, OK, History, Operation

#: Clients stamp their own clock around a call; the server's lock starts a little before they see it.
CLOCK_TOLERANCE_S = 0.05


@dataclass
class Verdict:
    violations: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return not self.violations

    def found(self, what: str, value: str) -> None:
        self.violations[what].append(value)


def check(
    history: History, *, acknowledged_before: float = float("inf"), exactly_once: bool = False
) -> Verdict:
    """`acknowledged_before`: acknowledgements that came later do not count (power cuts: an answer may arrive while
    the power is already going). `exactly_once`: the queue detects duplicates, so that a value sent many times is
    stored once."""
    verdict = Verdict()
    restarts = [operation.invoked for operation in history.of("restart")]
    for value, life in _lives(history).items():
        _check_life(value, life, acknowledged_before, verdict)
        _check_copies(value, life, exactly_once, verdict)
        _check_locks(value, life, restarts, verdict)
    _check_sequence_numbers(history, verdict)
    _check_session_order(history, verdict)
    verdict.counts = {
        "sent": len({operation.value for operation in history.of("send") if operation.result == OK}),
        "received": sum(1 for operation in history.of("receive") if operation.result == OK),
        "completed": sum(1 for operation in history.of("complete") if operation.result == OK),
        "redelivered": sum(1 for operation in history.of("receive") if operation.delivery_count > 0),
    }
    return verdict


def _lives(history: History) -> dict[str, dict[str, list[Operation]]]:
    lives: dict[str, dict[str, list[Operation]]] = {}
    for operation in history.operations:
        if operation.kind == "restart":
            continue
        lives.setdefault(operation.value, defaultdict(list))[operation.kind].append(operation)
    return lives


def _check_life(value: str, life: dict[str, list[Operation]], before: float, verdict: Verdict) -> None:
    sends = life.get("send", [])
    seen = [*life.get("receive", []), *life.get("drain", [])]
    completes = [complete for complete in life.get("complete", []) if complete.done < before]
    completed = [complete for complete in completes if complete.result == OK]
    if seen and not sends:
        verdict.found("unexpected", value)
    if seen and sends and all(send.result == FAIL for send in sends):
        verdict.found("phantom", value)
    acknowledged = any(send.result == OK and send.done < before for send in sends)
    maybe_completed = any(complete.result in (OK, INFO) for complete in life.get("complete", []))
    if acknowledged and not maybe_completed and not life.get("drain"):
        verdict.found("lost", value)
    if completed and life.get("drain"):
        verdict.found("resurrected", value)
    if len(completed) > 1:
        verdict.found("completed twice", value)
    if completed:
        first = min(complete.done for complete in completed)
        if any(receive.invoked > first for receive in life.get("receive", [])):
            verdict.found("delivered after complete", value)


def _check_copies(value: str, life: dict[str, list[Operation]], exactly_once: bool, verdict: Verdict) -> None:
    numbers = {operation.sequence for kind in ("receive", "drain") for operation in life.get(kind, [])}
    if len(numbers) > (1 if exactly_once else max(1, len(life.get("send", [])))):
        verdict.found("stored twice", value)


def _check_locks(
    value: str, life: dict[str, list[Operation]], restarts: list[float], verdict: Verdict
) -> None:
    """Two receivers never hold the same message at the same moment."""
    receives = sorted(life.get("receive", []), key=lambda operation: operation.done)
    ended = sorted(operation.invoked for kind in ("complete", "abandon") for operation in life.get(kind, []))
    for earlier, later in itertools.pairwise(receives):
        if earlier.locked_until <= 0:
            continue
        settled = next((moment for moment in ended if moment >= earlier.done), float("inf"))
        restarted = next((moment for moment in restarts if moment >= earlier.invoked), float("inf"))
        free = min(earlier.locked_until, settled, restarted)
        if later.done < free - CLOCK_TOLERANCE_S:
            verdict.found("lock overlap", value)


def _check_sequence_numbers(history: History, verdict: Verdict) -> None:
    owner: dict[int, str] = {}
    number_of: dict[str, int] = {}
    for operation in history.of("receive", "drain"):
        if owner.setdefault(operation.sequence, operation.value) != operation.value:
            verdict.found("sequence reused", operation.value)
        number_of.setdefault(operation.value, operation.sequence)
    highest_acknowledged = 0
    events: list[tuple[float, int, str]] = []
    for value, sends in _sends_by_value(history).items():
        acknowledged = [send.done for send in sends if send.result == OK]
        if acknowledged and value in number_of:
            events += [(min(send.invoked for send in sends), 1, value), (min(acknowledged), 0, value)]
    floor: dict[str, int] = {}
    for _, is_invocation, value in sorted(events, key=lambda event: event[:2]):
        if is_invocation:
            floor[value] = highest_acknowledged
        else:
            number = number_of[value]
            if number < floor[value]:
                verdict.found("sequence not in real time", value)
            highest_acknowledged = max(highest_acknowledged, number)


def _sends_by_value(history: History) -> dict[str, list[Operation]]:
    sends: dict[str, list[Operation]] = defaultdict(list)
    for send in history.of("send"):
        sends[send.value].append(send)
    return sends


def _check_session_order(history: History, verdict: Verdict) -> None:
    """First deliveries of a session come in the order of their numbers."""
    last: dict[str, int] = {}
    first_deliveries: set[str] = set()
    for operation in sorted(history.of("receive"), key=lambda operation: operation.done):
        if operation.session is None or operation.value in first_deliveries:
            continue
        first_deliveries.add(operation.value)
        if operation.sequence < last.get(operation.session, 0):
            verdict.found("session out of order", operation.value)
        last[operation.session] = max(operation.sequence, last.get(operation.session, 0))
