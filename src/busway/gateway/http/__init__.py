"""Management and messages over HTTP. Follow a request:

entrance         loads all of this when the first connection arrives
standby          what is answered while the bus is not served
protocol         uvicorn's HTTP/1.1 with deadlines and a bound on idle connections
presence         whether the client is still there, what it wrote that ASGI does not tell, and large answers past the
                 loop
app              the one way of every request: Host and Origin, path, route, error
router           who answers which request: the table of routes
call             a request decoded once: path, authority, token, body
untrusted_input  JSON and XML from strangers
statuses         the table of errors: status, sub-code, body
websocket        AMQP over WebSocket, handed to the AMQP gateway

Then one of these:

atom             queues, topics, subscriptions and rules in ATOM
messages         one message sent, received, settled
event_hubs       event hubs: themselves, consumer groups, publishing, how far they are
operator_routes  stores, keys, figures, the status page; a bus made as new, for test suites
pipelines_route  streams that report themselves, and how far behind they are
bulk             many messages in one request, for Spark and for tools

Others know `app`, `entrance` and `standby`.
"""
