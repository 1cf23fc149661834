"""The rules of subscriptions as columns of Spark: a second back end of the tree in `busway.rules.expression`.

`RuleColumns` compiles rules for captured files; where columns cannot be exact the broker's evaluator is asked.

  rule_columns       rules → verdicts and what actions set, as columns; which rows no rule can select
  row_evaluator      a row with its verdicts → the broker's message and the copies that a subscription gets of it
  captured_columns   where captured files have what rules see

From a tree to SQL:

  sql_values         values in SQL: constants, forms, and what columns cannot say
  rule_sql           filters, SET and REMOVE (`operators_sql`: comparison, arithmetic, LIKE)

Others know `row_evaluator` and `rule_columns`.
"""
