"""One share of an entity, with one owner. Follow a message:

  admission          which messages an entity takes
  intake             numbers, enqueued times, expiry; joins the store's open commit batch
  duplicates         duplicate detection, in front of the intake
  numbering          the end of the numbers, and their new beginning
  write              the one pen: what changes rows, counters, horizon and journal, in one step
  sent_run           the write of a send (`commit_runs`: sends that several commits take; `origin`: where messages
                     come from that are moved here)
  fragment           the state machine; the others are its parts
  settings           the part of a description that a fragment works by
  lane               a stream of messages and the receivers that wait for it
  ready_window       the next messages to deliver, in memory, within one byte budget
  locks              receivers' claims, by token
  receiver           what a receiver offers and what it is given
  settlement         what a receiver asks for in the end
  settled_run        the write of a settlement, in one fragment or in several
  message_states     the life of a message as a table
  outcomes           how locks end: returned, deferred, dead-lettered, expired
  property_changes   application properties that settlement changed
  dead_letter        why a message is dead
  strays             messages deleted for a receiver that did not get them
  message_sessions   sessions: claims, the line for the next one, states (`session_state_room`: how many)
  read_requests      peek, receive by number, batch delete, cancellation
  expiry schedule    what time does to messages (`timers`; `wall_alarm`: timers for wall times)
  flow               what flows through each entity, counted
  journal            what happens to messages, told to whoever keeps a record of it
  runtime            what all fragments share (`namespace_size`)

Outside of the broker one knows `fragment`, `settings`, `receiver`, `settlement`, `locks`, `message_sessions`,
`admission`, `write`, `property_changes`, `timers`, `flow`, `journal` and `runtime`.
"""
