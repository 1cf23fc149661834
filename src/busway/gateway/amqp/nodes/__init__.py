"""Nodes that answer. Follow a request:

request_link           the two links of a request node, and what lies between them
request_and_answer     reading a request's body, writing the answer
token_node             `$cbs`: tokens are put and held
management_node        `X/$management` of an entity: the table of operations, which lie in management_operations and
                       management_rules; `$management` of the namespace: what event hubs are like
management_operations  messages and what is locked, and the entity that an operation works on
management_rules       rules of a subscription
transfer_dead_letter   the sub-queue of messages that could not be transferred, before there is one
transaction_node       the coordinator: transactions are declared and discharged

Others know `management_node`, `request_and_answer`, `request_link`, `token_node`, `transaction_node` and
`transfer_dead_letter`.
"""
