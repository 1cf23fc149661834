"""AMQP clients. Follow a message:

  protocol              AMQP straight on a socket: the event loop's callbacks
  gateway               all connections: strangers and clients, the one timer, the clean stop
  connection            one connection: the engine's events in, the links' actions out, the brakes
  attaching             who may attach what, and which kind of link comes of it (`addresses`: what an address means)
  send_link             a client sends: runs of deliveries → messages → outcomes (`batch_envelope`: a batch's key)
  message_mapping       payload ↔ message (`message_ids`: an id for messages that come without one)
  payloads              the same for the HTTP gateway
  receive_link          a client receives: room, transfers, dispositions → settlements
  session_receive_link  the same for a session
  transaction_node      the coordinator: transactions are declared and discharged (`session_pin`: the one entity that
                        receivers beside it keep to)
  outcomes              AMQP outcomes ↔ the broker's verbs
  transfer_dead_letter  the sub-queue of messages that could not be transferred, before there is one
  link_host             what a link may ask of its connection

Follow a request:

  request_link          the two links of a request node, and the desk between them
  cbs_node tokens       `$cbs`: tokens are put and held
  management_node       `X/$management`: the table of operations, which lie in
                        management_locks, management_messages, management_sessions, management_rules
  management_request    reading a request's body; `management_answer`, `node_response`: writing the answer
  managed_entity        what an operation works on (`link_lookup`: the links of the asking connection)
  error_conditions      the table of errors: condition, status
"""
