"""Management in ATOM, as the service speaks it:

management_routes   queues, topics and the namespace, subscriptions and rules
management_address  what an address means below a topic, and whether the caller may manage, and forward there
atom                the documents, read and written, and the responses with them
entity_xml          queues, topics, subscriptions in them; `rule_xml` rules and their values

Others know `atom`, `management_address` and `management_routes`.
"""
