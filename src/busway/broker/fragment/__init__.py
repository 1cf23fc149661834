"""One share of an entity, with one owner. Follow a message:

  admission          which messages an entity takes
  intake             numbers, enqueued times, expiry; joins the store's open commit batch
  duplicates         duplicate detection, in front of the intake
  numbering          the end of the numbers, and their new beginning
  write              the one pen: what changes rows, counters, horizon and journal, in one step
  sent_run           the write of a send
  moving             messages that the broker moves: where they come from, and what takes them on
  fragment           the state machine; the others are its parts
  outlet             what gateways work with: a fragment, or the several of a partitioned entity
  settings           the part of a description that a fragment works by
  lane               a stream of messages and the receivers that wait for it
  ready_window       the next messages to deliver, in memory, within one byte budget
  locks              receivers' claims, by token
  receiver           what a receiver offers and what it is given
  message_states     the life of a message as a table
  settling           how locks end (`outcomes`: returned, deferred, dead-lettered, expired)
  property_changes   application properties that settlement changed
  dead_letter        why a message is dead
  message_sessions   sessions: claims, the line for the next one, states
  read_requests      peek, receive by number, batch delete, cancellation
  expiry schedule    what time does to messages (`store_sweep`: what both are; `wall_alarm`: timers for wall times)
  claim_stamp        how rows tell which claim holds them
  journal            what happens to messages, told to whoever keeps a record of it
  runtime            what all fragments share (`turns`: what one turn of the loop has room for)

Outside of the broker one knows `outlet`, `fragment`, `admission`, `journal` and `runtime`.
"""
