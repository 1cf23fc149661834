"""`format("eventhubs")`: event hubs as tables and streams. Names of options and columns are those of
azure-event-hubs-spark.

  source             what Spark asks for readers and writers
  options            options, checked (`ported_options`: those of azure-event-hubs-spark without an effect here)
  facts              what a hub tells about itself and its partitions
  hub_watch          how far a hub is, asked by a stream again and again
  positions          positions in options and the numbers they come to
  offsets            offsets of streams, ranges, and what can be lost
  filters            filters that Spark hands down, as bounds
  bulk_reader        ranges of events by Busway's bulk route
  amqp_reader        ranges of events over AMQP
  chosen_columns     which columns there are, and which of them a query wants
  columns            events as Arrow columns
  head_arrays        what events bring beside their bodies, all at once (`heads`: event by event)
  ranges             reading one range in one task
  reader             batch reading
  stream_reader      stream reading
  written_columns    which columns of rows are sent (`written_sections`: their properties, encoded)
  sink               writing, batch and stream (`amqp_sending`: where rows cannot be staged)
  event_rows         rows as events: partitions, encoding
"""
