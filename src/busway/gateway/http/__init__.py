"""Management over HTTP. Follow a request:

protocol         uvicorn's HTTP/1.1 with deadlines and a bound on idle connections
app              the one way of every request: Host and Origin, path, route, error
call             a request decoded once: path, authority, token, body
management       queues and the namespace in ATOM
atom             those documents, read and written (`xml_input`: XML from strangers)
operator_routes  stores and namespace rules in JSON
status_page      the page at the console's address
statuses         the table of errors: status, sub-code, body
websocket        AMQP over WebSocket, handed to the AMQP gateway
"""
