"""AMQP clients. Follow a connection:

  protocol       AMQP straight on a socket: the event loop's callbacks
  gateway        all connections: strangers and clients, the one timer, the clean stop
  connection     one connection: the engine's events in, the links' actions out, the brakes
  capabilities   what a connection can do, for who asks by name
  holdings       what one connection makes the server hold, by kind
  told_events    what a read has brought, in words, for the log of what took long
  rights_check   which links may have lost their right, and looking at them again in slices

Then one of these:

  links          what clients send and receive by: queues, topics, subscriptions, event hubs
  nodes          what clients ask: `$cbs`, `$management`, the coordinator of transactions
  wire           messages, outcomes and errors, in AMQP's words and the broker's
"""
