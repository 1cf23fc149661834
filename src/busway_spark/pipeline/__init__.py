"""The jobs of `busway pipeline`. Each has a file with a frozen dataclass of options and a function that runs it.

job                what all jobs share: the bus, the session, how progress is told
captured           files of captured messages: their columns, their names, their folders
captured_files     which of them there are, in folders and in a Delta table
captured_columns   their columns, whoever wrote them and when
captured_frames    the same files as a table of Spark
capture            hubs, topics and queues into captured files
  entity_kind          hub, queue, topic or subscription
  capture_root         the directory or object store where files lie
  places               how such places are spelled, here and by Spark
  hadoop_driver        how Spark itself comes to them
  object_store         objects of a bucket
  object_files         objects as files of Arrow
  object_lock          a lock that is an object
  capture_sources      what Spark reads from
  capture_sink         what Spark writes to
  captured_rows        rows of both formats in the columns of captured files
  captured_writer      the files of a task, not yet seen by anybody
  capture_commit       the files of a batch put in place, once
  object_commit        the same where there are objects
  capture_retry        when a stream that failed is started again
  capture_extent       which rows a batch had
  notes                what jobs write down for later, with versions
  file_span            what a captured file holds, by its footer
  manifests            the same of many files, without opening them
  delta                the same into a Delta table
  delta_table          the table itself: its columns, its files
compact            small files into larger ones
  compact_plan         which become one
  compact_merge        put together, not yet seen by anybody
  compact_tasks        the same by tasks of Spark
  compact_swap         old files against new ones, in one step
captured_history   captured files as history, in order
replay             history back into a hub, a queue or a topic
  replay_selection     only what a condition holds for
  replay_staged        each message once, where the bus stages
  replay_target        by AMQP alone
  replay_state         how far it has come
backfill           history for a new subscription, by its rules
  backfill_plan        which rules, up to where, out of which files
  backfill_matches     what they select, by columns alone
  backfill_sending     selected messages as copies, each once
  backfill_door        the server's door for them
deadletters        triage of dead letters and their way back
  deadletters_columns  browsed and chosen, as a table
  deadletters_spans    by several tasks where there are many
  deadletters_groups   counted
  deadletters_fix      changed
  deadletters_route    where to, and what keeps each from going twice
  deadletters_plan     which ones, and what became of them
  deadletters_tasks    moved by tasks, each once
  deadletters_blobs    what driver and tasks hand each other
  deadletters_door     the server's door for them
  deadletters_move     moved by the driver over AMQP, where there is no such door
  deadletters_triage   the same by policy, once or as a stream
  deadletters_policy   how often, after how long, and where to in the end
  deadletters_report   told: Parquet and a page
report             what captured data and the journal tell
  report_events        both as one table
  report_overlap       what is in both, once
  report_figures       counted and measured
  report_remarks       what is remarkable, in sentences
  report_page          shown
spark_sentence     what Spark says when something goes wrong
page               a report as one HTML file (`charts`: plots as SVG, `chart_scale`: their axes)
"""
