"""What is remembered. A store never decides.

contract      what every store promises: commit batches in, corrected reads out
log_contract  the part of it about logs: chunks of events, producers
sqlite        one file on the disk
shadow        what joined batches take away, laid over reads
callbacks     telling everybody who joined a batch what became of it
"""
