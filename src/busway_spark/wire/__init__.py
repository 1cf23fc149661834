"""The bus, from Spark:

bus                     the server: its address, its kind, connections to it
authority               its certificate authority on executors
administration          its entities, asked by HTTP
patience                how long it is tried while it is away or busy
kept_connections        HTTP connections that are kept between requests
http_door               requests over HTTP: the one client of both formats
bridge                  from blocking calls to the asynchronous client of AMQP
connection_texts        connection strings that cannot be used here, and what to do instead
bus_failure             what goes wrong on it, as a sentence in the error that Spark shows
"""
