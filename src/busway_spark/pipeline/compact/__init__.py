"""Small files into larger ones:

compact              the job
compact_merge        which become one; put together, not yet seen by anybody
compact_tasks        the same by tasks of Spark
"""
