"""Links. Follow a message:

  addresses             what an address means, and what a session is for: receivers of one entity only, beside a
                        control link
  waiting_attaches      attaches that wait for changes of the namespace, or for their turn
  send_link             a client sends: runs of deliveries → messages → outcomes; credit, whatever is sent to, and how
                        long a send may wait for its store
  receive_link          a client receives: room, transfers, dispositions → settlements; the same for a session
  browse_link           a client looks at messages and takes none; selectors: which of them; where there is nothing
  link_host             what a link may ask of its connection or of its other links

Follow an event:

  event_send_link       a client publishes: runs of deliveries → partitions → outcomes
  event_receive_link    a client reads: runs cut out of chunks → settled transfers

Others know all of it.
"""
