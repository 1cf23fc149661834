"""History for a new subscription, by its rules:

backfill             the job
backfill_plan        which rules, up to where, out of which files
backfill_matches     what they select, by columns alone
backfill_sending     the tasks that send it
backfill_rows        rows of captured files by their places
backfill_copies      the copies of each message, by rules and verdicts
backfill_payloads    messages as they are, encoded by columns
backfill_targets     where copies go, each once
backfill_client      the server's route for them
"""
