"""What is whole in a store's file, and what is damaged. Nothing is written, not even beside it.

Opening without a trace. A database with a log wants a shared index beside it, and whoever opens it last empties the
log into the file. So a file is opened in one of two ways. Without a log beside it, or with an empty one, as one that
never changes (`immutable`). With a log through a file system of our own that opens every file for reading only and
knows no locks; the index of the log is kept in memory, and the log is followed as after a crash, up to its last whole
commit. The lock of the store is held meanwhile, so that no server begins in between.

What is looked at: the structure, by SQLite itself; each message, in rows and in runs, by its checksum; marks of runs;
bodies that rows share, and how many refer to them; each chunk of a log; the index of sessions and their states; the
counters of each fragment against what there is; the number of commits against the high-water mark.

A damaged page must not hide the others: where rows cannot be read any more, reading goes on at the next fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw

from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import COUNTER_BITS, COUNTER_MASK, INDEX_SHIFT, Counters, StoreError, StoreTooNew
from busway.store.log_rows import chunk_data
from busway.store.rows import key_bounds, message_of, unsealed
from busway.store.run_block import RunHead, bounds_checksum, marks_checksum
from busway.store.sqlite.commit_batch import REFERENCE_WEIGHT
from busway.store.sqlite.companion_files import HighWater
from busway.store.sqlite.database_file import APPLICATION_ID, SCHEMA_VERSION
from busway.store.sqlite.message_runs import Run, RunFile
from busway.store.statements import PLACE_TABLES, statements_of

query = statements_of(__package__).query

#: Findings of a kind that are told; others are counted.
FINDINGS_MAX: Final = 20
_PLACES: Final = ("active", "deferred", "scheduled")
_LOW: Final = -(1 << 63)
_HIGH: Final = (1 << 63) - 1
_FILE_SYSTEM: Final = "busway-read-only"
_HASH_MASK: Final = (1 << 64) - 1
#: Told of how many bytes more were looked at, and what they are.
Tell = Callable[[str, int], None]


class Findings:
    """What is damaged, by kind: the first few of each in words, and how many there are."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.told: dict[str, list[str]] = {}

    def add(self, kind: str, sentence: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        told = self.told.setdefault(kind, [])
        if len(told) < FINDINGS_MAX:
            told.append(sentence)

    def __bool__(self) -> bool:
        return bool(self.counts)


class FragmentTally:
    """What is there of one fragment."""

    __slots__ = ("bytes", "counts", "indexed", "last")

    def __init__(self) -> None:
        self.counts = [0, 0, 0]
        self.bytes = 0
        #: The highest counter of a message, or number of an event.
        self.last = 0
        #: Of the session index.
        self.indexed = 0


class FileReport:
    """Of one store."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.findings = Findings()
        self.notes: list[str] = []
        self.commit_number = 0
        self.high_water = 0
        self.catalogue_version = 0
        self.catalogue: dict[str, str] = {}
        #: As `Store.fragments` gives them; without those that wait to be swept.
        self.fragments: dict[int, tuple[str, int, Counters]] = {}
        self.messages = 0
        self.events = 0
        self.bytes = 0


class _ReadOnlyFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        writing = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_DELETEONCLOSE
        super().__init__("unix-none", name, [flags[0] & ~writing | apsw.SQLITE_OPEN_READONLY, flags[1]])

    def xWrite(self, *_: Any) -> None:
        raise apsw.ReadOnlyError("nothing is written")

    def xTruncate(self, *_: Any) -> None:
        raise apsw.ReadOnlyError("nothing is written")


class _ReadOnlyFiles(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(_FILE_SYSTEM, "unix-none")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a temporary file of SQLite's own, which lies elsewhere
            return apsw.VFSFile("unix-none", name, flags)
        return _ReadOnlyFile(name, flags)

    def xDelete(self, *_: Any) -> None:
        raise apsw.ReadOnlyError("nothing is deleted")


def open_without_trace(path: Path) -> apsw.Connection:
    """Raises StoreError, StoreTooNew."""
    log = Path(f"{path}-wal")
    try:
        if not path.is_file():
            raise StoreError(f"The file {path} is not there.")
        if log.is_file() and log.stat().st_size > 0:
            if _FILE_SYSTEM not in apsw.vfs_names():
                _keep.append(_ReadOnlyFiles())
            connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=_FILE_SYSTEM)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        else:
            uri = f"{path.absolute().as_uri()}?immutable=1"
            connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        connection.execute(query("pragmas_of_a_check")).fetchall()
        _recognise(connection, path)
    except (apsw.Error, OSError, UnicodeDecodeError) as error:
        raise StoreError(f"The file {path} cannot be read: {_reason(error)}.") from error
    return connection


#: A file system lives as long as the process.
_keep: list[_ReadOnlyFiles] = []


def _recognise(connection: apsw.Connection, path: Path) -> None:
    application_id, version = (
        _number(connection, name) for name in ("pragma_application_id", "pragma_schema_version")
    )
    if application_id != APPLICATION_ID:
        raise StoreError(f"The file {path} is no store of Busway, or its beginning is damaged.")
    if version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"The file {path} was written by a newer version of Busway (schema {version}, this version knows"
            f" {SCHEMA_VERSION}): check it with that version."
        )


def _number(connection: apsw.Connection, name: str) -> int:
    rows: Any = connection.execute(query(name)).fetchall()
    return int(rows[0][0])


def _reason(error: Exception) -> str:
    if isinstance(error, apsw.NotADBError):
        return "it is no database, or its beginning is damaged"
    if isinstance(error, apsw.CorruptError):
        return "it is damaged"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def read_catalogue(path: Path) -> tuple[int, dict[str, str]]:
    """(version, rows) of a store that nobody has open. Raises StoreError."""
    connection = open_without_trace(path)
    try:
        rows: Any = connection.execute(query("read_catalogue")).fetchall()
    except (apsw.Error, UnicodeDecodeError) as error:
        raise StoreError(f"The catalogue in {path} cannot be read: {_reason(error)}.") from error
    finally:
        connection.close(True)
    texts: dict[Any, Any] = dict(rows)
    version = int(texts.pop(None, 0))
    return version, {str(key): str(text) for key, text in texts.items()}


class FileCheck:
    """Of one store's file that nobody has open. `run` once; it blocks."""

    def __init__(self, name: str, path: Path, tell: Tell) -> None:
        self.report = FileReport(name, path)
        self._tell = tell
        self._tallies: dict[int, FragmentTally] = {}
        self._dropped: set[int] = set()
        #: Of rows with a shared body: how many, and a sum that tells each payload's number from others.
        self._references = self._reference_sum = 0

    def run(self) -> FileReport:
        """Raises StoreTooNew; whatever else is wrong stands in the report."""
        report = self.report
        try:
            self._connection = open_without_trace(report.path)
        except StoreTooNew:
            raise
        except StoreError as error:
            report.findings.add("file", str(error))
            return report
        try:
            version = _number(self._connection, "pragma_schema_version")
            self._look_at("structure", self._structure)
            if version < SCHEMA_VERSION:
                report.notes.append(
                    f"{report.name} was written by an earlier version (schema {version}); only its structure"
                    " was looked at. The next busway serve brings it up to date."
                )
                return report
            self._look_at("fragments", self._read_fragments)
            self._look_at("commits", self._commits)
            self._look_at("catalogue", self._read_catalogue)
            for place in range(len(PLACE_TABLES)):
                self._look_at("messages", partial(self._rows, place))
            self._look_at("messages", self._runs)
            self._look_at("payloads", self._payloads)
            self._look_at("sessions", self._sessions)
            self._look_at("events", self._chunks)
        finally:
            self._connection.close(True)
        return report

    def _look_at(self, kind: str, look: Callable[[], None]) -> None:
        try:
            look()
        except (apsw.Error, UnicodeDecodeError, ValueError, TypeError, LookupError) as error:
            self.report.findings.add(kind, f"{kind} of {self.report.name} cannot be read: {_reason(error)}")

    def _all(self, name: str, values: tuple[Any, ...] = (), place: str = "") -> Iterator[Any]:
        """Row by row: no answer is kept whole."""
        cursor = self._connection.cursor()
        try:
            yield from cursor.execute(query(name, place=place), values)
        finally:
            cursor.close()

    def _one(self, name: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(query(name), values).fetchall()[0]

    # -- the file itself

    def _structure(self) -> None:
        for (line,) in self._all("pragma_integrity_check"):
            if line != "ok":
                self.report.findings.add("structure", f"SQLite says of {self.report.name}: {line}")
        self._tell("structure", self.report.path.stat().st_size)

    def _read_fragments(self) -> None:
        self._dropped = {key for (key,) in self._all("read_dropped")}
        for key, owner, index, *values in self._all("check_fragments"):
            counters = Counters()
            counters.last_counter, counters.active, counters.deferred, counters.scheduled = values[:4]
            counters.bytes, counters.expiry_high_ms, counters.accessed_at_ms = values[4:]
            if not all(isinstance(value, int) for value in (index, *values)):
                raise TypeError(f"the row of fragment {key} holds no numbers")
            self.report.fragments[key] = (str(owner), index, counters)

    def _commits(self) -> None:
        report = self.report
        report.commit_number = int(self._one("read_commit_number")[0])
        mark = report.path.with_suffix(".high-water")
        report.high_water = HighWater(mark).read()
        if mark.is_file() and mark.stat().st_size and not report.high_water:
            report.findings.add(
                "high-water", f"{mark} is damaged: whether {report.name} has lost commits cannot be told."
            )
        lost = report.high_water - report.commit_number
        if lost > 0:
            report.findings.add(
                "commits",
                f"{report.name} has lost its last {lost} commits or more: it ends at commit {report.commit_number},"
                f" but {report.high_water} were reported. Messages of those are missing, or back.",
            )

    def _read_catalogue(self) -> None:
        for key, text in self._all("read_catalogue"):
            if key is None:
                self.report.catalogue_version = int(text)
            else:
                self.report.catalogue[str(key)] = str(text)
        [next_key] = self._one("read_next_fragment_key")
        highest = max(self.report.fragments, default=0)
        if not isinstance(next_key, int) or next_key <= highest:
            self.report.findings.add(
                "counters", f"{self.report.name} would give the key of fragment {highest} out once more."
            )

    # -- messages

    def _tally(self, key: int) -> FragmentTally:
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = FragmentTally()
        return tally

    def _named(self, key: int, place: int = PLACE_ACTIVE) -> str:
        """A message in words."""
        fragment, counter = key >> COUNTER_BITS, key & COUNTER_MASK
        owner, index, _ = self.report.fragments.get(fragment, ("a fragment that is not there", 0, None))
        return f"number {index << INDEX_SHIFT | counter} of {owner} ({_PLACES[place]})"

    def _damaged(self, key: int, place: int, why: str) -> None:
        """A message that will not be delivered; it counts as there."""
        self.report.messages += 1
        self._tally(key >> COUNTER_BITS).counts[place] += 1
        self.report.findings.add("messages", f"{self._named(key, place)}: {why}")

    def _rows(self, place: int) -> None:
        """A row that cannot be decoded is passed by alone; behind one that cannot be read reading goes on at the next
        fragment."""
        after = _LOW
        while True:
            try:
                for row in self._all(
                    "check_rows" if place == PLACE_ACTIVE else "check_rows_aside",
                    (after,),
                    PLACE_TABLES[place],
                ):
                    if row[0] <= after:  # as in `_read_run`
                        self._damaged(row[0], place, "it lies out of order")
                        continue
                    after = row[0]
                    self._row(row, place)
                return
            except UnicodeDecodeError:
                found = list(self._all("read_keys", (after, _HIGH, 1), PLACE_TABLES[place]))
                if not found:
                    return
                after = max(after + 1, found[0][0])
                self._damaged(after, place, "a column of it is no text")
            except apsw.CorruptError:
                after = self._behind_unreadable(after, place)
                if after == _HIGH:
                    return

    def _row(self, row: tuple[Any, ...], place: int) -> None:
        key, bare = row[0], row[5]
        if isinstance(bare, int):
            self._references += 1
            self._reference_sum += _hash_of(bare)
            try:
                bodies = list(self._all("read_payload", (bare,)))
            except (apsw.CorruptError, UnicodeDecodeError):
                return self._damaged(key, place, f"the body that it shares, {bare}, cannot be read")
            if not bodies:
                return self._damaged(key, place, f"the body that it shares, {bare}, is not there")
            bare = bodies[0][0]
        message = message_of((*row[:5], bare), place)
        if message is None:
            return self._damaged(key, place, "its checksum does not fit")
        if place != PLACE_ACTIVE and (row[6], row[7]) != (message.session_id, message.scheduled_at_ms):
            return self._damaged(key, place, "its session or time is not that of its row")
        self._count(key, place, message)
        self._tell("messages", len(message.bare))
        return None

    def _count(self, key: int, place: int, message: Message) -> None:
        self.report.messages += 1
        tally = self._tally(key >> COUNTER_BITS)
        tally.counts[place] += 1
        tally.bytes += message.size()
        tally.last = max(tally.last, key & COUNTER_MASK)

    # -- runs

    def _runs(self) -> None:
        """As `_rows`."""
        file = RunFile(self._connection)
        before = _LOW
        try:
            while before < _HIGH:
                try:
                    for row in self._all("read_runs", (before + 1, _HIGH)):
                        before = self._read_run(file, row, before)
                    break
                except apsw.CorruptError:
                    before = self._behind_unreadable(before, PLACE_ACTIVE)
        finally:
            file.close()
        for (key,) in self._all("check_marks_alone"):
            self.report.findings.add("runs", f"there are marks of a run at {self._named(key)}, and no run.")

    def _read_run(self, file: RunFile, row: tuple[Any, ...], before: int) -> int:
        """The key from behind which on others are looked for. A page of zeros shows as keys that cannot be there:
        whoever followed them would go round for ever."""
        if row[0] <= before:
            self.report.findings.add(
                "runs", f"a run lies out of order, behind {self._named(max(before, 0))}."
            )
            return before
        try:
            run = file.run_of(row)
            self._run(file, run, row)
        except apsw.CorruptError:
            file.close()
            self.report.findings.add("runs", f"the run at {self._named(row[0])} cannot be read.")
            return int(row[0])
        return max(run.key, min(run.last, run.key | COUNTER_MASK))

    def _behind_unreadable(self, after: int, place: int) -> int:
        """Where reading goes on; the last of all keys when there is nothing more."""
        self.report.findings.add(
            "messages", f"messages behind {self._named(max(after, 0), place)} cannot be read."
        )
        before_fragments = [(key << COUNTER_BITS) - 1 for key in sorted(self.report.fragments)]
        return next((before for before in before_fragments if before > after), _HIGH)

    def _run(self, file: RunFile, run: Run, row: tuple[Any, ...]) -> None:
        key, last, checksum, is_marked, gone, dead, marks_sum = row
        named = self._named(run.key)
        if bounds_checksum(key, last) != checksum:
            self.report.findings.add("runs", f"the bounds of the run at {named} are damaged.")
        if is_marked and marks_checksum(key, gone, dead) != marks_sum:
            self.report.findings.add("runs", f"the marks of the run at {named} are damaged.")
        if run.marks.is_all(run.count):
            self.report.findings.add("runs", f"the run at {named} has no message left and is still there.")
        for (doubled,) in self._all(
            "read_keys", (run.key - 1, run.last, run.count), PLACE_TABLES[PLACE_ACTIVE]
        ):
            if run.has(doubled):
                self.report.findings.add("messages", f"{self._named(doubled)} is there twice.")
        head = file.head(run.key)
        if head is None or head.count != run.count:
            self.report.findings.add("runs", f"the head of the run at {named} is damaged.")
            for at in range(run.key, run.last + 1):
                if run.has(at):
                    self._damaged(at, PLACE_ACTIVE, "the head of its run is damaged")
            return
        self._messages_of(file, run, head)

    def _messages_of(self, file: RunFile, run: Run, head: RunHead) -> None:
        part = file.slice(head, 0, head.count)
        for index in range(head.count):
            message = part.message(index)
            key = run.key + index
            if run.marks.is_gone(index):
                if message is None:
                    self.report.findings.add(
                        "runs", f"{self._named(key)}: its bytes are damaged; the message is gone already."
                    )
            elif message is None:
                self._damaged(key, PLACE_ACTIVE, "its checksum does not fit")
            else:
                self._count(key, PLACE_ACTIVE, message)
        self._tell("messages", head.bytes + head.body_start(head.count))

    # -- bodies that rows share

    def _payloads(self) -> None:
        weights = numbers = 0
        name = self.report.name
        for payload, weight, has_body in self._all("check_payloads"):
            if weight is None or not has_body:
                self.report.findings.add(
                    "payloads",
                    f"the shared body {payload} of {name} {'is not counted' if has_body else 'is not there'}.",
                )
                continue
            count, rest = divmod(weight, REFERENCE_WEIGHT)
            if rest or count <= 0:
                self.report.findings.add(
                    "payloads", f"the count of the shared body {payload} of {name} is damaged."
                )
            weights += count
            numbers += count * _hash_of(payload)
        if (weights, numbers & _HASH_MASK) != (self._references, self._reference_sum & _HASH_MASK):
            self.report.findings.add(
                "payloads",
                f"{name} counts {weights} rows with a shared body, and {self._references} such rows are there"
                f"{', of other bodies' if weights == self._references else ''}.",
            )

    # -- sessions

    def _sessions(self) -> None:
        for fragment, session_id, active, counted, first_key, first in self._all("check_sessions"):
            if (active, first_key) != (counted, first):
                self.report.findings.add(
                    "sessions",
                    f"a session of {self._owner(fragment)} ({session_id!a}) counts {active} messages, and its index"
                    f" has {counted}.",
                )
        for (key,) in self._all("check_session_index"):
            self.report.findings.add(
                "sessions", f"the index of sessions has {self._named(key)}, which is not there."
            )
        for (fragment,) in self._all("read_fragments_with_sessions"):
            self._tally(fragment).indexed = self._one("check_indexed", key_bounds(fragment))[0]
        for fragment, session_id, state in self._all("check_session_states"):
            tally = self._tally(fragment)
            try:
                tally.bytes += len(unsealed(state))
            except (ValueError, TypeError):
                self.report.findings.add(
                    "sessions",
                    f"the state of a session of {self._owner(fragment)} ({session_id!a}) is damaged.",
                )

    def _owner(self, fragment: int) -> str:
        return self.report.fragments.get(fragment, (f"fragment {fragment}",))[0]

    # -- events

    def _chunks(self) -> None:
        """By log and number, as the index has them."""
        before: dict[int, int] = {}
        for key, log, last_number in self._all("check_chunk_spots"):
            where = f"the chunk of {self._owner(log)} that ends at {last_number}"
            try:
                [row] = self._all("read_chunk", (key,))
            except (UnicodeDecodeError, ValueError, apsw.CorruptError):
                self.report.findings.add("events", f"{where} cannot be read.")
                continue
            data = chunk_data(row)
            if data is None:
                self.report.findings.add("events", f"{where} is damaged: its checksum does not fit.")
                continue
            if not before.get(log, -1) < row[1] <= row[2]:
                self.report.findings.add("events", f"{where} overlaps the one before it.")
            before[log] = row[2]
            tally = self._tally(log)
            tally.counts[PLACE_ACTIVE] += row[5]
            tally.bytes += len(data)
            tally.last = row[2] + 1
            self.report.events += row[5]
            self._tell("events", len(data))

    # -- the books

    def compare_counters(self, logs: set[int], queues: set[int]) -> None:
        """After `run`: those of fragments that somebody owns. Where something cannot be read, counts say no more."""
        if self.report.findings:
            return
        for key in sorted(self.report.fragments.keys() & (logs | queues)):
            self._compare(key, key in logs, self._tallies.get(key) or FragmentTally())
        for key in sorted(self._tallies.keys() - self.report.fragments.keys() - self._dropped):
            self.report.findings.add("counters", f"there are messages of fragment {key}, which has no row.")

    def _compare(self, key: int, is_log: bool, tally: FragmentTally) -> None:
        owner, _, counters = self.report.fragments[key]
        named = f"{owner} (fragment {key} of {self.report.name})"
        counted = [counters.active] if is_log else [counters.active, counters.deferred, counters.scheduled]
        found = tally.counts[:1] if is_log else tally.counts
        differences = [
            f"{named} counts {_listed(counted)}, and {_listed(found)} are there" if counted != found else "",
            f"{named} counts {counters.bytes} bytes, and {tally.bytes} are there"
            if counters.bytes != tally.bytes
            else "",
            f"{named} would give number {tally.last} out once more"
            if tally.last > counters.last_counter & COUNTER_MASK
            else "",
            f"{named} has {tally.counts[PLACE_ACTIVE]} messages, and {tally.indexed} in the index of its sessions"
            if tally.indexed not in (0, tally.counts[PLACE_ACTIVE])
            else "",
        ]
        for difference in filter(None, differences):
            self.report.findings.add("counters", f"{difference}.")


def _hash_of(payload: int) -> int:
    """Spreads numbers, so that sums of them tell which they were."""
    return (payload * 0x9E3779B97F4A7C15 ^ payload >> 7) & _HASH_MASK


def _listed(counts: list[int]) -> str:
    return " + ".join(map(str, counts))
