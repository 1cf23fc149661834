"""`format("servicebus")`: queues, subscriptions and their dead letters as tables and streams.

source             which reader or writer a query gets
options            options, checked
columns            columns and their types
message_columns    a message as a row, a row as a message (`variant`: its properties)
bridge             from Spark's blocking calls to the asynchronous client (`failure`: its errors)
peek               walks and looks by number that touch nothing
browse             batch reading
drain              batch reading that deletes (`entrance`: receivers with and without sessions)
claim              what a micro-batch consists of, as an offset
claim_desk         taking, holding and settling messages: the protocol
claim_reader       stream reading
writer             batch and stream writing
"""
