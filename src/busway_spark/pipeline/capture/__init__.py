"""Hubs, topics and queues into captured files:

capture            the job, and when a stream that failed is started again
capture_sink       what Spark reads from and writes to
captured_writer    rows of both formats as files of a task, not yet seen by anybody, and which rows a batch had
capture_commit     the files of a batch put in place, once, in directories and where there are objects
delta              the same into a Delta table

Others know `capture`, `capture_commit` and `captured_writer`.
"""
