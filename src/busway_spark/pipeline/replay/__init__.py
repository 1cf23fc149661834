"""History back into a hub, a queue or a topic:

replay               the job, how far it has come, and what a condition has selected
replay_target        sent once, by a bus that can stage or by AMQP

Others know `replay`.
"""
