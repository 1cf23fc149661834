"""A store in one SQLite file. Follow a commit, then a read:

store            the store: writing on the loop, committing in a thread; failing and opening again
commit_batch     a batch's statements; bodies that copies share, and who refers to them
message_runs     messages that were put together: one row, what leaves it, reading parts of it
event_logs       logs, written with a batch and read
companion_files  the files beside: one server at a time, how many commits were reported, a reserve of free space
reads            reads of messages; which rows were touched lately and can be read at once
reader_pool      reading connections; rows touched in a thread, read on the loop
reader           the half of a read that runs on a connection of its own
database_file    opening a file: new, ours, or to be migrated; checkpoints and free pages, between commits
snapshot         what a file holds at one moment, copied while the store goes on
file_check       what is whole in a file and what is damaged, without writing
file_rows        what lies in a file, row by row, for whoever copies it elsewhere

Others know `store`; what makes backups, checks and copies knows `snapshot`, `file_check`,
`file_rows` and `companion_files`, too.
"""
