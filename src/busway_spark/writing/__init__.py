"""What both formats write by:

write_names     what a write is known by: query, batch, names that are given
two_phase       writing in two phases: tasks stage, `commit` decides; Busway's routes for it, and the writers that
                both
                formats give to Spark

Others know all of it.
"""
