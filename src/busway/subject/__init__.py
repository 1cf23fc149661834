"""A message as rules see it, for the broker and for Spark:

message_subject   its properties, found by name
copies            what a rule's action makes of it
"""
