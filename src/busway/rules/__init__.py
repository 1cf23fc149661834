"""The language of subscription rules. Pure: no I/O, no clock, nothing of the broker; a second back end (Spark
columns) reads the same tree.

  rule               what a rule is: a name, a filter, perhaps an action; what can be wrong with it

From text to a tree and back:

  parse              text → tokens → tree; every fault has a place
  expression         the tree: frozen, without behaviour; what `sys.` names
  printed            tree → text

From a tree to an answer about a message:

  subject            what rules see of a message, and the values it can have
  time_text          moments and durations as text
  evaluate           tree → nodes that answer true, false or unknown
  operators          comparison, arithmetic, LIKE; what evaluating a rule may cost
  anchors            the part of a SQL filter that can be looked up
  compiled_rule      a filter of any kind, and SET and REMOVE, ready for many messages; what a rule gives

All rules of a topic at once:

  selection          which subscriptions get a message, and by which rules; by look-up all correlation filters,
                     and all SQL filters with an anchor

Others know all of it.
"""
