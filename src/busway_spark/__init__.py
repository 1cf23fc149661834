"""Busway and Spark: `format("eventhubs")` and `format("servicebus")` for reading and writing, batch and stream.

Needs the extra `busway[spark]`; nothing else of Busway imports Spark. It talks to the bus over the wire alone, from
executors too, and everything that must outlive a query is in Spark's checkpoint. `spark_session()` gives a session
that works; in any other session the formats are found by themselves (modules `pyspark_eventhubs`,
`pyspark_servicebus`).

  session                 `spark_session()`, and a Java where the machine has none
  bus                     the server: its address, its kind, connections to it
  hub_facts               what a hub tells about itself and its partitions
  bulk_reader             ranges of events by Busway's bulk route
  amqp_reader             ranges of events over AMQP
  eventhubs_source        what Spark asks for readers and writers
  eventhubs_options       options, checked
  eventhubs_positions     positions in options and the numbers they come to
  eventhubs_offsets       offsets of streams, ranges, and what can be lost
  eventhubs_filters       filters that Spark hands down, as bounds
  eventhubs_columns       events as Arrow columns
  eventhubs_heads         what events bring beside their bodies, as columns
  eventhubs_ranges        reading one range in one task
  eventhubs_reader        batch reading
  eventhubs_stream_reader stream reading
  eventhubs_writer        writing, batch and stream
  servicebus_source       which reader or writer a query gets
  servicebus_options      options, checked
  servicebus_columns      columns and their types
  message_columns         a message as a row, a row as a message (`servicebus_variant`: its properties)
  servicebus_bridge       from Spark's blocking calls to the asynchronous client (`servicebus_failure`: its errors)
  servicebus_peek         walks and looks by number that touch nothing
  servicebus_browse       batch reading
  servicebus_drain        batch reading that deletes (`servicebus_entrance`: receivers with and without sessions)
  servicebus_claim        what a micro-batch consists of, as an offset
  servicebus_claim_desk   taking, holding and settling messages: the protocol
  servicebus_claim_reader stream reading
  servicebus_writer       batch and stream writing
"""

from busway_spark.session import spark_session

__all__ = ["spark_session"]
