"""Busway with its messages in a PostgreSQL of its own, on the same disk as everything else that is measured.

PostgreSQL has its own defaults but for two settings. Its buffers are those that an administrator would give a small
database. And its vacuum looks every second instead of every minute, so that who leaves dead rows behind pays for them
in the same round.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.busway_server import BuswayServer
from tests.harness.postgres_server import NoPostgres, PostgresServer, programs

SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "1GB", "autovacuum_naptime": "1s"}
STORES = 16


def why_not_here() -> str | None:
    """None when PostgreSQL's programs are here."""
    try:
        programs()
    except NoPostgres as error:
        return str(error)
    return None


class BusOnPostgres(BuswayServer):
    """As a context manager it ends both in the end."""

    def __init__(self, folder: Path, stores: int = STORES) -> None:
        # Not below the folder of the run: PostgreSQL's user may not go there.
        self.database = PostgresServer(settings=SETTINGS, place=Path(tempfile.gettempdir())).start()
        try:
            self.url = self.database.database()
            super().__init__(folder, "--store", f"{self.url}?name=bench&stores={stores}")
        except BaseException:
            self.database.remove()
            raise
        self.name = "Busway on PostgreSQL"

    @property
    def database_name(self) -> str:
        return urlsplit(self.url).path.removeprefix("/")

    def stop(self) -> None:
        super().stop()
        self.database.remove()

    def _database_pid(self) -> int | None:
        return self.database.pid
