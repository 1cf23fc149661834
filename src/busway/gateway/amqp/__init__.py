"""AMQP clients. Follow a message:

  protocol              AMQP straight on a socket: the event loop's callbacks
  gateway               all connections: strangers and clients, the one timer, the clean stop
  connection            one connection: the engine's events in, the links' actions out, the brakes
  capabilities          what a connection can do, for who asks by name
  holdings              what one connection makes the server hold, by kind
  told_events           what a read has brought, in words, for the log of what took long
  rights_check          which links may have lost their right, and looking at them again in slices
  attaching             who may attach what, and which kind of link comes of it (`addresses`: what an address means)
  temporary_nodes       queues and topics that a client makes by attaching, and that go with their link
  selecting_attaches    selectors are read one in each turn
  waiting_attaches      how many attaches may wait for changes of the namespace
  topic_subscriptions   subscriptions that a client of JMS makes by attaching (`ending_link`: and ends)
  cross_entity          what a session is for: receivers of one entity only, beside a control link
  send_link             a client sends: runs of deliveries → messages → outcomes (`batch_envelope`: a batch's key;
                        `sender_end`: credit and outcomes, whatever is sent to)
  send_watch            how long a send may wait for its store where another one can be had
  message_mapping       payload ↔ message (`message_ids`: an id for messages that come without one)
  payloads              the same for the HTTP gateway
  receive_link          a client receives: room, transfers, dispositions → settlements
  session_receive_link  the same for a session
  browse_link           a client looks at messages and takes none (`selector`: which of them)
  transaction_node      the coordinator: transactions are declared and discharged
  outcomes              AMQP outcomes ↔ the broker's verbs
  transfer_dead_letter  the sub-queue of messages that could not be transferred, before there is one
  link_host             what a link may ask of its connection

Follow an event:

  event_attaching       producers and readers of event hubs (`event_addresses`: what an address in a hub means)
  event_send_link       a client publishes: runs of deliveries → partitions → outcomes
  event_publication     what is in a publication: events, envelopes, keys
  producer_properties   what an idempotent producer and the broker tell each other
  event_receive_link    a client reads: runs cut out of chunks → settled transfers
  position_filter       where a reader begins
  runtime_metric        what a reader is told about its partition with every event

Follow a request:

  request_link          the two links of a request node, and the desk between them
  cbs_node tokens       `$cbs`: tokens are put and held
  management_door       whom a `$management` node answers: each request shows what it may
  management_node       `X/$management`: the table of operations, which lie in
                        management_locks, management_messages, management_sessions, management_rules
  omitted_body          a peeked message without its body
  event_management      `$management` of the namespace: what event hubs are like
  management_request    reading a request's body; `management_answer`, `node_response`: writing the answer
  managed_entity        what an operation works on (`link_lookup`: the links of the asking connection)
  error_conditions      the table of errors: condition, status
"""
