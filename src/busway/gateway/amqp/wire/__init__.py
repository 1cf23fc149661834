"""AMQP's words and the broker's:

message_mapping    payload ↔ message (`message_ids`: an id for messages that come without one)
payloads           the same for the HTTP gateway
outcomes           AMQP outcomes ↔ the broker's verbs
error_conditions   the table of errors: condition, status
"""
