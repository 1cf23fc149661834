"""AMQP clients. Follow a connection:

  gateway           all connections: how they come, the one timer, the clean stop
  shared            what all connections share, their settings, who is let in (strangers and clients, counted apart),
                    and links that may have lost their right
  connection        one connection: the engine's events in, what time and rights do to it, and its deadlines
  carrier           what its links see of it: output, input, the brakes, what it makes the server hold, who stands on
                    it
  message_mapping   messages in AMQP's words and the broker's: payload ↔ message
  delivery_runs     the same for usual messages in runs, out of a read and into one piece of output
  error_conditions  the table of errors: condition, status

Then one of these:

  attach            who may attach what, and which kind of link comes of it
  links             what clients send and receive by: queues, topics, subscriptions, event hubs
  nodes             what clients ask: `$cbs`, `$management`, the coordinator of transactions

Others know `gateway` and `message_mapping`.
"""
