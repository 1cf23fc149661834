"""AMQP 1.0 without I/O: bytes in, events out; intentions in, bytes out. Both roles; no clock, no sockets.

Follow a byte:  connection.receive → decode → (sasl | session | link) → events.
Follow an intention:  link.send / link.grant_credit / link.settle … → connection.bytes_to_send.

  types          Python values for AMQP values that Python has no word for (Symbol, ULong, Described, Array …)
  decode         the byte stream cut into frames; values out of bytes; limits on values live in `decode.Budget`
  encode         values into bytes
  type_table     frames, SASL frames, termini, delivery states, header and properties by a table: read and written
  byte_writer    bytes put together and numbers read out of them, as mypyc does it and as plain Python
  performatives  reading and writing frames; the few that come in thousands have readers and writers of their own
  sections       the parts of an encoded message: found, never decoded further than asked, in whatever order
  states         connection, session and link states as tables; nothing else changes a state
  errors         conditions and protocol violations with their scope
  events         what happened, for the owner of a connection
  engine_settings what a connection announces, and how much of everything a peer may use
  allowance      what a peer makes us keep, held against what it may: a stranger less than a known client
  sasl           the layer before the frames: mechanisms, PLAIN
  connection     the whole engine: bytes in, events out; channels, heartbeats, deadlines
  session        windows, delivery ids (RFC 1982 arithmetic), dispositions in ranges
  deliveries     one that arrived, arrives in parts or was sent; the books of what is not settled yet
  link           attach, credit, transfers, settlement
  transfer_runs  usual transfers in runs: found in a read, written one behind the other

Others know `byte_writer`, `connection`, `decode`, `deliveries`, `encode`, `engine_settings`, `errors`, `events`,
`link`, `performatives`, `sasl`, `sections`, `session`, `transfer_runs` and `types`.
"""
