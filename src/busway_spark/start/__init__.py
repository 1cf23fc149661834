"""A session of Spark that works:

session             `spark_session()`, and a Java where the machine has none
quick_home          a home of Spark whose Python workers start quickly
no_session          why there can be none (`standalone_master`: nobody answers at `spark://…`)
kept_interrupt      Ctrl-C stays with the program that had it
shipping            our code on executors that lack it (`cache_folder`: where its archive lies)
carried_source      our code in the process that plans a stream
small_java          a Java on the driver that gives back what it does not use
"""
