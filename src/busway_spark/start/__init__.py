"""A session of Spark that works:

session             `spark_session()`, a Java where the machine has none, a home of Spark whose Python workers start
                    quickly, and why there can be no session
shipping            our code on executors that lack it
carried_source      our code in the process that plans a stream

Others know all of it.
"""
