"""Links. Follow a message:

  attaching             who may attach what, and which kind of link comes of it (`addresses`: what an address means)
  temporary_nodes       queues and topics that a client makes by attaching, and that go with their link
  waiting_attaches      attaches that wait for changes of the namespace, or for their turn
  topic_subscriptions   subscriptions that a client of JMS makes by attaching, and ends
  cross_entity          what a session is for: receivers of one entity only, beside a control link
  send_link             a client sends: runs of deliveries → messages → outcomes (`sender_end`: credit and outcomes,
                        whatever is sent to, and how long a send may wait for its store)
  receive_link          a client receives: room, transfers, dispositions → settlements
  session_receive_link  the same for a session
  browse_link           a client looks at messages and takes none (`selector`: which of them)
  transfer_dead_letter  the sub-queue of messages that could not be transferred, before there is one
  link_host             what a link may ask of its connection or of its other links

Follow an event:

  event_attaching       producers and readers of event hubs: who they were, and where they begin
  event_send_link       a client publishes: runs of deliveries → partitions → outcomes
  event_receive_link    a client reads: runs cut out of chunks → settled transfers
"""
