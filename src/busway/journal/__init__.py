"""The operation journal: what happened to each message, as Parquet files for the report and for any other reader.

Optional (`serve --journal DIR`) and beside the way of a message: nobody waits for it, and when it cannot keep up or
its disk is full it leaves rows out and counts them. Follow a row:

  files           the columns of its files, which operations there are; where files lie, how they appear whole, which
                  are old
  recorder        what the broker tells, on the event loop, as runs of equal values
  frame           some thousand rows in packed form, on their way to the writer
  feed            hands frames over, without ever waiting; the writer's life as the server sees it, and what was left
                  out
  writer          a process of its own, so that it shares no lock with the loop: gathers frames, decides when a file
                  is full
  parquet_file    one file while it is written: frames → Arrow

Others know `feed`, `files` and `writer`.
"""
