"""The operation journal: what happened to each message, as Parquet files for the report and for any other reader.

Optional (`serve --journal DIR`) and beside the way of a message: nobody waits for it, and when it cannot keep up or
its disk is full it leaves rows out and counts them. Follow a row:

  columns         the columns of its files, and which operations there are
  recorder        what the broker tells, on the event loop, as runs of equal values
  frame           some thousand rows in packed form, on their way to the writer
  feed            hands frames over, without ever waiting; the writer's life, and what was left out
  writer_process  the writer as the server sees it: a process of its own, so that it shares no lock with the loop
  writer          that process: gathers frames, decides when a file is full
  row_group       frames → Arrow
  parquet_file    one file while it is written
  files           where files lie, how they appear whole, which are old
"""
