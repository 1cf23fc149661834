"""What exists, where it lies and who may change it. Each file knows those below it:

  namespace          the whole: its life, its time, and its parts, one for each kind of work; keys and rights,
                     transfer queues, and what no event tells
  stores             stores: the first moments, entry into service, for operators
  lost_commits       what follows when a store has lost commits that it had reported
  entity_deletion    how entities go, one by one or all by a reset

How it changes:

  entity_creation    how entities come, and which may
  entity_update      how they change
  rule_changes       how rules come, change and go, and when they began

What exists:

  contents           all of it, and the one way to change it; event hubs and staged rows as far as it knows them
  entity_table       every entity's row always, its fragments from its first use
  entity_index       what is looked up in rows, and how much entities hold
  auto_delete        entities that nobody uses go
  operations_log     what was done to the namespace

What is written down:

  catalogue          rows, at home in the first store and copied to all; rules that transactions have decided
  catalogue_rows     what they say
  rule_table         the rules of all subscriptions, as rows and compiled

Outside of the broker one knows `namespace`, which names what else is for others.
"""
