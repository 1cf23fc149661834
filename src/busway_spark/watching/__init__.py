"""What a driver tells about its streams: how far each is, how fast, and what it failed with.

watch            `watch(spark, …)`: the one line that a program needs
watched          the queries of a driver, as far as Spark's listener heard of them, and how far they have read; what
                 Spark says when something goes wrong, as one sentence
reporter         told to the bus, from a thread of its own, and to Prometheus, as text on a port

Others know `watch` and `watched`.
"""
