"""Management and messages over HTTP. Follow a request:

entrance         loads all of this when the first connection arrives
protocol         uvicorn's HTTP/1.1 with deadlines and a bound on idle connections
presence         whether the client is still there, and what it wrote that ASGI does not tell
direct_writer    large answers, past the loop, from memory to the socket
app              the one way of every request: Host and Origin, path, route, error
router           who answers which request: the table of routes
call             a request decoded once: path, authority, token, body (`json_input`, `xml_input`: from strangers)
statuses         the table of errors: status, sub-code, body
websocket        AMQP over WebSocket, handed to the AMQP gateway

Then one of these:

atom             queues, topics, subscriptions and rules in ATOM
messages         one message sent, received, settled
hubs             event hubs: themselves, publishing, how far they are
operator         stores, figures, pipelines, the status page
bulk             many messages in one request, for Spark and for tools
"""
