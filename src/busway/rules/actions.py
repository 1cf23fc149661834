"""A SQL action, ready for many messages (T-50…T-54): statements in order, each sees what those before it did."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from busway.rules.budget import Budget
from busway.rules.conversion import converted, system_value
from busway.rules.errors import ActionError, FilterError
from busway.rules.evaluate import Compilation, Reading
from busway.rules.expression import SetStatement
from busway.rules.parse import parse_action
from busway.rules.rule import SqlAction
from busway.rules.subject import ChangeableSubject, folded
from busway.rules.values import Missing


class CompiledStatement:
    """`value` is None for REMOVE."""

    __slots__ = ("folded_name", "is_system", "name", "value")

    def __init__(self, name: str, is_system: bool, value: Reading | None) -> None:
        self.name = name
        self.folded_name = folded(name)
        self.is_system = is_system
        self.value = value

    def apply(self, subject: ChangeableSubject) -> None:
        """Raises FilterError from the value, ActionError from its conversion."""
        if self.value is None:
            if self.is_system:
                subject.set_system(self.name, None)
            else:
                subject.remove_user(self.folded_name)
            return
        value = self.value.value(subject)
        if self.is_system:
            subject.set_system(self.name, system_value(self.name, value))
            return
        existing = subject.user(self.folded_name)
        subject.set_user(self.name, value if isinstance(existing, Missing) else converted(value, existing))


class CompiledAction:
    __slots__ = ("_budget", "_statements")

    def __init__(self, statements: list[CompiledStatement], budget: Budget | None) -> None:
        self._statements = statements
        self._budget = budget

    def apply(self, subject: ChangeableSubject) -> None:
        """Raises ActionError; the subject may be changed in part then."""
        if self._budget is not None:
            self._budget.renew()
        try:
            for statement in self._statements:
                statement.apply(subject)
        except FilterError as error:
            raise ActionError(str(error)) from error


def compiled_action(action: SqlAction, new_id: Callable[[], UUID]) -> CompiledAction:
    """Raises RuleSyntaxError, nothing else. `new_id` is what `newid()` calls."""
    compilation = Compilation(action.expression, action.parameters, new_id)
    compiled = []
    for statement in parse_action(action.expression):
        value = compilation.reading(statement.value) if isinstance(statement, SetStatement) else None
        compiled.append(CompiledStatement(statement.target.name, statement.target.is_system, value))
    return CompiledAction(compiled, compilation.budget)
