"""What rules may be added to subscriptions (E-3, E-70…E-74, T-36, T-42)."""

from collections.abc import Sequence

from busway.broker.namespace.entity_table import EntityTable
from busway.broker.namespace.rule_rows import RuleRow
from busway.model.description_checks import check_rule_text
from busway.model.entity_path import already_exists, shown, topic_key_of
from busway.model.errors import TooManyCorrelationFilters, TooManySqlFilters
from busway.model.limits import Limits
from busway.rules.rule import CorrelationFilter, Rule


def check_new_rules(
    namespace_name: str, entities: EntityTable, rows: Sequence[RuleRow], limits: Limits
) -> None:
    """Raises when one of these cannot be added."""
    seen: set[str] = set()
    for row in rows:
        if row.row_key in seen or entities.rules.get(row.subscription_key, row.key) is not None:
            found = entities.rows.get(row.subscription_key)
            path = row.subscription_key if found is None else found.description.path
            raise already_exists(namespace_name, f"{path}/Rules/{row.rule.name}")
        seen.add(row.row_key)
        check_rule_text(row.rule, limits)
    by_topic: dict[str, list[RuleRow]] = {}
    for row in rows:
        by_topic.setdefault(topic_key_of(row.subscription_key), []).append(row)
    for topic_key, added in by_topic.items():
        check_filter_counts(entities, topic_key, [row.rule for row in added], limits)


def check_filter_counts(entities: EntityTable, topic_key: str, added: Sequence[Rule], limits: Limits) -> None:
    """E-72: a topic has a bounded number of filters of each kind."""
    correlation = sum(isinstance(rule.filter, CorrelationFilter) for rule in added)
    sql = len(added) - correlation
    present_sql, present_correlation = entities.rules.filter_counts(topic_key)
    if sql and present_sql + sql > limits.sql_filters_per_topic_max:
        raise TooManySqlFilters(
            f"The topic {shown(topic_key)} has {present_sql} of at most {limits.sql_filters_per_topic_max} SQL"
            " filters; no more can be added."
        )
    if correlation and present_correlation + correlation > limits.correlation_filters_per_topic_max:
        raise TooManyCorrelationFilters(
            f"The topic {shown(topic_key)} has {present_correlation} of at most"
            f" {limits.correlation_filters_per_topic_max} correlation filters; no more can be added."
        )
