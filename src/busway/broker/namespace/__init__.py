"""What exists, where it lies and who may change it. Each file knows those below it:

  namespace          the whole: its life, its time, and its parts, one for each kind of work
  reset              the namespace made as new, for test suites
  opening            its first moments (`store_entry`: what is done before a store goes into service)
  stores             stores, for operators; what everybody is told when one fails
  upkeep             what no event tells
  access_rules       keys and rights
  transfer_queues    messages for one entity by way of another
  subscription_rules rules, for whoever manages them

How it changes:

  entity_creation entity_update entity_deletion
                     how queues, topics and subscriptions come, change and go (`entity_checks`: which may come;
                     `placement`: the store that a new one goes to)
  rule_changes       how rules do (`rule_checks`: which may be added; `rule_beginnings`: when they began)

What exists:

  contents           all of it, and the one way to change it
  entity_table       every entity's row always, its fragments from its first use (`entity_index`: what is looked up in
                     rows; `entity_loading`: entities made of rows; `entity_counts`: how much they hold)
  rule_table         the rules of all subscriptions
  auto_delete        entities that nobody uses go (`idle_entities`: which these are)
  hub_entities       what lives in the namespace besides: event hubs (`streams`)
  staged_rows        what lies in its stores and is no entity's yet (`staging`)
  operations_log     what was done to the namespace

What is written down:

  catalogue          rows, at home in the first store and copied to all
  catalogue_rows     what they say (`rule_rows`: those of rules; `decided_rules`: rules that transactions changed)

Outside of the broker one knows `namespace`, which names what else is for others.
"""
