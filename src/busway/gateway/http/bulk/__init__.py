"""Many messages in one request:

admission        who may move megabytes, when, and how many at once: callers in turn, and cores
answer           an answer of megabytes
bulk_route       a range of a partition as it lies in the store (`arrow_stream`: or as Arrow)
claims_route     many messages taken, read and settled together
letters_route    dead letters back to work, and what each becomes
backfill_route   history for a subscription
staging_route    writes in two phases: rows staged, and decided together

Others know `admission`, `backfill_route`, `bulk_route`, `claims_route`, `letters_route` and `staging_route`.
"""
