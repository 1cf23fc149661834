"""A store in one SQLite file. Follow a commit, then a read:

store          the store: gathering, in flight, reported; failing and opening again
commit_batch   a batch's statements
payloads       bodies that copies share, and who refers to them
log_writer     the part of it about logs
upkeep         checkpoints and free pages, between commits
space          watching free space; the reserve file
high_water     how many commits were reported, in a file of its own
reads          the reads of the contract; which rows were touched lately and can be read at once
spans          reads under way: their connections, and the shadows of batches that correct them on the loop
reader         the half of a read that runs on a connection of its own (`raw_page`: rows as committed)
log_reader     the part of it about logs
rows           messages ↔ rows, with their checksums
log_rows       chunks of logs ↔ rows, likewise; one CRC for many chunks
file_lock      one server at a time
database_file  opening a file: new, ours, or to be migrated
first_rows     rows as schema 1 had them, for the migration
queries        the statements of `queries.sql`, `schema.sql` and `migrations`
"""
