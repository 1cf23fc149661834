"""What a driver tells about its streams: how far each is, how fast, and what it failed with.

watch            `watch(spark, …)`: the one line that a program needs
listener         what Spark says about its queries
read_positions   where a batch has brought a query, out of the offsets that our formats write
watched          the queries of a driver, as far as the listener heard of them
reporter         to the bus, from a thread of its own
figures          to Prometheus, as text
figures_door     where Prometheus gets it
"""
