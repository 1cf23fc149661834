"""`format("eventhubs")`: event hubs as tables and streams. Names of options and columns are those of
azure-event-hubs-spark.

  source             what Spark asks for readers and writers
  options            options, checked
  facts              what a hub tells about itself and its partitions
  offsets            positions in options, offsets of streams, ranges, and what can be lost
  chosen_columns     which columns there are, and which of them a query wants
  columns            events as Arrow columns (`heads`: what events bring beside their bodies)
  ranges             reading one range in one task, by Busway's bulk route or over AMQP
  reader             batch reading, with the filters that Spark hands down
  stream_reader      stream reading, and how far a hub is, asked again and again
  written_columns    which columns of rows are sent, and their properties, encoded
  sink               writing, batch and stream: rows as events, staged or sent
"""
