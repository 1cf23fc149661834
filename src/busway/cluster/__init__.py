"""Several servers on the same stores in PostgreSQL: who has them. Nothing here is loaded where all stores are files.

cluster_node   this server as a node: whether the stores are its own, and who has them if not
lease_keeper   the stores of one database: held, watched, taken; a thread with a connection of its own
lease_rows     what nodes write and read about one another
lease          how long an owner may be sure of its stores, and when another node may take them: by its own clock only
ownership      which node should have which store, the same answer on every node

Others know `cluster_node`.
"""
