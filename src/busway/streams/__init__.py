"""Event hubs: streams that keep what was read. Follow an event:

  event_hub         what gateways work with: partitions, consumer groups, links
  key_hash          which partition a key belongs to
  partition_log     one partition: numbers, times, records; joins the store's open commit batch; the tail in memory
  publishers        whoever sends by a path of its own
  producers         idempotent producers, and what each has had stored
  positions         where a reader begins
  readers           who reads a partition, epochs
  cursor            a reader's place in a log, and the events from there on
  retention         old events leave
  captures          which partitions are written to files (`capture`: one of them; `capture_window`: which file comes
                    next; `capture_files`, `capture_parquet`: formats; `captured_event`: what they say of an event)
  lost_commits      what a log does when its store has forgotten some
  compaction        of the events with one key only the last stays

Follow a change of the namespace:

  event_hubs        all hubs of a namespace, for gateways and for the namespace
  hub_changes       how hubs and consumer groups come, change and go
  hub_table         every hub's row always, its logs while their stores are there
  hub_rows          what their catalogue rows say
  hub_descriptions  what a hub and a consumer group are (`hub_checks`: what they may be)
"""
