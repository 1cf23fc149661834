"""The bus, from Spark:

bus                     the server: its address, its kind, connections to it, its certificate authority on executors,
                        its entities, and what goes wrong on it as a sentence in the error that Spark shows
connection_strings      connection strings: by name, and those that cannot be used here
patience                how long the bus is tried while it is away or busy
http_client             requests over HTTP, and the connections that are kept between them
bridge                  from blocking calls to the asynchronous client of AMQP
"""
