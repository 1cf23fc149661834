"""Management and messages over HTTP. Follow a request:

entrance         loads all of this when the first connection arrives
protocol         uvicorn's HTTP/1.1 with deadlines and a bound on idle connections
request_target   targets that are written in full, made paths
presence         whether the client is still there, and what it wrote that ASGI does not tell
app              the one way of every request: Host and Origin, path, route, error
call             a request decoded once: path, authority, token, body
management       queues, topics and the namespace in ATOM; what lies below a topic (`topic_address`) is in
                 `subscription_routes` and `rule_routes`
atom             those documents, read and written (`xml_input`: XML from strangers; `atom_answers`: responses)
entity_xml       queues, topics, subscriptions in them; `rule_xml` rules, `typed_value_xml` their values
manage_right     whether the caller may manage; `forward_targets`: whether it may forward there
operator_routes  stores and namespace rules in JSON
reset_route      a bus made as new, for test suites
backfill_route   history for a subscription
metrics_route    the figures for Prometheus
pipelines_route  streams that report themselves, and how far behind they are (`pipeline_report`: a report as JSON)
status_page      the page at the console's address
bulk_admission   who may move megabytes, when, and how many at once (`fair_line`: callers in turn; `bulk_work`: cores)
bulk_answer      an answer of megabytes (`direct_writer`: past the loop, from memory to the socket)
statuses         the table of errors: status, sub-code, body
websocket        AMQP over WebSocket, handed to the AMQP gateway

Follow a message:

message_address    which part of the message API a request means
messages           send, receive, settle, renew (`message_entities`: the entities, by address)
sent_message       a request as a payload (`json_input`: JSON from strangers)
one_receive        a receiver for one message: it stands in line as a link does
received_message   a delivery as an answer
broker_properties  system properties in JSON (`http_times`: instants)
custom_properties  application properties as headers, and which headers are none
claims_route       many messages taken, read and settled together
letters_route      dead letters back to work (`remade_letters`: what each becomes)
staging_route      writes in two phases: rows staged, and decided together

Follow an event:

hub_door           which requests are about event hubs
hub_routes         hubs and consumer groups, in JSON; `consumer_group_routes`: groups in ATOM
hub_messages       publishing
partitions_route   how far partitions are, and waiting for more
bulk_route         a range of a partition as it lies in the store (`arrow_stream`: or as Arrow)
"""
