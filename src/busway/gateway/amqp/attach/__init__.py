"""Who may attach what, and which kind of link comes of it:

attaching             links of queues, topics and subscriptions, and to nodes
event_attaching       producers and readers of event hubs: who they were, and where they begin
management_address    `X/$management` for one link: which node answers, and what a request may
temporary_nodes       queues and topics that a client makes by attaching, and that go with their link
topic_subscriptions   subscriptions that a client of JMS makes by attaching, and ends
"""
