"""What a driver tells about its streams: how far each is, how fast, and what it failed with.

watch            `watch(spark, …)`: the one line that a program needs
listener         what Spark says about its queries (`spark_sentence`: when something goes wrong)
watched          the queries of a driver, as far as the listener heard of them, and how far they have read
reporter         to the bus, from a thread of its own
figures          to Prometheus, as text on a port
"""
