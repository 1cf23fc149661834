"""The jobs of `busway pipeline`. Each has a file with a frozen dataclass of options and a function that runs it.

job                what all jobs share: the bus, what an entity is, the session, how progress is told, how Spark
                   reaches object stores
captured           files of captured messages, whoever reads them, and the directories and object stores where they
                   lie
capture            hubs, topics and queues into captured files
compaction         small files into larger ones
replay             history back into a hub, a queue or a topic: how far it has come, what a condition has selected
replay_target      sent once, by a bus that can stage or by AMQP
backfill           history for a new subscription, by its rules
deadletters        triage of dead letters and their way back
report             what captured data and the journal tell

Others know `compaction`, `job` and `replay`.
"""
