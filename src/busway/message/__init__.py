"""Messages and events as bytes, whoever has them:

message           a message as the broker holds it
dotnet_time       times as clients write them
head              its first sections, taken apart
bare              the part of it that no broker changes
changed_payload   an encoded message with parts of it changed
claimed_run       messages of a claim as they travel in bulk
event_record      an event as it lies in a log and leaves it
event_chunk       runs of events as they are stored, also without their bodies
"""
