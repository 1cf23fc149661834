"""AMQP clients. Follow a connection:

  gateway         all connections: how they come, the one timer, the clean stop
  admission       who is let in: strangers and clients, counted apart
  shared          what all connections share, and their settings
  connection      one connection: the engine's events in, and what time and rights do to it
  carrier         what its links see of it: output, input, the brakes, what it makes the server hold
  attached_links  the links that stand on it
  deadlines       its phases, and what is due
  rights_check    which links may have lost their right, and looking at them again in slices

Then one of these:

  attach          who may attach what, and which kind of link comes of it
  links           what clients send and receive by: queues, topics, subscriptions, event hubs
  nodes           what clients ask: `$cbs`, `$management`, the coordinator of transactions
  wire            messages, outcomes and errors, in AMQP's words and the broker's
"""
