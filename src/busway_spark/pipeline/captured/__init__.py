"""Captured messages:

captured           their columns, their names, their folders
captured_files     which files there are, in folders and in a Delta table
captured_columns   their columns, whoever wrote them and when
captured_frames    the same files as a table of Spark
captured_history   the same as history, in order
file_span          what a captured file holds, by its footer
manifests          the same of many files, without opening them
delta_table        a Delta table: its columns, its files
notes              what jobs write down for later, with versions
"""
