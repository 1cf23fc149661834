"""Which files belong to a bus, and a backup of one that nobody serves: its files, copied while their locks are held.

A store that was not closed has its log beside it; both are copied, and whoever serves the copy goes on from them as
after a crash. Nothing is read into it: what is damaged is copied as it is, `busway check` tells of it.

Not copied, because a server makes them anew or they are no part of the bus: `root.key` (the key is in the catalogue),
`server.json`, locks and reserves, `busway.log`; captured files and the journal, which any tool may copy because they
never change once they are there. `tls/` belongs to it: clients that trust our authority go on trusting the copy.
"""
