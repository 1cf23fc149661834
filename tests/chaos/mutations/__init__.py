"""Broken on purpose: small faults in a copy of the sources, and the tests that must see each of them.

  python -m tests.chaos.mutations [--list] [--only NAME …] [--jobs N]

A suite is worth what it notices. Each fault is a row: which text of which file becomes what, and which tests go red
then. The test that saw a fault must be green on the sources as they are, else it says nothing. Whoever mends a defect
adds the row that brings it back.

  fault        what a row is, and its place in the sources
  postgres     the fence and the look of PostgreSQL stores
  databases    what keeps a server from a database that breaks its promises
  promises     faults against what the bus promises: durability, locks, sessions, rights
  lost         one at least for each defect of a review by which messages were lost, double or stuck
  greed        the same where one client could stop all others
  staging      faults against writes in two phases
  reset        faults of a bus that is made as new, and of what is shipped
  safekeeping  faults against backups and checks
  copies       faults against a bus that is copied to other stores
  letters      faults against dead letters that go back to work
  defects      the same for producers, budgets, addresses and waiting
  play         makes the copies, runs the tests, tells what they saw
"""
