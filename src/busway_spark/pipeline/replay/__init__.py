"""History back into a hub, a queue or a topic:

replay               the job
replay_selection     only what a condition holds for
replay_target        sent once
replay_staged        the same by a bus that can stage
replay_state         how far it has come
"""
