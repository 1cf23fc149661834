"""The bus, from Spark:

bus                     the server: its connection string, given or by name, its address, its kind, its certificate
                        authority on executors, its entities, what goes wrong on it as a sentence in the error that
                        Spark shows, and connections to it, from blocking calls to the asynchronous client of AMQP
patience                how long the bus is tried while it is away or busy
http_client             requests over HTTP, and the connections that are kept between them

Others know all of it.
"""
