"""Hubs, topics and queues into captured files:

capture            the job
capture_root       the directory or object store where files lie
capture_sources    what Spark reads from
capture_sink       what Spark writes to
captured_rows      rows of both formats in the columns of captured files
captured_writer    the files of a task, not yet seen by anybody
capture_commit     the files of a batch put in place, once
object_commit      the same where there are objects
delta              the same into a Delta table
capture_retry      when a stream that failed is started again
capture_extent     which rows a batch had
"""
