"""Triage of dead letters and their way back:

deadletters   the job
columns       browsed and chosen, as a table
spans         by several tasks where there are many
groups        counted
blobs         numbers and changes, packed
fix           changed
route         where to, and what keeps each from going twice
plan          which ones, and what became of them
tasks         moved by tasks, each once
door          the server's door for them
move          moved by the driver over AMQP, where there is no such door
triage        the same by policy, once or as a stream
policy        how often, after how long, and where to in the end
report        told: Parquet and a page
"""
