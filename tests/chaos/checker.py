"""Is a history one that a correct bus can produce? One pass per property, no search: bodies are unique, so each
message's life can be followed by its value.

A run must end with a full drain (`drain` operations: what was still stored); what then never turned up is lost.
Locks live in the server's memory, so a `restart` operation ends all that were held at that moment. Every finding is
certain: where clients' clocks and answers leave room for a correct server, nothing is found.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field, replace

from busway.store.contract import INDEX_SHIFT
from tests.chaos.history import CUT, FAIL, INFO, LOCK_LOST, OK, RESTART, History, Operation

#: Clients stamp their own clock around a call; the server's lock starts a little before they see it.
CLOCK_TOLERANCE_S = 0.05
#: The SDK waits so long for the outcome of a settlement, then asks a second time and shows the second answer only.
ASKED_TWICE_S = 59.0
_SETTLEMENTS = ("complete", "abandon")

Life = dict[str, list[Operation]]


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
    history = _told_apart(history)
    restarts = list(history.of(RESTART))
    for value, life in _lives(history).items():
        _check_life(value, life, acknowledged_before, verdict)
        _check_copies(value, life, exactly_once, verdict)
        _check_locks(value, life, restarts, verdict)
        _check_late_settlements(value, life, verdict)
    _check_sequence_numbers(history, verdict)
    _check_key_order(history, verdict)
    _check_session_order(history, verdict)
    _check_session_skips(history, verdict)
    _check_session_holds(history, verdict)
    verdict.counts = {
        "sent": len({operation.value for operation in history.of("send") if operation.result == OK}),
        "received": sum(1 for operation in history.of("receive") if operation.result == OK),
        "completed": sum(1 for operation in history.of("complete") if operation.result == OK),
        "redelivered": sum(1 for operation in history.of("receive") if operation.delivery_count > 0),
        "received alone": sum(1 for operation in history.of("receive") if operation.alone),
    }
    return verdict


def _told_apart(history: History) -> History:
    """A lost lock is a certain no, except where something broke while the settlement was under way, or where the
    server stood still for so long that the SDK gave up on its first answer."""
    disturbances = list(history.of(RESTART, CUT))
    told = History()
    told.operations = [
        replace(operation, result=INFO)
        if operation.error == LOCK_LOST and _is_unsure(operation, disturbances)
        else operation
        for operation in history.operations
    ]
    return told


def _is_unsure(operation: Operation, disturbances: list[Operation]) -> bool:
    return operation.done - operation.invoked >= ASKED_TWICE_S or any(
        each.invoked <= operation.done and each.done >= operation.invoked for each in disturbances
    )


def _lives(history: History) -> dict[str, Life]:
    lives: dict[str, Life] = {}
    for operation in history.operations:
        if operation.kind not in (RESTART, CUT, "accept"):
            lives.setdefault(operation.value, defaultdict(list))[operation.kind].append(operation)
    return lives


def _check_life(value: str, life: Life, before: float, verdict: Verdict) -> None:
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


def _check_copies(value: str, life: Life, exactly_once: bool, verdict: Verdict) -> None:
    numbers = {operation.sequence for kind in ("receive", "drain") for operation in life.get(kind, [])}
    if len(numbers) > (1 if exactly_once else max(1, len(life.get("send", [])))):
        verdict.found("stored twice", value)


def _check_locks(value: str, life: Life, restarts: list[Operation], verdict: Verdict) -> None:
    """Two receivers never hold the same message at the same moment. Only the holder's own settlement frees it."""
    receives = sorted(life.get("receive", []), key=lambda operation: operation.done)
    for earlier, later in itertools.pairwise(receives):
        if earlier.locked_until <= 0:
            continue
        settled = min(
            (
                operation.invoked
                for kind in _SETTLEMENTS
                for operation in life.get(kind, [])
                if operation.consumer == earlier.consumer
                and operation.result != FAIL
                and operation.invoked >= earlier.done
            ),
            default=float("inf"),
        )
        restarted = min(
            (each.invoked for each in restarts if each.done >= earlier.invoked), default=float("inf")
        )
        free = min(earlier.locked_until, settled, restarted)
        if later.done < free - CLOCK_TOLERANCE_S:
            verdict.found("lock overlap", value)


def _check_late_settlements(value: str, life: Life, verdict: Verdict) -> None:
    """A lock that is over is never settled with success, whoever asks."""
    for kind in _SETTLEMENTS:
        for settlement in life.get(kind, []):
            if settlement.result != OK:
                continue
            held = [
                receive.locked_until
                for receive in life.get("receive", [])
                if receive.consumer == settlement.consumer and receive.done <= settlement.invoked
            ]
            if held and 0 < max(held) < settlement.invoked - CLOCK_TOLERANCE_S:
                verdict.found("settled after its lock", value)


def _check_sequence_numbers(history: History, verdict: Verdict) -> None:
    owner: dict[int, str] = {}
    number_of: dict[str, int] = {}
    for operation in history.of("receive", "drain"):
        if owner.setdefault(operation.sequence, operation.value) != operation.value:
            verdict.found("sequence reused", operation.value)
        number_of.setdefault(operation.value, operation.sequence)
    highest_acknowledged: dict[int, int] = defaultdict(int)
    events: list[tuple[float, int, str]] = []
    for value, sends in _sends_by_value(history).items():
        acknowledged = [send.done for send in sends if send.result == OK]
        if acknowledged and value in number_of:
            events += [(min(send.invoked for send in sends), 1, value), (min(acknowledged), 0, value)]
    floor: dict[str, int] = {}
    for _, is_invocation, value in sorted(events, key=lambda event: event[:2]):
        number = number_of[value]
        fragment = number >> INDEX_SHIFT
        if is_invocation:
            floor[value] = highest_acknowledged[fragment]
        else:
            if number < floor[value]:
                verdict.found("sequence not in real time", value)
            highest_acknowledged[fragment] = max(highest_acknowledged[fragment], number)


def _check_key_order(history: History, verdict: Verdict) -> None:
    """Messages with one key lie in one fragment, in the order in which their producer sent them, one send after the
    other."""
    number_of = {operation.value: operation.sequence for operation in history.of("receive", "drain")}
    fragment_of: dict[str, int] = {}
    last: dict[tuple[str, str], int] = {}
    for send in history.of("send"):
        if not send.key or send.value not in number_of:
            continue
        number = number_of[send.value]
        if fragment_of.setdefault(send.key, number >> INDEX_SHIFT) != number >> INDEX_SHIFT:
            verdict.found("key in two fragments", send.value)
        line = (send.consumer, send.key)
        if number < last.get(line, 0):
            verdict.found("key out of order", send.value)
        last[line] = max(number, last.get(line, 0))


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


def _check_session_skips(history: History, verdict: Verdict) -> None:
    """Whoever takes one message at a time gets the first of the session that is not completed: what was abandoned
    or left behind comes again before anything later does."""
    numbers: dict[str, dict[int, str]] = defaultdict(dict)
    session_of: dict[str, str] = {}
    for operation in history.of("receive"):
        if operation.session is not None:
            session_of[operation.value] = operation.session
    for operation in history.of("receive", "drain"):
        session = session_of.get(operation.value, operation.session)
        if session is not None:
            numbers[session][operation.sequence] = operation.value
    completed = _first_completions(history)
    for session, values in numbers.items():
        open_until = _open_until(values, completed)
        for receive in history.of("receive"):
            if receive.alone and receive.session == session and open_until[receive.sequence] > receive.done:
                verdict.found("session skipped a message", receive.value)


def _open_until(values: dict[int, str], completed: dict[str, float]) -> dict[int, float]:
    """By number: the moment from which on everything before it in its session may be completed."""
    found: dict[int, float] = {}
    latest = 0.0
    for number, value in sorted(values.items()):
        found[number] = latest
        latest = max(latest, completed.get(value, float("inf")))
    return found


def _first_completions(history: History) -> dict[str, float]:
    """When each value may have been completed for the first time."""
    first: dict[str, float] = {}
    for complete in history.of("complete"):
        if complete.result != FAIL:
            first[complete.value] = min(complete.invoked, first.get(complete.value, float("inf")))
    return first


def _check_session_holds(history: History, verdict: Verdict) -> None:
    """A session has one holder. One holds it for certain from the answer to its accept until the last settlement
    that was granted to it; two such times never meet. And its lock is the lock of all its messages."""
    last_granted: dict[str, float] = {}
    for settlement in history.of(*_SETTLEMENTS):
        if settlement.result == OK and settlement.hold:
            last_granted[settlement.hold] = max(settlement.invoked, last_granted.get(settlement.hold, 0.0))
    holds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for accept in history.of("accept"):
        granted = last_granted.get(accept.value, 0.0)
        if accept.session is not None and granted > accept.done:
            holds[accept.session].append((accept.done, granted))
        if 0 < accept.locked_until < granted - CLOCK_TOLERANCE_S:
            verdict.found("settled after its session's lock", accept.value)
    for session, times in holds.items():
        held_until = 0.0
        for began, granted in sorted(times):
            if began < held_until:
                verdict.found("session held twice", session)
            held_until = max(held_until, granted)
