"""Several servers on the same stores in PostgreSQL: who has them. Nothing here is loaded where all stores are files.

lease          how long an owner may be sure of its stores, and when another node may take them: by its own clock only
ownership      which node should have which store, the same answer on every node

Others know none of it.
"""
