"""What a store's file holds at one moment, to be copied while the store goes on.

A snapshot is a read transaction on a connection of its own: `begin` takes it, and from then on all pages are those of that
commit, whatever is committed meanwhile. SQLite's own backup copies them, log and file together, into one file without
a log. While it lasts the log cannot start over, so the store is told to make no checkpoints that would be in vain; at
the end the log is brought into the file here, in the thread of the backup, and not between two commits.

Methods block: call them off the loop, one at a time.
"""
