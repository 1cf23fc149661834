"""A backup of a running bus: one cut through all of its stores, then copies at leisure.

Theory of operation. What a bus knows lies in several stores that do not commit together, so four copies made one after
the other would be of four moments: a message that was forwarded meanwhile would be in two of them or in none. Here all
copies are of one moment, the *cut*:

 1. No store starts a commit any more. That is one step on the loop, for all of them.
 2. Each store's snapshot is opened, in threads: a read transaction, which sees what is committed and goes on seeing it.
 3. Commits go on. They were held for as long as opening took, a few milliseconds; nothing was refused meanwhile.

Commits that were in flight at the first step may or may not be seen. That is no hole in the cut: whoever is told of a
commit can only cause another one that starts later, and none did. So the cut is a state that a crash could have left,
with everything in it that anybody had been told before it began, and the bus is built to go on from any such state.

Then the snapshots are copied one after the other, in a thread, some pages at a time, and synced as they go, so that no
commit finds a heap of our pages before it at the disk. A snapshot keeps its store's log from starting over: it grows
by what is written meanwhile. That is bounded (LOG_BYTES_MAX, and free space): a backup that would need more ends with a
sentence, and the bus goes on. A snapshot is let go as soon as it is copied, and what its log has gathered is brought
into the store by a connection of its own, beside the commits.

After a failure: whatever ends a backup before its folder has its name, nothing is left of it (`draft`). The bus has not
changed in either case, so a retry begins anew. Nothing of it outlives the process.
"""
