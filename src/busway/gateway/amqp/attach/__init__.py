"""Who may attach what, and which kind of link comes of it:

attaching             links of queues, topics and subscriptions, and to nodes; `X/$management` for one link
event_attaching       producers and readers of event hubs: who they were, and where they begin
client_made_entities  temporary queues and topics, and subscriptions of JMS, that a client makes by attaching

Others know `attaching`.
"""
