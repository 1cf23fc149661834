"""A filter of any kind → an object that says whether a message is selected (T-20…T-44, E-73).

Only TRUE selects (T-33). So the conjunction at the top of a SQL filter is left at its first part that is not TRUE,
be it FALSE or UNKNOWN; an error behind that part is never seen. The look-up of filters by one of their parts
(`anchors`) relies on it; that part comes before all others, so that what those may cost is spent only where it holds,
looked up or not.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from busway.rules.anchors import Anchor, anchor_of, can_fail
from busway.rules.budget import Budget
from busway.rules.correlation import CorrelationKey, correlation_key
from busway.rules.errors import FilterError
from busway.rules.evaluate import Compilation, Truth
from busway.rules.expression import (
    Expression,
    Likeness,
    NewId,
    Property,
    PropertyOf,
    conjuncts_of,
    nodes_of,
)
from busway.rules.parse import parse_filter
from busway.rules.rule import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from busway.rules.subject import Subject
from busway.rules.values import MISSING, Missing, Value


class CompiledFilter:
    __slots__ = ()

    def matches(self, subject: Subject) -> bool:
        """Whether the message is selected. Raises FilterError."""
        raise NotImplementedError

    def matches_beside_anchor(self, subject: Subject) -> bool:
        """`matches`, for a message that was found by the anchor, so that this part is known to be TRUE."""
        return self.matches(subject)

    def text_walks(self) -> int:
        """How often an evaluation may walk over a text of the message."""
        return 0

    def walked(self) -> int:
        """Characters, in the last evaluation."""
        return 0


class FixedFilter(CompiledFilter):
    """It says the same of every message."""

    __slots__ = ("is_true",)

    def __init__(self, is_true: bool) -> None:
        self.is_true = is_true

    def matches(self, subject: Subject) -> bool:
        del subject
        return self.is_true


class CompiledSqlFilter(CompiledFilter):
    """`budget` None: nothing in it needs one."""

    __slots__ = ("_beside_anchor", "_budget", "_conjuncts", "_text_walks", "anchor")

    def __init__(
        self, conjuncts: list[Truth], anchor: Anchor | None, budget: Budget | None, text_walks: int
    ) -> None:
        self.anchor = anchor
        self._budget = budget
        self._text_walks = text_walks
        index = -1 if anchor is None else anchor.conjunct_index
        self._beside_anchor = [conjunct for at, conjunct in enumerate(conjuncts) if at != index]
        self._conjuncts = self._beside_anchor if index < 0 else [conjuncts[index], *self._beside_anchor]

    def matches(self, subject: Subject) -> bool:
        if self._budget is not None:
            self._budget.renew()
        return _all_true(self._conjuncts, subject)

    def matches_beside_anchor(self, subject: Subject) -> bool:
        if self._budget is not None:
            self._budget.renew()
        return _all_true(self._beside_anchor, subject)

    def text_walks(self) -> int:
        return self._text_walks

    def walked(self) -> int:
        return 0 if self._budget is None else self._budget.walked()


def _all_true(conjuncts: list[Truth], subject: Subject) -> bool:
    truth: bool | None = True
    for conjunct in conjuncts:
        truth = conjunct.evaluate(subject)
        if truth is not True:
            break
    return truth is True


class CompiledCorrelationFilter(CompiledFilter):
    __slots__ = ("key",)

    def __init__(self, key: CorrelationKey) -> None:
        self.key = key

    def matches(self, subject: Subject) -> bool:
        return self.key.matches(subject)


def compiled_filter(filter_: Filter, new_id: Callable[[], UUID]) -> CompiledFilter:
    """Raises RuleSyntaxError, nothing else. `new_id` is what `newid()` calls."""
    if isinstance(filter_, TrueFilter):
        return FixedFilter(True)
    if isinstance(filter_, FalseFilter):
        return FixedFilter(False)
    if isinstance(filter_, CorrelationFilter):
        return CompiledCorrelationFilter(correlation_key(filter_))
    return _compiled_sql(filter_, new_id)


def _compiled_sql(filter_: SqlFilter, new_id: Callable[[], UUID]) -> CompiledFilter:
    expression = parse_filter(filter_.expression)
    compilation = Compilation(filter_.expression, filter_.parameters, new_id)
    conjuncts = conjuncts_of(expression)
    truths = [compilation.truth(conjunct) for conjunct in conjuncts]
    walks = len([node for node in nodes_of(expression) if isinstance(node, Likeness | PropertyOf)])
    compiled = CompiledSqlFilter(truths, anchor_of(conjuncts, compilation), compilation.budget, walks)
    if not _reads_nothing(expression) or can_fail(expression):
        return compiled
    try:
        return FixedFilter(compiled.matches(_NOTHING))
    except FilterError:  # beyond its budget, for every message
        return compiled


def _reads_nothing(expression: Expression) -> bool:
    return not any(isinstance(node, Property | PropertyOf | NewId) for node in nodes_of(expression))


class _Nothing(Subject):
    """A message for filters that read none."""

    def user(self, folded_name: str) -> Value | Missing:
        del folded_name
        return MISSING

    def system(self, name: str) -> Value:
        del name
        return None


_NOTHING = _Nothing()
