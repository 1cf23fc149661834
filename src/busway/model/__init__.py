"""What a bus is made of, in words: no message moves here, and everything above knows it.

entity_path     names of entities, and where one lies in another
descriptions    what an entity is, and keys of authorization rules (`description_checks`: what it may be;
                `durations`: times as clients write them)
json_rows       rows and notes that are kept as JSON
limits          how much there may be
authorization   who may do what, and who asks
settlement      what a receiver asks for in the end, and how results come back
flow            what flows through each entity, counted
errors          what can go wrong, one class per fact

Others know all of it.
"""
