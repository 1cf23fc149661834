"""What exists, where it lies and who may change it. Follow a change:

  namespace          the whole, and everything that time brings
  catalogue          its rows, at home in the first store and copied to all (`catalogue_rows`: what they say;
                     `late_fragments`: what turns out to exist when it is read anew)
  opening placement  the first moments of a namespace; which store a new entity goes to
  entity_changes     how queues, topics and subscriptions come, change and go
  rule_changes       how rules do (`rule_checks`: which may be added; `rule_rows`: what their rows say;
                     `rule_births`: when they began)
  entity_table       every entity's row always, its fragments from its first use (`rule_table`: its rules)
  other_entities     what lives in the namespace besides: event hubs (`streams`)
  staged_rows        what lies in its stores and is no entity's yet (`staging`)
  store_keeper       one store: in service, failed and coming back, or out of service (`store_entry`: what is done
                     before it goes into service)
  auto_delete        entities that nobody uses
  reset              the namespace made as new, for test suites
  operations_log     what was done to the namespace
  background         work that nobody waits for

Outside of the broker one knows `namespace`, `entity_changes`, `rule_checks`, `reset`, `store_keeper`,
`catalogue_rows`, `placement` and `background`.
"""
