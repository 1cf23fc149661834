"""`format("eventhubs")`: event hubs as tables and streams. Names of options and columns are those of
azure-event-hubs-spark.

  source             what Spark asks for readers and writers
  options            options, checked; which columns there are, and which of them a query wants
  offsets            what a hub tells about itself, positions in options, offsets of streams, ranges, and what can be
                     lost
  columns            events as Arrow columns, with what they bring beside their bodies
  ranges             reading one range in one task, by Busway's bulk route or over AMQP
  reader             batch reading, with the filters that Spark hands down; stream reading, and how far a hub is,
                     asked
                     again and again
  sink               writing, batch and stream: which columns of rows are sent, and rows as events, staged or sent

Others know `offsets` and `source`.
"""
