"""`format("servicebus")`: queues, subscriptions and their dead letters as tables and streams.

source             which reader or writer a query gets
options            options, checked
columns            columns and their types (`body_readers`: readers whose bodies are decoded, see `bodies`)
message_columns    a message as a row, a row as a message (`variant`: its properties)
message_arrays     messages as columns, all at once (`variant_arrays`: their properties)
rare_columns       fields that few senders set
peek               walks and looks by number that touch nothing
browse             batch reading
drain              batch reading that deletes (`entrance`: receivers with and without sessions)
claim              what a micro-batch consists of, as an offset (`packed_numbers`: its numbers when they are many)
reading_target     what `availableNow` reads
claim_reader       stream reading
claim_desk         taking, holding and settling messages by stock operations: the protocol (`stock_claims`: as Spark
                   calls it)
bulk_claims        the same by Busway's own operations (`claim_routes`: its requests)
claimed_columns    messages of a bulk answer as rows
writer             batch and stream writing
amqp_sending       the same where rows cannot be staged (`duplicate_check`: the warning that they can arrive twice)
row_messages       rows as messages, all at once (`property_entries`: their properties; `row_targets`: by entity)
"""
