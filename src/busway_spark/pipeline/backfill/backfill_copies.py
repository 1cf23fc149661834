"""Which copies a subscription gets of captured messages (T-4), as columns.

Theory of operation. The verdicts of columns decide how copies of a message are made. Where rules without an action
select it, none with an action does, and none must be asked, there is one copy, the message as it is: such messages
are encoded all at once (`backfill_rows.payloads`). All others are looked at one by one, with the broker's own
evaluator and actions (`rules.row_evaluator`); so is a piece with a message that columns cannot encode, so that the
message at fault is named. Whichever way, copies stand in the order of their messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from busway.message.bare import MESSAGE_ID, with_properties
from busway.message.message import Message
from busway.message.message_subject import MessageSubject
from busway.rules.rule import Rule
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs
from busway_spark.pipeline.backfill import backfill_rows
from busway_spark.pipeline.backfill.backfill_plan import FILE, FRAGMENT, NUMBER
from busway_spark.pipeline.backfill.backfill_rows import MatchedRows
from busway_spark.pipeline.job import JobFailed
from busway_spark.property_types import UnknownProperties
from busway_spark.rules.row_evaluator import Copy, Failure, RowEvaluator, captured_message, payload_of
from busway_spark.rules.rule_columns import ASK, NOT_SELECTED, SELECTED, sets_name, verdict_name

_ID_CHARACTERS_MAX: Final = 128
_SENTENCE_MAX: Final = 2_000
_EXPIRES: Final = "expiresAt"
_ENQUEUED: Final = "enqueuedTime"
_TEXT: Final = pa.string()


@dataclass(frozen=True)
class CopyColumns:
    """Copies of messages of one fragment, in order."""

    fragment: int
    #: Of the messages.
    numbers: Longs
    #: Empty for the copy of all rules without an action.
    rules: Column
    #: Why a rule failed, as JSON; empty where none did.
    failures: Column
    payloads: Column


@dataclass(slots=True)
class _Copy:
    """One that was made alone. `row`: of its piece."""

    row: int
    number: int
    rule: str
    message: Message
    failure: str = ""


class Copying:
    """`tells_repeats`: message ids tell copies of one message apart, for queues that detect duplicates."""

    def __init__(
        self, rules: Sequence[Rule], cuts: Sequence[Sequence[int]], *, tells_repeats: bool = False
    ) -> None:
        self._evaluator = RowEvaluator(rules)
        self._acts = [rule.action is not None for rule in rules]
        self._cuts = cuts
        self._tells_repeats = tells_repeats
        #: Filters and actions that failed.
        self.failed = 0

    def copies(self, found: MatchedRows) -> CopyColumns:
        """Raises JobFailed."""
        as_they_are, alone = self._parted(found.matches)
        try:
            plain = self._plain_payloads(found, as_they_are)
        except (encoding.NotEncodable, pa.ArrowInvalid):
            alone |= as_they_are
            as_they_are = np.zeros(len(alone), np.bool_)
            plain = pa.array([], encoding.BINARY)
        others = self._each(found, np.flatnonzero(alone))
        numbers = arrow.longs(found.matches.column(NUMBER))
        rows = np.flatnonzero(as_they_are)
        return _ordered(
            found.fragment, rows, numbers[rows], plain, others, [self._payload(each) for each in others]
        )

    # -- all at once

    def _parted(self, matches: pa.RecordBatch) -> tuple[Flags, Flags]:
        """Messages whose one copy is the message as it is, and those that must be looked at. Of the rest there is
        none: the subscription got it when it was published."""
        numbers, fragments = arrow.longs(matches.column(NUMBER)), arrow.longs(matches.column(FRAGMENT))
        is_wanted, was_selected, alone = np.zeros((3, len(numbers)), np.bool_)
        for at, acts in enumerate(self._acts):
            verdicts = arrow.longs(matches.column(verdict_name(at)))
            is_unseen = self._are_unseen(at, numbers, fragments)
            if acts:
                alone |= is_unseen & (verdicts != NOT_SELECTED)
            else:
                alone |= verdicts == ASK
                is_wanted |= is_unseen & (verdicts == SELECTED)
                was_selected |= ~is_unseen & (verdicts == SELECTED)
        return is_wanted & ~was_selected & ~alone, alone

    def _are_unseen(self, at: int, numbers: Longs, fragments: Longs) -> Flags:
        cut = self._cuts[at]
        if not cut:
            return np.ones(len(numbers), np.bool_)
        last = np.array([*cut, -1], np.int64)
        found: Flags = numbers <= last[np.minimum(fragments, len(cut))]
        return found

    def _plain_payloads(self, found: MatchedRows, wanted: Flags) -> Column:
        rows, matches = found.rows, found.matches
        if not wanted.any():
            return pa.array([], encoding.BINARY)
        if not wanted.all():
            rows, matches = arrow.rows_where(rows, wanted), arrow.rows_where(matches, wanted)
        if self._tells_repeats:
            rows = _with_repeat_ids(rows, arrow.longs(matches.column(NUMBER)))
        return backfill_rows.payloads(rows)

    # -- one by one

    def _each(self, found: MatchedRows, wanted: Longs) -> list[_Copy]:
        if not len(wanted):
            return []
        places: Any = pa.array(wanted)
        matches = found.matches.take(places).to_pylist()
        rows = _told(found.rows.take(places)).to_pylist()
        copies: list[_Copy] = []
        for at, match, row in zip(wanted.tolist(), matches, rows, strict=True):
            copies += self._of_one(at, match, row)
        return copies

    def _of_one(self, row: int, match: dict[str, Any], captured: Mapping[str, Any]) -> list[_Copy]:
        """T-4: one for all rules without an action, unless one of those has seen it; one for each other rule."""
        number = match[NUMBER]
        try:
            message = captured_message(captured)
        except UnknownProperties as error:
            raise JobFailed(f"Message {number} in {match[FILE]}: {error}.") from error
        copies: list[_Copy] = []
        is_plain = False
        for at in range(len(self._acts)):
            if not self._is_unseen(at, match):
                continue
            verdict = self._evaluator.verdict(at, message, match[verdict_name(at)])
            if isinstance(verdict, Failure):
                copies.append(self._failed(row, number, message, verdict))
            elif verdict == SELECTED and self._acts[at]:
                copy = self._evaluator.copy(at, message, match.get(sets_name(at)))
                copies.append(
                    _Copy(row, number, copy.rule, copy.message)
                    if isinstance(copy, Copy)
                    else self._failed(row, number, message, copy)
                )
            elif verdict == SELECTED:
                is_plain = True
        if is_plain and not self._was_selected(match, message):
            copies.insert(0, _Copy(row, number, "", message))
        return copies

    def _failed(self, row: int, number: int, message: Message, failure: Failure) -> _Copy:
        self.failed += 1
        why = json.dumps({"reason": failure.reason, "description": failure.sentence[:_SENTENCE_MAX]})
        return _Copy(row, number, f"!{failure.rule}", message, why)

    def _is_unseen(self, at: int, match: dict[str, Any]) -> bool:
        cut = self._cuts[at]
        fragment = match[FRAGMENT]
        return not cut or (fragment < len(cut) and match[NUMBER] <= cut[fragment])

    def _was_selected(self, match: dict[str, Any], message: Message) -> bool:
        """By a rule without an action that has seen it: the subscription got it when it was published."""
        for at, acts in enumerate(self._acts):
            if acts or self._is_unseen(at, match) or match[verdict_name(at)] == NOT_SELECTED:
                continue
            if self._evaluator.verdict(at, message, match[verdict_name(at)]) == SELECTED:
                return True
        return False

    def _payload(self, copy: _Copy) -> bytes:
        """When all copies are made: a new id changes the message that others are made of. What failed keeps its own:
        no queue gets it."""
        if self._tells_repeats and not copy.failure:
            original = MessageSubject(copy.message).system("MessageId")
            new_id = repeat_id(original, copy.number, copy.rule)
            copy.message.bare = with_properties(copy.message.bare, {MESSAGE_ID: new_id})
        return payload_of(copy.message)


def _ordered(
    fragment: int,
    rows: Longs,
    numbers: Longs,
    plain: Column,
    others: Sequence[_Copy],
    payloads: Sequence[bytes],
) -> CopyColumns:
    """By their rows; those of one row as they were made. `rows` and `numbers`: of the plain ones."""
    rules = arrow.repeated("", _TEXT, len(rows))
    if not others:
        return CopyColumns(fragment, numbers, rules, rules, plain)
    order = np.argsort(np.concatenate([rows, [each.row for each in others]]), kind="stable")

    def both(first: Column, more: Sequence[object]) -> Column:
        return arrow.taken(pa.concat_arrays([first, pa.array(more, first.type)]), order)

    return CopyColumns(
        fragment,
        np.concatenate([numbers, [each.number for each in others]])[order],
        both(rules, [each.rule for each in others]),
        both(rules, [each.failure for each in others]),
        both(plain, payloads),
    )


def _told(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without columns that tell nothing: most are null for most topics, and each costs as much as one that is not.
    The time of arrival is asked for only to tell how long a message had to live."""
    names = [name for name in rows.schema.names if rows.column(name).null_count < rows.num_rows]
    if _EXPIRES not in names:
        names.remove(_ENQUEUED)
    return rows.select(names)


def _with_repeat_ids(rows: pa.RecordBatch, numbers: Longs) -> pa.RecordBatch:
    name = backfill_rows.MESSAGE_ID
    pairs = zip(rows.column(name).to_pylist(), numbers.tolist(), strict=True)
    ids = pa.array([repeat_id(original, number, "") for original, number in pairs], _TEXT)
    return rows.set_column(rows.schema.get_field_index(name), name, ids)


def repeat_id(original: object, number: int, rule: str) -> str:
    """The original id, and what tells this copy from every other one."""
    tail = f"~{number}" + (f"~{rule}" if rule else "")
    head = original if isinstance(original, str) else ""
    return head[: _ID_CHARACTERS_MAX - len(tail)] + tail
