"""A small client for Busway on our own AMQP engine: the command line uses it, programs and tests may. Names follow
the official Python client where it has them. It knows the server by the wire only.

  service_bus_client  one connection with senders, receivers and management requests (asyncio)
  client_connection   that connection: opened when it is needed, with tokens for the entities in use; links for
                      requests;
                      `async with client.transaction():` and the control link below it
  wire                its socket or WebSocket, the engine, who waits for what; our end of a link
  sender receiver     the ends of queues, topics and subscriptions
  events              publishing to a partition of an event hub, each event once, and reading one
  management          requests to an entity's management node, and locks that are kept for long
  messages            what is sent and received, and the id of a dead letter that is sent again
  administration      entities, rules, keys, stores, event hubs, and streams that read the bus, over HTTP (blocking)
  atom_entries        queues, topics, subscriptions and rules as ATOM tells them
  entity_properties   properties of entities, for ATOM bodies and options of the command line
  connection_string   a connection string taken apart, and the tokens that its key signs
  errors              what can go wrong

Others know `administration`, `atom_entries`, `client_connection`, `connection_string`, `entity_properties`,
`errors`, `events`, `management`, `messages`, `receiver`, `sender` and
`service_bus_client`.
"""
