"""Change under traffic: every kind of entity, every change of it, every kind of traffic, under the history checker.
All in one process under virtual time, on the simulator's stores; the same cell and seed do the same things.

  python -m tests.changes [--all] [--seed N] [--only TEXT]   runs the cells of all pairs, or all cells
  python -m tests.changes --list                             names them, and says why there are no others
  python -m tests.changes --cell "queue / ForwardTo moved / transactions" --seed 3 [--trace]   replays one

  kinds              what is changed: the kinds of entities
  change             what a change is: steps over an administrator
  property_changes   every updatable property, out of the broker's own tables
  links link_changes what clients make by attaching, and end
  changes            the list of all changes; the simulator and `make chaos` draw from it too
  in_process         the administrator of a namespace in this process
  traffic            what clients do meanwhile
  matrix             the cells: which there are, which there cannot be, and few that meet every pair
  messages record    messages that can be told apart; what happened to them
  world              the scene of a cell
  client senders stagers receivers session_receivers transactors hub_clients
                     who works there; `crowd` says who where
  operator           who makes the change, and whether it hit the traffic
  finale             everything comes out in the end
  judgement          whether a correct bus can have done that (with `tests.chaos.checker`)
  cell               a cell and a seed → a report
  scenario           all cells on both builds, for `make chaos`
"""
