"""What is whole in a store's file, and what is damaged. Nothing is written, not even beside it.

Opening without a trace. A database with a log wants a shared index beside it, and whoever opens it last empties the log
into the file. So a file is opened in one of two ways. Without a log beside it, or with an empty one, as one that never
changes (`immutable`). With a log through a file system of our own that opens every file for reading only and knows no
locks; the index of the log is kept in memory, and the log is followed as after a crash, up to its last whole commit.
The lock of the store is held meanwhile, so that no server begins in between.

What is looked at: the structure, by SQLite itself; each message, in rows and in runs, by its checksum; marks of runs;
bodies that rows share, and how many refer to them; each chunk of a log; the index of sessions and their states; the
counters of each fragment against what there is; the number of commits against the high-water mark.

A damaged page must not hide the others: where rows cannot be read any more, reading goes on at the next fragment.
"""
