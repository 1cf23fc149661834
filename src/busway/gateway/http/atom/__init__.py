"""Management in ATOM, as the service speaks it:

entity_routes        queues, topics and the namespace; what lies below a topic (`topic_address`) is in
                     `subscription_routes` and `rule_routes`
manage_right         whether the caller may manage, and forward there
atom                 the documents, read and written (`atom_answers`: responses)
entity_xml           queues, topics, subscriptions in them; `rule_xml` rules, `typed_value_xml` their values
"""
