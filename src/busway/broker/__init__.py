"""Everything that is decided: no SQL, no sockets, no wire names. Follow a message:

  queue              a queue: its main fragment, its dead-letter fragment, the links that hold it open
  fragment           one share of an entity, the state machine with one owner; the others are its parts
  admission          which messages an entity takes
  intake             numbers, enqueued times, expiry; joins the store's open commit batch
  duplicates         duplicate detection, in front of the intake
  commit_runs        what waits for a commit: one callback for each run
  lane               a stream of messages and the receivers that wait for it
  ready_window       the next messages to deliver, in memory, within one byte budget
  locks              receivers' claims, by token
  receiver           what a receiver offers and what it is given
  settlement         what a receiver asks for in the end
  message_states     the life of a message as a table
  outcomes           how locks end: returned, deferred, dead-lettered, expired
  dead_letter        moves into the dead-letter fragment
  property_changes   application properties that settlement changed
  message_sessions   sessions: claims, the line for the next one, states (`session_state_room`: how many)
  read_requests      peek, receive by number, batch delete, cancellation
  expiry schedule    what time does to messages (`wall_alarm`: a timer for a wall time)
  runtime            what all fragments share (`timers`, `limits`, `namespace_size`)
  fragment_settings  the part of a description that a fragment works by

Follow a change of the namespace:

  namespace          what exists, where it lies, who may change it, everything that time brings
  catalogue          its rows, at home in the first store and copied to all (`catalogue_rows`: what they say)
  opening placement  the first moments of a namespace; which store a new queue goes to
  queue_table        every queue's row always, its fragments from its first use
  store_keeper       one store: in service, failed and coming back, or out of service
  auto_delete        queues that nobody uses
  background         work that nobody waits for
  descriptions       what a queue is (`description_checks`: what it may be; `durations`; `entity_path`: names)
  authorization      who may do what (`sas_keys`: keys of rules)
  errors             what can go wrong, one class per fact
"""
