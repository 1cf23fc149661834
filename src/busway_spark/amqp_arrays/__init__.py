"""Encoded AMQP messages, many at a time, as arrays: to columns and from columns, without a look at the single one.

message_cut        where sections, fields and entries of many messages lie
value_arrays       values that were found, as Arrow arrays, gathered into columns and maps
arrow              Arrow's functions
encoding           columns as encoded values, sections and messages, ready to be sent in batches

Others know all of it.
"""
