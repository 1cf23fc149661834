"""AMQP 1.0 without I/O: bytes in, events out; intentions in, bytes out. Both roles; no clock, no sockets.

Follow a byte:  connection.receive → frames → (sasl | session | link) → events.
Follow an intention:  link.send / link.grant_credit / link.settle … → connection.bytes_to_send.

  types          Python values for AMQP values that Python has no word for (Symbol, ULong, Described, Array …)
  decode encode  values; every limit on what a peer may send lives in `decode.Budget`
  composites     how a described list with named fields is read and written, by a table
  type_table     that table: frames, SASL frames, termini, delivery states, header and properties
  performatives  reading and writing frames; the few that come in thousands have readers and writers of their own
  sections       the parts of an encoded message: found, never decoded further than asked
  section_order  those of a message that has them in another order than the standard's; batches taken apart
  frames         cutting the byte stream into frames, and the eight-byte headers
  serial_number  RFC 1982 arithmetic for delivery ids and transfer ids
  states         connection, session and link states as tables; nothing else changes a state
  errors         conditions and protocol violations with their scope
  events         what happened, for the owner of a connection (`connection_events`: on the connection itself)
  deliveries     messages that come over a link: arrived, arriving
  engine_settings what a connection announces, and how much of everything a peer may use
  allowance      what a peer makes us keep, held against what it may: a stranger less than a known client
  sasl           the layer before the frames: mechanisms, PLAIN
  connection     the whole engine: bytes in, events out; channels, heartbeats, deadlines
  session        windows, delivery ids, dispositions in ranges
  link           attach, credit, transfers, settlement
"""
