"""Messages and events as bytes, whoever has them:

message           a message as the broker holds it; its head, taken apart; times as clients write them
bare              the part of it that no broker changes
changed_payload   an encoded message with parts of it changed
message_subject   a message as rules see it, for the broker and for Spark, and the copies that rules make of it
claimed_run       messages of a claim as they travel in bulk
event_record      an event as it lies in a log and leaves it
event_chunk       runs of events as they are stored, also without their bodies

Others know all of it.
"""
