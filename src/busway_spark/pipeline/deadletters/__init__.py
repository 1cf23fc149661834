"""Triage of dead letters and their way back:

deadletters   the job
columns       browsed and chosen, as a table; by several tasks where there are many
groups        counted
fix           changed
route         where to, and what keeps each from going twice
plan          which ones, and what became of them
tasks         moved by tasks, each once, by a route of the server
move          moved by the driver over AMQP, where there is no such route
triage        the same by policy, once or as a stream
policy        how often, after how long, and where to in the end
report        told: Parquet and a page
"""
