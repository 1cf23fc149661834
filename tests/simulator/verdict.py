"""Can a correct bus have done what the journal says? Lives and locks are judged by the checker of `tests.chaos`, one
history for each fragment or group; what it does not know (fan-out, keys, numbers over several entities, acts, times)
is judged here. Everything is one pass over what happened. What an operator changed meanwhile is told by
`expectations`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tests.chaos.checker import Verdict, check
from tests.chaos.history import FAIL, INFO, OK, History, Operation
from tests.simulator.expectations import Expectations
from tests.simulator.journal import NEVER, Act, Call, Ended, Journal, Seen, Sent
from tests.simulator.timeline import Timeline
from tests.simulator.topology import (
    DEDUPLICATED,
    DROPS,
    MORTAL,
    PARTITIONED,
    TRANSFERS,
    destinations,
    detects_duplicates,
    fragment_index,
    index_of_key,
    moves_on,
)

#: When a number is given out later than the send is acknowledged, real time says nothing about it.
_NOT_IN_REAL_TIME: Final = 1e18
#: Receive-and-delete: what a receiver may have been promised when the broker or a store went.
_PROMISED_MAX: Final = 40
_SHOWN: Final = ("receive", "deferred", "delete", "drain")
_LOCK_LOST: Final = ("MessageLockLost", "SessionLockLost")
_MANY_ENTITIES: Final = ("archive", "pool", "graves")

#: Of a value that may be stored twice by right.
_ABOUT_COPIES: Final = (
    *("completed twice", "delivered after complete", "resurrected", "stored twice", "lock overlap"),
)
#: Entities of one name, one after the other, have the same numbers: these bits tell them apart.
_INCARNATION_SHIFT: Final = 56

Place = tuple[str, str]  # (group, value)


def judge(journal: Journal, expectations: Expectations | None = None) -> Verdict:
    """Every violation, by its name; counts of everything. `expectations`: of a world with an operator."""
    judgement = _Judgement(journal, expectations)
    verdict = judgement.verdict
    for what, which in journal.found:
        verdict.found(what, which)
    judgement.judge_lives()
    judgement.judge_looks()
    judgement.judge_acceptance()
    judgement.judge_numbers()
    judgement.judge_order()
    judgement.judge_delivery_counts()
    judgement.judge_acts()
    judgement.judge_answers()
    verdict.counts = dict(sorted(journal.counts.items()))
    return verdict


class _Judgement:
    def __init__(self, journal: Journal, expectations: Expectations | None) -> None:
        self.journal = journal
        self.verdict = Verdict()
        self._is_operated = expectations is not None
        self.expectations = expectations or Expectations(Timeline((), []))
        self.sends: dict[Place, list[Sent]] = defaultdict(list)
        #: Of these the ones that need not be there (by identity), and values of which there may be several.
        self._loose: set[tuple[str, int]] = set()
        self._repeatable: set[str] = set()
        first: dict[tuple[str, str], float] = {}
        for sent in journal.sends:
            if sent.result != FAIL:
                earliest = first.get((sent.path, sent.value), NEVER)
                first[sent.path, sent.value] = min(earliest, sent.made)
        for sent in journal.sends:
            for group, is_due in self._destinations(sent).items():
                self.sends[group, sent.value].append(sent)
                if not is_due:
                    self._loose.add((group, id(sent)))
            began = first.get((sent.path, sent.value), NEVER)
            if sent.path in DEDUPLICATED and self.expectations.may_repeat(sent, began):
                self._repeatable.add(sent.value)
        self._loosen_repeated()
        self.seen: dict[Place, list[Seen]] = defaultdict(list)
        for seen in journal.seen:
            self.seen[self.expectations.group(seen.path), seen.value].append(seen)
        self.endings: dict[Place, list[Ended]] = defaultdict(list)
        for ended in journal.endings:
            self.endings[self.expectations.group(ended.group), ended.value].append(ended)

    def _loosen_repeated(self) -> None:
        """A message that was sent again is dropped, also where the first one did not come or did not stay."""
        if not self._is_operated:
            return
        together: dict[str, list[Sent]] = defaultdict(list)
        for sent in self.journal.sends:
            if sent.path in DEDUPLICATED and sent.result != FAIL:
                together[sent.value].append(sent)
        for repeated in together.values():
            wanted = [
                {group for group, is_due in self._destinations(sent).items() if is_due} for sent in repeated
            ]
            certain = set.intersection(*wanted)
            for sent in repeated:
                self._loose |= {
                    (group, id(sent)) for group in self._destinations(sent) if group not in certain
                }

    def _destinations(self, sent: Sent) -> dict[str, bool]:
        """Where it may turn up; True where it must."""
        if not self._is_operated:
            return dict.fromkeys(destinations(sent.path, sent.traits), True)
        return self.expectations.destinations(sent)

    def _has_many(self, group: str) -> bool:
        """Entities: then they are judged as a whole, without numbers."""
        return group in _MANY_ENTITIES or self.expectations.is_merged(group)

    # -- lives, locks, sessions: the checker of chaos

    def judge_lives(self) -> None:
        histories: dict[tuple[str, int], History] = defaultdict(History)
        for rank, place in enumerate(sorted({*self.sends, *self.seen}), 1):
            self._tell_life(place, rank, histories[place[0], self._index(place)])
        for hold in self.journal.holds:
            if hold.result == OK:
                group = self.expectations.group(hold.path)
                is_split = hold.path in PARTITIONED and not self._has_many(group)
                index = index_of_key(hold.session_id) if is_split else 0
                histories[group, index].add(
                    Operation(
                        "accept",
                        hold.name,
                        hold.invoked,
                        hold.done,
                        OK,
                        session=f"{hold.path} {hold.session_id}",  # several entities may be one group
                        locked_until=hold.locked_until,
                    )
                )
        for (group, index), history in histories.items():
            self._note_restarts(history, group, index)
            found = check(history, exactly_once=detects_duplicates(group))
            for what, values in found.violations.items():
                if what == "lost":
                    values = self._not_promised(group, values)
                for value in values:
                    if what not in _ABOUT_COPIES or value not in self._repeatable:
                        self.verdict.found(what, f"{group} {index} {value}")

    def _index(self, place: Place) -> int:
        """The fragment that a value lies in; groups of several entities are judged as a whole."""
        group = place[0]
        if self._has_many(group) or group not in PARTITIONED:
            return 0
        for seen in self.seen.get(place, ()):
            return fragment_index(seen.number)
        for sent in self.sends[place]:
            if sent.key is not None:
                return index_of_key(sent.key)
            if sent.number:
                return fragment_index(sent.number)
        return 0

    def _tell_life(self, place: Place, rank: int, history: History) -> None:
        group, value = place
        has_many = self._has_many(group)
        for sent in self.sends.get(place, ()):
            is_in_real_time = not has_many and not sent.due_ms and not moves_on(sent.path)
            done = sent.done if is_in_real_time or sent.result != OK else _NOT_IN_REAL_TIME
            is_loose = sent.result == OK and (group, id(sent)) in self._loose
            history.add(Operation("send", value, sent.invoked, done, INFO if is_loose else sent.result))
        for seen in self.seen.get(place, ()):
            if seen.how != "peek":
                history.add(self._shown(seen, rank if has_many else self._number(seen)))
        for ended in self.endings.get(place, ()):
            kind = "complete" if ended.verb == "complete" else "abandon"
            seen_under = ended.seen
            hold = "" if seen_under is None or seen_under.hold is None else seen_under.hold.name
            consumer = "" if seen_under is None else seen_under.token.hex()
            result = ended.result
            if kind == "abandon" and result == FAIL and ended.error not in _LOCK_LOST:
                result = INFO  # whoever gives a lock back has given it back, whatever the store says later
            history.add(
                Operation(kind, value, ended.invoked, ended.done, result, consumer=consumer, hold=hold)
            )

    def _number(self, seen: Seen) -> int:
        """Unlike those of other entities of the same name."""
        return seen.number + (self.expectations.incarnation(seen.path, seen.at) << _INCARNATION_SHIFT)

    def _shown(self, seen: Seen, sequence: int) -> Operation:
        return Operation(
            "drain" if seen.how == "drain" else "receive",
            seen.value,
            seen.at,
            seen.at,
            OK,
            sequence,
            delivery_count=seen.count,
            locked_until=seen.locked_until,
            consumer=seen.token.hex(),
            hold="" if seen.hold is None else seen.hold.name,
        )

    def _note_restarts(self, history: History, group: str, index: int) -> None:
        """Locks end with the memory of their fragment."""
        is_anywhere = self._has_many(group) or self.expectations.was_deleted(group)
        home = None if is_anywhere else self.journal.homes.get((group, index))
        for began, ended in self.expectations.reloads(group):
            history.note_restart(began, ended)
        for outage in self.journal.outages:
            if not outage.store or home is None or outage.store == home:
                history.note_restart(outage.down, outage.up)

    def _not_promised(self, group: str, values: list[str]) -> list[str]:
        """Without what a receiver that deletes had been promised when the broker or a store went."""
        excused: list[str] = []
        last_s = max((outage.down for outage in self.journal.outages), default=0.0)
        for value in values:
            if all(sent.path == DROPS and sent.invoked < last_s for sent in self.sends[group, value]):
                excused.append(value)
        if len(excused) > _PROMISED_MAX * len(self.journal.outages):
            return values
        return [value for value in values if value not in excused]

    # -- every single look

    def judge_looks(self) -> None:
        completed: dict[Place, float] = {}
        for place, endings in self.endings.items():
            done = [each.done for each in endings if each.verb == "complete" and each.result == OK]
            if done:
                completed[place] = min(done)
        for seen in self.journal.seen:
            place = (self.expectations.group(seen.path), seen.value)
            sends = self.sends.get(place)
            if not sends:
                self._found("unexpected", seen)
                continue
            if all(sent.result == FAIL for sent in sends):
                self._found("phantom", seen)
            is_single = seen.value not in self._repeatable
            if seen.how == "peek" and completed.get(place, NEVER) < seen.invoked and is_single:
                self._found("peeked after complete", seen)
            if self.expectations.is_ghost(seen, sends):
                self._found("outlives its entity", seen)
            wrong = self.expectations.wrongly_shown(seen)
            if wrong:
                self._found(wrong, seen)
            self._judge_content(seen, sends[0])

    def _judge_content(self, seen: Seen, sent: Sent) -> None:
        if seen.bare != sent.bare and not self._may_be_changed(seen):
            self._found("changed body", seen)
        is_key = sent.key != sent.value or detects_duplicates(seen.path)  # F-9: an id counts only there
        if seen.path in PARTITIONED and sent.key is not None and is_key:
            if fragment_index(seen.number) != index_of_key(sent.key):
                self._found("wrong fragment for its key", seen)
        elif _is_plain(seen.path) and fragment_index(seen.number) != 0:
            self._found("index in the number of a plain entity", seen)
        if sent.due_ms and seen.how != "peek" and seen.high_ms < sent.due_ms:
            self._found("before its time", seen)

    def _may_be_changed(self, seen: Seen) -> bool:
        """What moves on takes with it why it died, and what settlements wrote beside it (F-10)."""
        if self.expectations.takes_dead_letters(seen.path):
            return True
        group = self.expectations.group(seen.path)
        return self.expectations.is_merged(group) and any(
            ended.verb not in ("complete", "release") and ended.result != FAIL
            for ended in self.endings.get((group, seen.value), ())
        )

    def judge_acceptance(self) -> None:
        for sent in self.journal.sends:
            if self.expectations.wrongly_accepted(sent):
                self.verdict.found("accepted while disabled", f"{sent.path} {sent.value} at {sent.done:.6f}")

    def _found(self, what: str, seen: Seen) -> None:
        self.verdict.found(what, f"{seen.path} {seen.value} #{seen.number:x} at {seen.at:.6f}")

    # -- numbers

    def judge_numbers(self) -> None:
        """In each entity a number means one value, and a value keeps its number; enqueued times grow with them."""
        owner: dict[tuple[str, int], str] = {}
        number: dict[tuple[str, str], int] = {}
        times: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        for seen in self.journal.seen:
            if seen.how == "peek":
                continue
            each_number = self._number(seen)
            if owner.setdefault((seen.path, each_number), seen.value) != seen.value:
                self._found("sequence reused", seen)
            if (
                number.setdefault((seen.path, seen.value), each_number) != each_number
                and seen.value not in self._repeatable
            ):
                self._found("stored twice", seen)
            if not seen.is_dead:
                times[seen.path, fragment_index(each_number)][each_number] = seen.enqueued_ms
        for (path, index), by_number in times.items():
            latest_ms = 0
            for each, enqueued_ms in sorted(by_number.items()):
                if enqueued_ms < latest_ms:
                    self.verdict.found("enqueued time goes back", f"{path} {index} #{each:x}")
                latest_ms = max(latest_ms, enqueued_ms)

    def judge_order(self) -> None:
        """P-47: first deliveries under lock come in the order of their numbers, for each key in its fragment."""
        last: dict[tuple[str, int, str | None], int] = {}
        met: set[tuple[str, str]] = set()
        for seen in self.journal.seen:
            if seen.how != "receive" or seen.is_dead or (seen.path, seen.value) in met:
                continue
            if (
                seen.path in MORTAL
            ):  # one that is passed over as expired may come later, when the clock is set back
                continue
            if self.expectations.was_moved(seen.path, seen.at):
                continue
            met.add((seen.path, seen.value))
            number = self._number(seen)
            stream = (seen.path, fragment_index(number), seen.key)
            if number < last.get(stream, 0):
                self._found("key out of order", seen)
            last[stream] = max(number, last.get(stream, 0))

    def judge_delivery_counts(self) -> None:
        """R-40, R-44: no more counts than deliveries before, no fewer than abandons and deferrals that were
        acknowledged; a dead letter is not counted further (R-43)."""
        for (group, value), looks in self.seen.items():
            if value in self._repeatable:
                continue
            is_merged = self.expectations.is_merged(group)
            earlier: dict[str, int] = defaultdict(int)
            for seen in looks:
                if seen.how not in ("receive", "deferred", "drain"):
                    continue
                path = "" if is_merged else seen.path  # a message that moves keeps its count, or begins anew
                if seen.count > earlier[path]:
                    self._found("counted too many deliveries", seen)
                if seen.count < self._abandoned(seen, value):
                    self._found("forgot a failed delivery", seen)
                earlier[path] += 1

    def _abandoned(self, seen: Seen, value: str) -> int:
        return sum(
            1
            for ended in self.endings.get((self.expectations.group(seen.path), value), ())
            if ended.verb in ("abandon", "defer")
            and ended.result == OK
            and ended.done < seen.at
            and ended.seen is not None
            and not ended.seen.is_dead
            and ended.seen.path == seen.path
        )

    # -- together or not at all

    def judge_acts(self) -> None:
        for act in self.journal.acts:
            effects = [self._is_visible(place) for place in self._places(act.sends)]
            effects += [effect for ended in act.endings if (effect := self._has_gone(ended, act)) is not None]
            if True in effects and False in effects and _is_open(act):
                values = [sent.value for sent in act.sends] + [ended.value for ended in act.endings]
                self.verdict.found("torn", f"{act.kind} {values} {effects}")
        for sent in self.journal.sends:
            if sent.result == INFO and not sent.is_cancelled:
                copies = [self._is_visible(place) for place in self._places([sent])]
                if True in copies and False in copies:
                    self.verdict.found("torn", f"publish {sent.path} {sent.value} {copies}")

    def _places(self, sends: list[Sent]) -> list[Place]:
        """Where they must be, if they are anywhere."""
        return [
            (group, sent.value)
            for sent in sends
            if not sent.is_cancelled and sent.path != DROPS and sent.path not in DEDUPLICATED
            for group, is_due in self._destinations(sent).items()
            if is_due
        ]

    def _is_visible(self, place: Place) -> bool:
        return any(seen.how in _SHOWN for seen in self.seen.get(place, ()))

    def _has_gone(self, ended: Ended, act: Act) -> bool | None:
        """None when nobody can tell."""
        place = (self.expectations.group(ended.group), ended.value)
        if any((place[0], id(sent)) in self._loose for sent in self.sends.get(place, ())):
            return None
        others = [each for each in self.endings[place] if each is not ended]
        if ended.verb != "complete" or any(
            each.result != FAIL and each.verb == "complete" for each in others
        ):
            return None
        return not any(seen.how in _SHOWN and seen.at > act.invoked for seen in self.seen.get(place, ()))

    # -- answers

    def judge_answers(self) -> None:
        """Whoever asks a broker that lives is answered."""
        journal = self.journal
        acts = [act for act in journal.acts if act.kind == "transaction"]
        calls: Iterable[Call] = (
            *journal.sends,
            *journal.endings,
            *journal.holds,
            *journal.states,
            *journal.others,
            *acts,
        )
        for call in calls:
            if call.life == journal.life and not call.is_answered() and call.result == INFO:
                self.verdict.found("never answered", f"{type(call).__name__} of {call.invoked:.6f}")


def _is_plain(path: str) -> bool:
    return path not in PARTITIONED and not path.startswith(TRANSFERS)


def _is_open(act: Act) -> bool:
    """Its outcome is not known: what is known is judged message by message."""
    return any(call.result == INFO for call in (*act.sends, *act.endings))
