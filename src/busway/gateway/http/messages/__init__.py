"""Messages over HTTP. Follow one:

messages           send, receive, settle, renew (`message_entities`: the entities, by address)
sent_message       a request as a payload
one_receive        a receiver for one message: it stands in line as a link does
received_message   a delivery as an answer
broker_properties  system properties in JSON, and instants
custom_properties  application properties as headers, and which headers are none
"""
