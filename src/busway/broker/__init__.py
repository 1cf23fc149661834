"""Everything that is decided: no SQL, no sockets, no wire names. Follow a message:

  queue              what one receives from, a queue or a subscription: its messages and its dead letters
  topic              what one only sends to; its subscriptions have the copies
  attachments        the links that hold an entity open
  outlet             what gateways work with: one fragment, or the several of a partitioned entity
  fragment           one share of an entity, the state machine with one owner; the others are its parts
  fragment_group     the fragments of a partitioned entity as one (`receiver_share`: a receiver as one of them sees
                     it; `next_session`: waiting at all of them for a session; `session_list`: all their
                     sessions in order; `awaited_settlement`)
  fragment_choice    how sends spread over them (`partition_keys`: keys, and the index in numbers and tokens)
  admission          which messages an entity takes
  intake             numbers, enqueued times, expiry; joins the store's open commit batch
  distribution       a topic's intake: copies for its subscriptions, in the same batch (`copies`: how they are
                     made; `message_subject`: a message as rules see it)
  publication        a publish that is too large for one turn of the loop (`staged_copies`: what can be done of it
                     before it joins; `topic_line`: whoever comes meanwhile; `turns`: what a turn has room for)
  numbering          the end of the numbers, and their new beginning
  duplicates         duplicate detection, in front of the intake
  commit_runs        what waits for a commit: one callback for each run (`origin`: where messages come from that
                     are moved here)
  lane               a stream of messages and the receivers that wait for it
  ready_window       the next messages to deliver, in memory, within one byte budget
  locks              receivers' claims, by token
  receiver           what a receiver offers and what it is given
  settlement         what a receiver asks for in the end
  message_states     the life of a message as a table
  outcomes           how locks end: returned, deferred, dead-lettered, expired
  dead_letter        moves into the dead-letter fragment
  forwarding         what arrives moves on to another entity (`transfers`: moves between stores, and rows that may
                     have arrived elsewhere)
  held_destinations  where it cannot move to just now; what is for others passes by
  property_changes   application properties that settlement changed
  message_sessions   sessions: claims, the line for the next one, states (`session_state_room`: how many)
  backfill           history for a subscription: copies that no publish made, each once
  transaction        what a client does together or not at all (`transactions`: those of a connection;
                     `transaction_sends`, `transaction_claims`: what one will send, and settle or cancel;
                     `transaction_place`: which fragment it keeps to; `transaction_rules`: rules it changes;
                     `decided_rules`: how those get into the catalogue)
  letter_moves       dead letters back to work, each once
  send_via           messages for one entity by way of another: transfer queues
  strays             messages deleted for a receiver that did not get them
  read_requests      peek, receive by number, batch delete, cancellation
  cancellation       scheduled messages of several fragments, cancelled together
  claims             many messages taken, held and settled together (`claim_rows`: what a claim holds; `claim_stamp`:
                     how that is marked)
  expiry schedule    what time does to messages (`wall_alarm`: timers for wall times)
  flow               what flows through each entity, counted
  journal            what happens to messages, told to whoever keeps a record of it
  runtime            what all fragments share (`timers`, `limits`, `namespace_size`)
  fragment_settings  the part of a description that a fragment works by

Follow a change of the namespace:

  namespace          what exists, where it lies, who may change it, everything that time brings
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
  operations_log     what was done to the namespace (`caller`: by whom)
  background         work that nobody waits for
  descriptions       what an entity is (`description_checks`: what it may be; `durations`; `entity_path`: names)
  authorization      who may do what (`sas_keys`: keys of rules)
  errors             what can go wrong, one class per fact
"""
