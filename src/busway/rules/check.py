"""Whether a rule can be stored at all: asked by management before anything is written (T-36, T-42, ERR-28)."""

from uuid import UUID

from busway.rules.actions import compiled_action
from busway.rules.filters import compiled_filter
from busway.rules.rule import Rule


def check_rule(rule: Rule) -> None:
    """Raises RuleSyntaxError, nothing else."""
    compiled_filter(rule.filter, _no_id)
    if rule.action is not None:
        compiled_action(rule.action, _no_id)


def _no_id() -> UUID:
    return UUID(int=0)
