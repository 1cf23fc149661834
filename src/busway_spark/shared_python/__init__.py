"""Python processes that Spark starts on the driver, as forks of one that has imported everything.

Theory of operation. For each stream that is read Spark keeps a process of its own on the driver, for each kind of
question about a source or a sink one more, and behind each of these as many as are asked at once. Each imports
Spark, Arrow and our formats, some 45 MB that no other process shares: twenty captured hubs are 2.7 GiB. As forks of
one process that has imported all of it they share these pages, and each costs only what it changes.

Spark starts Python by `python -m MODULE`, with an environment that goes with each format that is registered. So a
format that is registered within `shared_python` brings along a path with our `sitecustomize` on it, which Python runs
before anything else. That one asks the process that waits (`nursery`) for a fork, gives it the environment and the
standard streams that it has of Spark, and stays as a shell of a few kilobytes, because Spark knows the fork by it:
when Spark ends it the fork is ended, and when the fork ends it ends with the same status. What a fork does is what
the process would have done; a query, its checkpoint and its failures are its own as before.

Who cannot be served goes on as it would have gone without us: another Python or another path is meant, the nursery is
gone, or this is an executor of a cluster, whose memory is not the driver's.

  lent_python          the driver's side: starts the nursery, and registers formats for it
  nursery              the process that forks
  entrance             a folder for Python's path with nothing in it but `sitecustomize`

Others know `lent_python`.
"""
