"""Busway and Spark: the formats "eventhubs" and "servicebus" for reading and writing, batch and stream, and the jobs
of `busway pipeline`.

Needs the extra `busway[spark]`; nothing else of Busway imports Spark. It talks to the bus over the wire alone, from
executors too, and everything that must outlive a query is in Spark's checkpoint. `spark_session()` gives a session
that works; in any other session the formats are found by themselves (modules `pyspark_eventhubs`,
`pyspark_servicebus`).

  session                 `spark_session()`, and a Java where the machine has none
  quick_home              a home of Spark whose Python workers start quickly
  no_session              why there can be none (`standalone_master`: nobody answers at `spark://…`)
  kept_interrupt          Ctrl-C stays with the program that had it
  shipping                our code on executors that lack it (`cache_folder`: where its archive lies)
  carried_source          our code in the process that plans a stream
  small_java              a Java on the driver that gives back what it does not use
  shared_python           Python processes of the driver that share their memory
  authority               the bus's certificate authority on executors
  bus                     the server: its address, its kind, connections to it
  administration          its entities, asked by HTTP
  durations               PT60S in options
  patience                how long it is tried while it is away or busy
  kept_connections        HTTP connections that are kept between requests
  http_door               requests over HTTP: the one client of both formats
  bridge                  from blocking calls to the asynchronous client of AMQP
  connection_texts        connection strings that cannot be used here, and what to do instead
  named_connections       `connection 'prod'`: where a name leads
  catalogue_tables        `CREATE TABLE … USING`: definitions that bring no options to queries
  given_options           the options of a query, found by their names, checked and read
  bus_failure             what goes wrong on it, as a sentence in the error that Spark shows
  write_names             what a write is known by: query, batch, names that are given
  two_phase               writing in two phases: tasks stage, `commit` decides (`staging`: Busway's routes for it)
  sink_writers            the writers that both formats give to Spark
  loud                    what is said though a job goes on
  amqp_arrays             encoded messages as columns, columns as encoded messages
  eventhubs               `format("eventhubs")`
  servicebus              `format("servicebus")`
  property_types          application properties and their AMQP types beside JSON
  bodies                  `bodyFormat`: bodies as columns
  rule_columns            the rules of subscriptions as columns of Spark
  watching                `watch(spark, …)`: how far streams are, told to the bus and to Prometheus
  pipeline                jobs: capture, compact, backfill, dead letters, report, replay
"""

from busway_spark.session import spark_session
from busway_spark.watching.watch import watch

__all__ = ["spark_session", "watch"]
