"""Everything that is decided: no SQL, no sockets, no wire names. From the smallest to the largest:

  fragment       one share of an entity: a state machine with one owner, and its parts. Most of what happens to a
                 message happens there
  entity         queues, topics and subscriptions, in one fragment or in several
  forward        messages that move on to another entity
  transaction    what a client does together or not at all
  bulk           many messages at once: claims, backfill, dead letters back to work
  namespace      what exists, where it lies, who may change it

Known to all of them:

  store_keeper   one store: in service, failed and coming back, or out of service
"""
