"""Queues, topics and subscriptions, in one fragment or in several:

  entity             queues, subscriptions and topics, and the links that hold them open
  fragment_group     the fragments of a partitioned entity as one
  group_shares       who receives from them, and a receiver as one of them sees it; settlements, led to their
                     fragments; what they tell of one request
  group_requests     what they answer together: the next session, all sessions in order, cancellation
  fragment_choice    which there are, and how sends spread over them: keys, turns, the index in numbers and tokens
  distribution       a topic's intake: copies for its subscriptions, in the same batch
  publication        a publish that is too large for one turn of the loop
  topic_line         whoever comes meanwhile

Outside of the broker one knows none of them: the namespace names those that others work with.
"""
