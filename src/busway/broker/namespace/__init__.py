"""What exists, where it lies and who may change it. Follow a change:

  namespace          the whole, and everything that time brings
  contents           what it consists of, and the one way to change that
  catalogue          its rows, at home in the first store and copied to all (`catalogue_rows`: what they say;
                     `late_fragments`: what turns out to exist when it is read anew)
  opening placement  the first moments of a namespace; which store a new entity goes to
  entity_changes     how queues, topics and subscriptions come, change and go
  rule_changes       how rules do (`rule_checks`: which may be added; `rule_rows`: what their rows say;
                     `rule_beginnings`: when they began; `decided_rules`: those that transactions changed)
  entity_table       every entity's row always, its fragments from its first use (`rule_table`: its rules)
  hub_entities       what lives in the namespace besides: event hubs (`streams`)
  staged_rows        what lies in its stores and is no entity's yet (`staging`)
  store_entry        what is done before a store goes into service (`store_keeper`)
  auto_delete        entities that nobody uses
  reset              the namespace made as new, for test suites
  operations_log     what was done to the namespace

Outside of the broker one knows `namespace`, `entity_changes`, `reset`, `catalogue_rows` and `placement`.
"""
