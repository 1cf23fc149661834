"""Busway and Spark: the formats "eventhubs" and "servicebus" for reading and writing, batch and stream, and the jobs
of `busway pipeline`.

Needs the extra `busway[spark]`; nothing else of Busway imports Spark. It talks to the bus over the wire alone, from
executors too, and everything that must outlive a query is in Spark's checkpoint. `spark_session()` gives a session
that works; in any other session the formats are found by themselves (modules `pyspark_eventhubs`,
`pyspark_servicebus`).

  start                   a session that works
  shared_python           Python processes of the driver that share their memory
  wire                    the bus, from Spark
  given_options           the options of a query or a table, found by their names, checked and read
  writing                 what both formats write by: two phases, names of writes
  amqp_arrays             encoded messages as columns, columns as encoded messages
  eventhubs               `format("eventhubs")`
  servicebus              `format("servicebus")`
  property_types          application properties and their AMQP types beside JSON
  bodies                  `bodyFormat`: bodies as columns
  rules                   the rules of subscriptions as columns of Spark
  watching                `watch(spark, …)`: how far streams are, told to the bus and to Prometheus
  pipeline                jobs: capture, compact, backfill, dead letters, report, replay
"""

from busway_spark.start.session import spark_session
from busway_spark.watching.watch import watch

__all__ = ["spark_session", "watch"]
