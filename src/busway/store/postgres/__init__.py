"""Stores in a PostgreSQL database. Follow a commit, then a read:

store          one store of a database: gathering, in flight, reported; failing and opening again
database       one database: opening it, and whose turn it is to commit
commit_part    a closed batch, as rows for the statements that write it
time_head      where an order of times begins
known_sessions which sessions have rows, without looking
row_changes    moves and changes, which need to see rows first
batch_arrays   rows as arrays, one for each column
committer      sending parts of several stores at once; what became of them when the answer is lost
writing_connection  one connection that writes: statements in one round trip
high_water     how far the stores of a database were, as this server remembers it
loss           whether a database is older than that, and by how much its counters leap then
figures        what is measured of a database; a look at its clock and its dead rows now and then
reads          the reads of the contract, from where rows may be
reader         the half of a read that runs in a thread, and the connections for it
database_rows  what a store holds, row by row, for whoever copies it elsewhere
url            where a database is, how many stores it holds, how they are called
sqlstates      what an error of PostgreSQL means for a batch
server_checks  whether a server can keep what it promises; what a session is told at its beginning

Others know `store`, `database` and `url`; nodes that watch one another also `batch_arrays`, `server_checks` and
`writing_connection`; what makes copies also `database_rows`.
"""
