"""History for a new subscription, by its rules:

backfill             the job
backfill_plan        which rules, up to where, out of which files
backfill_matches     what they select, by columns alone
backfill_sending     selected messages as copies, each once
backfill_door        the server's door for them
"""
