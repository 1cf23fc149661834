"""Queues for chaos runs, made by the command line like any user would."""

import subprocess

from tests.harness.running_server import BUSWAY, RunningServer


def create_queue(server: RunningServer, name: str, *options: str) -> None:
    """Short locks, so that what a dead client held comes back soon; no limit on deliveries."""
    subprocess.run(
        [
            *(str(BUSWAY), "queue", "create", name, "--lock-duration", "PT5S"),
            *("--max-delivery-count", "1000000", *options),
            *("--connection-string", server.connection_string),
        ],
        check=True,
        capture_output=True,
    )
