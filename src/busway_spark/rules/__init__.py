"""The rules of subscriptions as columns of Spark: a second back end of the tree in `busway.rules.expression`.

`RuleColumns` compiles rules for captured files; where columns cannot be exact the broker's evaluator is asked.

  rule_columns       rules → verdicts and what actions set, as columns; which rows no rule can select
  row_evaluator      a row with its verdicts → the broker's message and the copies that a subscription gets of it
  captured_columns   where captured files have what rules see

From a tree to SQL:

  forms              values in SQL
  condition_sql      filters (`operators_sql`: comparison, arithmetic, LIKE)
  action_sql         SET and REMOVE
  sql_text           constants, and what columns cannot say
"""
