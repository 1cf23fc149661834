"""`format("servicebus")`: queues, subscriptions and their dead letters as tables and streams.

source             which reader or writer a query gets, with or without decoded bodies (`bodies`)
options            options, checked
columns            columns and their types
message_columns    messages as columns, all at once; a message as a row, a row as a message (`variant`: its
                   properties)
entity_reading     walks and looks by number that touch nothing; receivers, with and without sessions
batch_reader       batch reading, and batch reading that deletes
claim              what a micro-batch consists of, as an offset
claim_reader       stream reading
stock_claims       taking, holding and settling messages by stock operations: the protocol, and as Spark calls it
bulk_claims        the same by Busway's own operations, and messages of a bulk answer as rows
row_messages       rows as messages, all at once
writer             batch and stream writing: rows by entity, staged or sent

Others know `columns`, `entity_reading`, `message_columns`, `options`, `row_messages` and `variant`.
"""
