"""Event hubs over HTTP:

hub_door           which requests are about event hubs
hub_routes         hubs and consumer groups, in JSON; `consumer_group_routes`: groups in ATOM
hub_messages       publishing
partitions_route   how far partitions are, and waiting for more
"""
