"""Queues, topics and subscriptions, in one fragment or in several:

  queue              what one receives from, a queue or a subscription: its messages and its dead letters
  topic              what one only sends to; its subscriptions have the copies
  attachments        the links that hold an entity open
  fragment_group     the fragments of a partitioned entity as one (`receiver_share`: a receiver as one of them sees
                     it; `next_session`: waiting at all of them for a session; `session_list`: all their
                     sessions in order; `group_reports`: what they tell of one request;
                     `awaited_settlement`)
  fragment_choice    how sends spread over them (`partition_keys`: keys, and the index in numbers and tokens)
  cancellation       scheduled messages of several fragments, cancelled together
  distribution       a topic's intake: copies for its subscriptions, in the same batch
  publication        a publish that is too large for one turn of the loop (`staged_copies`: what can be done of it
                     before it joins; `topic_line`: whoever comes meanwhile)

Outside of the broker one knows none of them: the namespace names those that others work with.
"""
