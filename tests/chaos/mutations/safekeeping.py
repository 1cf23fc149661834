"""Faults against backups and checks: a copy that only looks whole, a check that changes what it looks at."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

_BACKUP: Final = "busway/safekeeping/backup.py"
_DRAFT: Final = "busway/safekeeping/draft.py"
_SNAPSHOT: Final = "busway/store/sqlite/snapshot.py"
_CHECK: Final = "busway/store/sqlite/file_check.py"
_BACKUP_TESTS: Final = ("tests/server/test_backup.py",)
_CHECK_TESTS: Final = ("tests/server/test_check.py",)

SAFEKEEPING: Final = (
    Fault(
        "snapshots that are not of one cut",
        "Backup: what moves between stores is neither lost nor there twice",
        _BACKUP,
        """            store.pause_commits()
""",
        """            store.resume_commits()
""",
        _BACKUP_TESTS,
    ),
    Fault(
        "commits that wait for ever for a snapshot",
        "Backup: a disk that hangs ends the backup, not the bus",
        _BACKUP,
        """            for store in self._stores:
                store.resume_commits()
""",
        """            pass
""",
        _BACKUP_TESTS,
    ),
    Fault(
        "a copy that has its name before it is synced",
        "Backup: whatever is called by its name is whole",
        _DRAFT,
        """                    if name != _NOTE:
                        sync_file""",
        """                    if name == _NOTE:
                        sync_file""",
        _BACKUP_TESTS,
    ),
    Fault(
        "a folder of a backup that is not synced",
        "Backup: names of files survive a power cut",
        _DRAFT,
        """                sync_directory(Path(folder))
""",
        "",
        _BACKUP_TESTS,
    ),
    Fault(
        "a backup that is written wherever somebody says",
        "A-9: the right to Manage is none to write files",
        _DRAFT,
        """        if not is_right:
""",
        """        if is_right is None:
""",
        _BACKUP_TESTS,
    ),
    Fault(
        "a backup that takes the place of something",
        "Backup: nothing is overwritten",
        _DRAFT,
        """(not target.is_dir() or any(target.iterdir()))""",
        """not target.is_dir()""",
        _BACKUP_TESTS,
    ),
    Fault(
        "a backup that others may read",
        "A-3: the keys of the bus are in it",
        _SNAPSHOT,
        """os.O_WRONLY | os.O_CLOEXEC, 0o600))""",
        """os.O_WRONLY | os.O_CLOEXEC, 0o644))""",
        _BACKUP_TESTS,
    ),
    Fault(
        "a failed backup that is left",
        "Backup: nothing half made stays",
        _BACKUP,
        """    await asyncio.to_thread(work.draft.discard)
""",
        """    work.draft.release()
""",
        _BACKUP_TESTS,
    ),
    Fault(
        "a log that a backup leaves to the commits",
        "Backup: what the log has gathered is brought into the store beside the commits",
        _SNAPSHOT,
        """            self._empty_log()
""",
        """            pass
""",
        _BACKUP_TESTS,
    ),
    Fault(
        "a check that leaves traces",
        "F4: whoever looks changes nothing",
        _CHECK,
        """flags=apsw.SQLITE_OPEN_READONLY, vfs=_FILE_SYSTEM)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
""",
        """flags=apsw.SQLITE_OPEN_READWRITE)
""",
        _CHECK_TESTS,
    ),
    Fault(
        "a check that does not look into the log",
        "F1: what was accepted before a kill is seen",
        _CHECK,
        """        if log.is_file() and log.stat().st_size > 0:
""",
        """        if log.is_dir():
""",
        _CHECK_TESTS,
    ),
    Fault(
        "a check that believes bodies that rows share",
        "F4: each row is proved with the body that it refers to",
        _CHECK,
        """            bare = bodies[0][0]
""",
        """            return None
""",
        _CHECK_TESTS,
    ),
    Fault(
        "a check that does not count",
        "F4: books and rows say the same",
        "busway/safekeeping/directory_check.py",
        """        check.compare_counters(logs, queues)
""",
        "",
        _CHECK_TESTS,
    ),
)
