"""Triage of dead letters and their way back:

deadletters   the job
columns       browsed, chosen and changed, as a table; by several tasks where there are many
plan          which ones, where to, what keeps each from going twice, and what became of them
tasks         moved by tasks, each once, by a route of the server
move          moved by the driver over AMQP, where there is no such route
triage        the same by policy, once or as a stream: how often, after how long, and where to in the end
report        counted by group, and told: Parquet and a page

Others know `columns`, `deadletters`, `report` and `triage`.
"""
