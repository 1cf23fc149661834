"""What is whole in a data directory, and what is damaged: each store by itself, then all of them together.

Nothing is written, and a directory that somebody serves is refused. What a store can tell alone is told by
`busway.store.sqlite.file_check`. Here the stores are laid side by side: whether one is missing, whether they are of one
namespace, whether each row of the catalogue can be read, whether what the catalogue names is there.

Damage is what no crash can leave: bytes that are not what was written, something that is missing, books that do not
agree. What a crash may leave, and the next start mends, is told as a note and is no damage: a store whose copy of the
catalogue is behind, a fragment that no row names because its queue was about to be made or had just been deleted.

Messages are read one after the other and forgotten, findings are kept up to FINDINGS_MAX of a kind and counted beyond.
What stays in memory is a few numbers for each fragment and the catalogue, as in a server.
"""
