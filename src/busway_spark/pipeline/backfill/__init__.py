"""History for a new subscription, by its rules:

backfill             the job
backfill_plan        which rules, up to where, out of which files; what they select, by columns alone
backfill_sending     the tasks that send it, and where copies go, each once
backfill_rows        rows of captured files by their places, and as messages, encoded by columns
backfill_copies      the copies of each message, by rules and verdicts

Others know `backfill` and `backfill_plan`.
"""
