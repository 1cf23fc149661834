"""Links. Follow a message:

  attaching             who may attach what, and which kind of link comes of it (`addresses`: what an address means)
  temporary_nodes       queues and topics that a client makes by attaching, and that go with their link
  selecting_attaches    selectors are read one in each turn
  waiting_attaches      how many attaches may wait for changes of the namespace
  topic_subscriptions   subscriptions that a client of JMS makes by attaching (`ending_link`: and ends)
  cross_entity          what a session is for: receivers of one entity only, beside a control link
  send_link             a client sends: runs of deliveries → messages → outcomes (`batch_envelope`: a batch's key;
                        `sender_end`: credit and outcomes, whatever is sent to)
  send_watch            how long a send may wait for its store where another one can be had
  receive_link          a client receives: room, transfers, dispositions → settlements
  session_receive_link  the same for a session
  browse_link           a client looks at messages and takes none (`selector`: which of them)
  transfer_dead_letter  the sub-queue of messages that could not be transferred, before there is one
  link_host             what a link may ask of its connection (`link_lookup`: its other links)

Follow an event:

  event_attaching       producers and readers of event hubs (`event_addresses`: what an address in a hub means)
  event_send_link       a client publishes: runs of deliveries → partitions → outcomes
  event_publication     what is in a publication: events, envelopes, keys
  producer_properties   what an idempotent producer and the broker tell each other
  event_receive_link    a client reads: runs cut out of chunks → settled transfers
  position_filter       where a reader begins
  runtime_metric        what a reader is told about its partition with every event
"""
