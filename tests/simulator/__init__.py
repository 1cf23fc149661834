"""The seeded simulator: the whole broker in one thread under virtual time, hurt in every way a store, a clock or a
crash can hurt it, and judged by what its clients saw. The same seed does the same things.

  python -m tests.simulator --seed N [--operations 2000] [--trace]   replays one
  python -m tests.simulator --seeds 300 [--from N] [--keep-going]    runs many, up to the first that fails

  virtual_time       an event loop on which waiting costs nothing, and its clock
  simulated_store    the memory store with latencies, faults, stale reads, and a disk that outlives a crash
  topology           the entities, and a model of where a message ends up
  operated           what there is besides where an operator changes entities
  client             what all clients share: pauses, calls that are written down
  producers consumers session_consumers transactors
                     what they do
  operators          one that changes entities meanwhile, as `tests.changes` says (`administrator`)
  faults             what goes wrong, and when
  world              one run: namespace, clients, faults, crashes
  finale             the end: everything must come out
  journal            what happened
  timeline           how the entities were at a time, as far as the operator's calls tell
  expectations       what must, may or must not be where, given that
  verdict            whether a correct bus can have done that (with `tests.chaos.checker`)
  simulation         a seed → a report; many seeds → a sum, and the scenario of `make chaos`
"""
