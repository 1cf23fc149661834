"""The rules of subscriptions as columns of Spark: a second back end of the tree in `busway.rules.expression`.

`RuleColumns` compiles rules for captured files; where columns cannot be exact the broker's evaluator is asked.

  rule_columns       rules → verdicts and what actions set, as columns
  row_evaluator      a row with its verdicts → the copies that a subscription gets of it
  prefilter          which rows no rule can select, seen at their text
  captured_columns   where captured files have what rules see
  captured_message   a captured row as the broker's message

From a tree to SQL:

  forms              values in SQL
  condition_sql      filters (`comparison_sql`, `arithmetic_sql`, `like_sql`: their operators)
  correlation_sql    correlation filters
  action_sql         SET and REMOVE
  name_patterns      names that are equal without case
  sql_text           constants
  unsupported        what columns cannot say
"""
