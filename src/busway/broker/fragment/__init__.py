"""One share of an entity, with one owner. Follow a message:

  intake               which messages an entity takes; numbers, enqueued times, expiry; joins the open batch
  duplicates           duplicate detection, in front of the intake
  numbering            the end of the numbers, and their new beginning
  write                the one pen: what changes rows, counters, horizon and journal, in one step
  sent_run             the write of a send; the copies that a publish brings for a subscription
  fragment             the state machine, and who receives from it; the others are its parts
  outlet               what gateways work with: a fragment, or the several of a partitioned entity; where moved
                       messages come from, and what takes them on
  settings             the part of a description that a fragment works by
  lane                 a stream of messages, the next of them in memory within one byte budget, and the receivers
                       that wait for it
  locks                what a receiver offers and is given; receivers' claims, by token
  message_states       the life of a message as a table; why it is dead
  settling             how locks end: completed, returned, deferred, dead-lettered, expired; what receive-and-delete
                       puts back
  property_changes     application properties that settlement changed; the stamp of a claim
  message_sessions     sessions: claims, the line for the next one, states
  read_requests        peek, receive by number, batch delete, cancellation
  expiry_and_schedule  what time does to messages
  journal              what happens to messages, told to whoever keeps a record of it
  runtime              what all fragments share (`turns`: what one turn of the loop has room for)

Outside of the broker one knows `outlet`, `fragment`, `intake`, `journal` and `runtime`.
"""
