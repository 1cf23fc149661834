"""Captured messages:

captured           their columns, their names, their folders, and what jobs write down for later, with versions
capture_root       the directory or object store where they lie, as it is spelled here and by Spark
object_store       objects of a bucket, also as files of Arrow; a lock that is an object
captured_files     which files there are, in folders and in a Delta table, also as a table of Spark, and as history
manifests          what captured files hold, by their footers or without opening them
delta_table        a Delta table: its columns, its files
swap               old files against new ones, in one step, and what readers see of it

Others know all of it.
"""
