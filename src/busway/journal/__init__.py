"""The operation journal: what happened to each message, as Parquet files for the report and for any other reader.

Optional (`serve --journal DIR`) and beside the way of a message: nobody waits for it, and when it cannot keep up or
its disk is full it leaves rows out and counts them.

  columns            the columns of its files, and which operations there are
"""
