"""Writes in two phases, under a manual clock.

staging_bench   a namespace with hubs and stagings, and a writer as Spark's tasks and driver are
"""
