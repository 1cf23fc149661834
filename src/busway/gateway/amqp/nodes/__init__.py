"""Nodes that answer. Follow a request:

request_link          the two links of a request node, and what lies between them
cbs_node tokens       `$cbs`: tokens are put and held
management_node       `X/$management` of an entity: the table of operations, which lie in
                      management_locks, management_messages, management_rules
event_management      `$management` of the namespace: what event hubs are like
management_request    reading a request's body; `node_response`: writing the answer
managed_entity        what an operation works on
transfer_dead_letter  the sub-queue of messages that could not be transferred, before there is one
transaction_node      the coordinator: transactions are declared and discharged
"""
