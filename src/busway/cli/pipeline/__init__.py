"""`busway pipeline`: jobs on Spark. Spark is imported when one runs, so help stays quick.

running            what all jobs share: options, the session, progress, stopping
capture            hubs and topics into files; their small files into larger ones (compact)
history            files back into hubs, queues and topics (replay); history for a new subscription (backfill)
deadletters        dead letters looked at, and their way back; the same by a policy, once or as a stream (triage)
report             what the bus did, as a page
status             list, status, forget: streams that read the bus, and how far behind they are

Others know none of it.
"""

import typer

from busway.cli.pipeline import capture, deadletters, history, report, status
from busway.cli.verbs import example, verb_family

_ABOUT = (
    "Jobs on Spark: history into files, out of files, and what it tells. They need the extra busway[spark];"
    " list and status tell how far streams are, and need nothing."
)


def register(app: typer.Typer) -> None:
    family = verb_family(_ABOUT)
    app.add_typer(family, name="pipeline", epilog=example("busway pipeline capture clicks --to lake"))
    for job in (capture, deadletters, history, report, status):
        job.register(family)
