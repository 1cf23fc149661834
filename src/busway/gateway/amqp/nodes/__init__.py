"""Nodes that answer. Follow a request:

request_link           the two links of a request node, and what lies between them
request_and_answer     reading a request's body, writing the answer
token_node             `$cbs`: tokens are put and held
management_node        `X/$management` of an entity: the table of operations, which lie in management_operations;
                       `$management` of the namespace: what event hubs are like
management_operations  messages, what is locked and rules, and the entity that an operation works on
transaction_node       the coordinator: transactions are declared and discharged

Others know `management_node`, `request_and_answer`, `request_link`, `token_node` and
`transaction_node`.
"""
