"""Whether a rule can be stored at all: asked by management before anything is written (T-36, T-42, ERR-28)."""

from dataclasses import fields
from typing import Final
from uuid import UUID

from busway.rules.actions import compiled_action
from busway.rules.errors import RuleSyntaxError
from busway.rules.filters import compiled_filter
from busway.rules.rule import CorrelationFilter, Rule, SqlAction, SqlFilter, TypedValue

#: As much as a request over HTTP can bring: rules are listed by the hundred.
RULE_CHARACTERS_MAX: Final = 64 * 1024
#: What a property or parameter counts for beside its letters.
_PAIR_CHARACTERS: Final = 32


def check_rule(rule: Rule) -> None:
    """Raises RuleSyntaxError, nothing else."""
    size = rule_characters(rule)
    if size > RULE_CHARACTERS_MAX:
        raise RuleSyntaxError(f"The rule is too large: it counts {size} of {RULE_CHARACTERS_MAX} characters.")
    compiled_filter(rule.filter, _no_id)
    if rule.action is not None:
        compiled_action(rule.action, _no_id)


def rule_characters(rule: Rule) -> int:
    """How large a rule is: the letters of its texts, and something for each property and parameter."""
    action = 0 if rule.action is None else _sql_characters(rule.action)
    if isinstance(rule.filter, CorrelationFilter):
        return len(rule.name) + action + _correlation_characters(rule.filter)
    return len(rule.name) + action + _sql_characters(rule.filter)


def _sql_characters(part: SqlFilter | SqlAction) -> int:
    return len(part.expression) + _pairs_characters(part.parameters)


def _correlation_characters(part: CorrelationFilter) -> int:
    texts = (getattr(part, field.name) for field in fields(part) if field.name != "properties")
    return sum(len(text) for text in texts if text is not None) + _pairs_characters(part.properties)


def _pairs_characters(pairs: tuple[tuple[str, TypedValue], ...]) -> int:
    return sum(
        _PAIR_CHARACTERS + len(name) + (len(typed.value) if isinstance(typed.value, str) else 0)
        for name, typed in pairs
    )


def _no_id() -> UUID:
    return UUID(int=0)
