"""A small client for Busway on our own AMQP engine: the command line uses it, programs and tests may. Names follow
the official Python client where it has them. It knows the server by the wire only.

  service_bus_client  one connection with senders, receivers and management requests (asyncio)
  client_connection   that connection: opened when it is needed, with tokens for the entities in use
  administration      entities, rules, keys and stores over HTTP (blocking)
  json_administration the part of it that is JSON: event hubs, and streams that read the bus
  connection_string   a connection string taken apart
  sas_token           making tokens
  wire                the connection: socket, engine, who waits for what (`websocket_stream`: by a WebSocket)
  link_end            our end of a link; `sender`, `receiver` and `request_links` are its kinds
  event_reader        reading a partition of an event hub
  event_producer      publishing to a partition of an event hub, each event once
  transaction         `async with client.transaction():` and the control link below it
  management          requests to an entity's management node (`kept_locks`: locks that are kept for long)
  messages            what is sent and received (`resubmitted_id`: the id of a dead letter that is sent again)
  entity_entry        a queue, topic or subscription as ATOM tells it (`entity_properties`: properties and options)
  rule_entry          a subscription's rule as ATOM tells it
  errors              what can go wrong
"""
