"""Captured messages:

captured           their columns, their names, their folders
captured_files     which files there are, in folders and in a Delta table, also as a table of Spark
captured_history   the same as history, in order
manifests          what captured files hold, by their footers or without opening them
delta_table        a Delta table: its columns, its files
notes              what jobs write down for later, with versions
swap               old files against new ones, in one step, and what readers see of it
"""
