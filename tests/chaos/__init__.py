"""make chaos: a server is hurt in every way we know, and what its clients saw is checked.

Parts (`python -m tests.chaos.run --only PART`), one file each:

  kill         kill -9 under load
  backups      the bus is copied under load, and each copy is served and judged
  power_cut    the power of a loop-mounted disk goes under load (root)
  crash_points the disk fails at every write of every scenario (`crash_scenarios`), around a whole namespace
               (`crash_world`) in this process; no root needed
               with topics, forwarding, partitioned entities (`crash_spread`) and transactions
               (`crash_transactions`) in runs of their own; `crash_picture` is what is compared
  nodes        two nodes behind a balancer: the owner is killed, stopped, made to stand still
  changes      entities are changed in every way under the SDK's retries, with kill -9 in the middle (`changing_load`,
               `http_administrator`); and all cells of `tests.changes`
  partitions   one store of four hangs, fails or is taken out of service (`spread_load`, `fairness`)
  transactions kill -9 and cut connections under transactions (`transaction_load`, `transaction_checker`)
  streams      an event hub under kills, cuts and lost stores, and power cuts (`stream_runs` lists all of these parts)
  stream_room  retention under readers, and a full disk (root); stream_damage: damaged files; crash_streams
  cuts         connections break in the middle of a frame
  disk_full    a full disk refuses sends and nothing else (root)
  sync_errors  fdatasync fails under load (strace)
  stalls       a disk that hangs, a server that stands still (`--long`: for 70 s)
  patience     every kind of connection is held for an hour, idle and busy (`--long`)
  clock_steps  the clock is set, by hours and by ten years
  damage       files bear what nobody wrote, in this process and under a server (`damaged_server`)
  fuzz         damaged frames, messages and conversations for the decoder and the engine
  mutations    the sources are broken on purpose, and the tests that should see it do
  spark_kills  Spark's streams: the driver, an executor or the bus dies in a batch (the extra `spark`)
  long_tests   tests that are marked `long`: every point of some, whole jobs on Spark (the extra `spark`)

What they share:

  mixed_load   three queues under `workload` at once; ends with `draining`
  stream_load  publishers and readers of an event hub (`idempotent_producer`, `hub_reading`); `stream_checker`
  history      what clients did and saw
  checker      whether a correct bus can produce that; tests/unit/chaos plants every violation
  provision homes server_log syscall_faults scenario
"""
