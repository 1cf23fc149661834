"""`busway pipeline`: jobs on Spark. One file per job; Spark is imported when one runs, so help stays quick.

running            what all jobs share: options, the session, progress, stopping
capture            hubs and topics into files
compact            small files into larger ones
replay             files back into hubs, queues and topics
backfill           history for a new subscription
deadletters        dead letters looked at, and their way back
triage             the same by a policy, once or as a stream
report             what the bus did, as a page
status             list, status, forget: streams that read the bus, and how far behind they are

Others know none of it.
"""

import typer

from busway.cli.pipeline import backfill, capture, compact, deadletters, replay, report, status, triage
from busway.cli.verbs import example, verb_family

_ABOUT = (
    "Jobs on Spark: history into files, out of files, and what it tells. They need the extra busway[spark];"
    " list and status tell how far streams are, and need nothing."
)


def register(app: typer.Typer) -> None:
    family = verb_family(_ABOUT)
    app.add_typer(family, name="pipeline", epilog=example("busway pipeline capture clicks --to lake"))
    for job in (backfill, capture, compact, deadletters, replay, report, status, triage):
        job.register(family)
