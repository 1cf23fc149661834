"""Small files into larger ones:

compact              the job
compact_plan         which become one
compact_merge        put together, not yet seen by anybody
compact_tasks        the same by tasks of Spark
compact_swap         old files against new ones, in one step
"""
