"""Event hubs: streams that keep what was read. Follow an event:

  event_hub         what gateways work with: partitions, consumer groups, publishers, links
  key_hash          which partition a key belongs to
  partition_log     one partition: numbers, times, records; joins the store's open commit batch
  producers         idempotent producers, and what each has had stored
  cursor            a reader's place in a log: where it begins, and the events from there on; the newest chunks in
                    memory; who reads a partition, epochs
  retention         old events leave; of the events with one key only the last stays
  capture           which partitions are written to files, and each of them: which file comes next, formats

Follow a change of the namespace:

  event_hubs        all hubs of a namespace, for gateways and for the namespace; how they come, change and go
  hub_table         every hub's row always, its logs while their stores are there, also when a store lost commits
  hub_descriptions  what a hub and a consumer group are and may be

Others know `capture`, `cursor`, `event_hub`, `event_hubs`, `hub_descriptions`, `hub_table`, `key_hash`,
`partition_log` and `producers`.
"""
