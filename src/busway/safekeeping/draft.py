"""The folder that a backup is written into: whole under its own name, or not there at all.

Theory of operation. Everything is written into a folder beside the one that was asked for, `NAME.unfinished`. Each file is
synced when it is complete; then the folders are; only then does the folder get its name, in one step that takes the
place of nothing but an empty folder, and the name is synced too. So whatever is called NAME is whole, whenever a
process or the machine died. A folder that is left unfinished is nobody's: whoever writes into one holds a lock on it,
and the next backup of that name removes one without a lock.

Keys of the bus lie in its stores, so a backup is as secret as the data directory: only the owner may read it.

Who may have a server write. A folder of the server's machine is no part of the bus, and the right to Manage it must not be
one to write files there. So whoever asks for a backup makes the unfinished folder and puts a note into it that nobody
can guess, and tells the server both: who can do that may write there anyway. The server writes into no other folder.
"""
