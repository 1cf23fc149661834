"""What an operator does for the day on which a disk breaks: a bus is copied while it works, and a copy is looked at.

draft            the folder that a backup is written into: whole under its own name, or not there at all
backup           of a running bus: one cut through all of its stores, then copies at leisure
stopped_copy     the same of a bus that nobody serves, and which files belong to it
directory_check  what is whole in a data directory, and what is damaged
bus_copy         a bus that nobody serves comes to lie in other stores: all of them, in order
store_copy       one store's rows are put into another, page by page, and compared
catalogue_map    other names of stores and keys of fragments, in the catalogue
store_ends       stores by their addresses, at both ends of such a copy

The server and the verbs for backups, checks and copies know it, nobody else. What a single store can do for it lies
in the packages of stores.

Others know `draft`, `backup`, `stopped_copy`, `directory_check`, `bus_copy`, `store_copy` and `store_ends`.
"""
