"""Hubs, topics and queues into captured files:

capture            the job
capture_retry      when a stream that failed is started again
capture_sink       what Spark reads from and writes to
captured_rows      rows of both formats in the columns of captured files
captured_writer    the files of a task, not yet seen by anybody, and which rows a batch had
capture_commit     the files of a batch put in place, once
object_commit      the same where there are objects
delta              the same into a Delta table
"""
