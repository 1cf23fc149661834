"""Event hubs over HTTP:

hub_routes         hubs and consumer groups, in JSON; `consumer_group_routes`: groups in ATOM
hub_messages       publishing
partitions_route   how far partitions are, and waiting for more
"""
