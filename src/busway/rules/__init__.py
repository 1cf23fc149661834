"""The language of subscription rules. Pure: no I/O, no clock, nothing of the broker; a second back end (Spark
columns) reads the same tree.

  rule               what a rule is: a name, a filter, perhaps an action
  check              whether a rule can be stored

From text to a tree and back:

  tokens parse       text → tree; every fault has a place
  expression         the tree: frozen, without behaviour
  printed            tree → text
  system_properties  what `sys.` names

From a tree to an answer about a message:

  subject            what rules see of a message
  values             what properties and literals can be (`time_text`: moments and durations as text)
  evaluate           tree → nodes that answer true, false or unknown
  comparison arithmetic like   the operators
  budget             what evaluating a rule may cost
  filters            a filter of any kind, ready for many messages
  actions            SET and REMOVE, ready for many messages, keeping the types of properties

All rules of a topic at once:

  selection          which subscriptions get a message, and by which rules
  match              what one subscription gets of a message
  compiled_rule      one rule of one subscription in the selection
  correlation        the conditions of a correlation filter
  anchors            the part of a SQL filter that can be looked up
  rule_index         all correlation filters, and all SQL filters with an anchor, by look-up

  errors             what can be wrong with a rule
"""
