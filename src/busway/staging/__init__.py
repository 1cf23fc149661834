"""Two-phase writes: rows are staged by tasks, decided by one row, and published by the broker.

Theory of operation. A *stage* holds what one call of `write` sends: one try of one task, under a random id of
its own, so that the leftovers of a task that died never mix with those of the next try. Its rows are durable
and nobody sees them. They lie in the stores that they are for: for each fragment that some of them will go to a
stage has a hidden *log* there, made of chunks as a hub's partition is, and in each of these stores one *note*
that says what these logs are. The fragment is chosen when a row is staged, and everything that can refuse a row
does it then: size, session, keys, rights, quota. Bytes count against the entity and the namespace from staging
on, over restarts too, since they are those of the logs' own counters.

A *decision* is one row in the catalogue's home: which batch of which write counts, and the stages that it is
made of. It is written in one commit after all of them were found whole. Before it nothing can be seen and
everything may be dropped; from it on the broker alone publishes, fragment by fragment, in order, in bounded
slices. A slice joins its fragment and leaves its log in one batch of the one store that both lie in, and the
log's counters say how far it is: after a kill or an outage publication goes on where it was, in each store for
itself.

A batch that is decided is known: to repeat it changes nothing, and the stages of the repetition are dropped. A
lower one is refused, because the checkpoint of whoever sends it went back. What nobody decides goes with
`drop`, or when its time is over; both spare what a decision names, and wait while the home, which knows the
decisions, is away.

An entity that is deleted or made again before the decision makes it fail; after it, its rows are dropped and
counted. Everything else that is in the way of publishing passes: an entity that is disabled, a store that is
away or full.

  stagings       the surface: stage a part, decide, drop; stores that come and go
  decider        which stages count, and what nobody decides for; steps that join a batch; what time ends, and
                 everything when the namespace is made as new
  targets        queues, topics and hubs as rows go to them: check, choose a fragment, publish; the rows of one
                 request (a part), a piece of a log on its way (a slice)
  staged_record  a row as it lies in a log
  stage_table    a stage and its notes; all stages, by store; what they hold back of quotas
  decisions      the rows of decisions and their life; what a writer is told
  publisher      from the logs to the entities, with chunks read one page ahead, in turns of the loop

Others know `decider`, `decisions`, `stagings` and, to read notes, `stage_table`.
"""
