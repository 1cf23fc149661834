"""Staged files become captured files: all files of a batch, once; in a directory, and where there are objects.

    ROOT/_capture/entity=orders/staging/7f2c…-12/…     what tasks of batch 12 of the query have written
    ROOT/_capture/entity=orders/moving.json            a promise: every file of this batch will be in place
    ROOT/_capture/entity=orders/committed.json         the last batch of which every file was seen in place
    ROOT/_capture/entity=orders/source.json            what is captured: its kind, and when it was made

Theory of operation. Spark repeats a batch until `commit` has returned, and whoever is captured keeps its messages
as long. It calls `abort` when `commit` has raised, whatever was done by then; it gives each call a new writer; and
the driver may die between any two steps, or a call that it has given up may still be running. So only these files
count:

1. `moving.json` is written in one step, when all tasks have answered. It names each staged file, the name that it
   will have, and its size. From here on the staged files belong to the promise.
2. The files are moved. Then each is looked for under its name and by its size: that a staged file is gone proves
   nothing. Folders are on the disk before
3. `committed.json` says that the batch is done, and which rows it had. Only this says so, to tasks of a repeated
   batch as well: they write nothing, and tell what they left out, which must be what was captured (`Extent`).
4. `moving.json` is removed, then the staging folder.

Whoever finds a promise, the next start or the next commit, goes on with it (`_settle`). If the batch is noted as
done, the promise is removed. If all of its files are staged or in place, it is kept: steps 2 to 4. If one is in
neither place, it cannot be kept. Then what is in place of it goes to `taken-back/`, so that nobody puts it
together with others meanwhile and nothing is deleted that may be the last copy; the promise is removed, and Spark,
which was never told that the batch is done, repeats it. It comes to that only when somebody else deletes our
files, or a commit that was given up goes on. What cannot be found out (the store does not answer, another file has
the name) ends the capture, and everything stays as it is.

Who may delete what. A task: what it has written itself, if it fails. `abort`: what no promise names, and only when
a task has not answered, because then no `commit` was begun; else everything is left to the next start. A start,
which has the lock: staging, when no promise is left. `compaction` leaves alone what a promise names.

A captured file is never replaced by another: where a name is taken by other messages the source was made anew
under its old name, its numbers begin again, and the batch is refused.

The same promises where there are objects: few requests, and a fence.

    ROOT/_capture/entity=orders/committed.json      the last batch that is done; in it "moving", the promise of the
                                                    next one, and "owner", whose capture it is

A request to a store of objects takes much longer than a call of a file system, and nothing there can be moved or
locked. But an object appears whole, and can be written on the condition that it is still what one has read. So
promise and note are one object, `committed.json`; each writing of it is conditional, and unlike all others:

1. It is read. It must name our owner: a start that takes the lock over writes its own name first, and from then on
   whatever an earlier owner does is refused, also if it sleeps between any two of these steps.
2. Names that files will have must be free, or hold the same messages.
3. It is written with the promise.
4. Staged objects are copied to their names, inside of the store and many at a time. The store's answer is the
   proof.
5. Staged objects are deleted, before anybody is told: whoever comes late has nothing left to copy, so a file that
   `compaction` has put together with others since cannot come back.
6. It is written without the promise, and with the batch as done.

That is eight requests for a batch of one file: the task looks whether the batch is done, and writes; the driver
has one for each step. A promise that is found is kept or taken back as in a directory. `moving.json` of earlier
versions is settled at the start. What tasks that were killed have left is removed at the start and now and then.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

from busway_spark.pipeline.capture.captured_writer import (
    Extents,
    StagedFile,
    extents_of,
    extents_of_files,
    has_more,
    of_note,
    to_note,
)
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import (
    COMMITTED,
    MOVING_KEY,
    note_text,
    notes_of,
    parse_path,
    parsed_note,
    read_note,
)
from busway_spark.pipeline.captured.manifests import Records, noted_records, records_note, span_of
from busway_spark.pipeline.captured.object_store import ObjectStore, Overtaken, Tag, plain_words
from busway_spark.pipeline.job import JobFailed

MOVING: Final = "moving.json"
SOURCE: Final = "source.json"
_STAGING: Final = "staging"
_TAKEN_BACK: Final = "taken-back"
_QUERY_CHARACTERS: Final = 12
_NO_ROOM: Final = re.compile("No space left on device|Disk quota exceeded", re.I)
_WORDS_MAX: Final = 600


class CaptureFailed(JobFailed):
    """A batch cannot be captured; it will be tried again when the capture is started again."""


@dataclass(frozen=True)
class BatchName:
    query: str
    batch: int

    @property
    def folder(self) -> str:
        return f"{self.query[:_QUERY_CHARACTERS]}-{self.batch}"


@dataclass(frozen=True)
class FileMove:
    staged: PurePosixPath
    final: PurePosixPath
    #: None in notes of earlier versions.
    bytes: int | None


@dataclass(frozen=True)
class Promise:
    name: BatchName
    moves: tuple[FileMove, ...]
    #: What its rows are; None in notes of earlier versions.
    extents: Extents | None
    #: What its files hold.
    records: Records


class CaptureLedger:
    """What is captured of one entity, batch by batch."""

    def __init__(self, root: CaptureRoot, entity: str) -> None:
        self._root = root
        self._entity = entity
        self._notes = notes_of(entity)
        self._staging = self._notes / _STAGING
        self._taken_back = self._notes / _TAKEN_BACK

    def staging(self, name: BatchName) -> PurePosixPath:
        return self._staging / name.folder

    # -- before

    def is_committed(self, name: BatchName) -> bool:
        """Raises CaptureFailed for a batch that comes too late."""
        return is_repeated(name, self._noted(name.query))

    def _noted(self, query: str) -> int:
        """The last batch of a query that is done; -1 is none."""
        note = read_note(self._root, self._notes / COMMITTED)
        return int(note.get("batch", -1)) if note.get("query") == query else -1

    def recover(self) -> None:
        """What a capture that failed or was killed has left behind. Only while no other one runs."""
        self._settle()
        self._root.delete_folder(self._staging)
        self._root.forget_halves(self._notes)

    # -- a batch

    def commit(self, name: BatchName, files: Sequence[StagedFile], left_out: Extents | None = None) -> None:
        """Raises CaptureFailed; then the batch is not noted as done, or its note is to be found. `left_out`: rows
        that tasks have not written, since they found the batch noted."""
        self._settle()
        extents = extents_of_files(files)
        if self.is_committed(name):
            captured = of_note(read_note(self._root, self._notes / COMMITTED))
            check_repeated(name, extents_of([*extents.items(), *(left_out or {}).items()]), captured)
        else:
            check_left_out(name, left_out)
            note = promise_note(name, files, [file for file in files if not self._is_there(file)])
            self._root.write_text(self._notes / MOVING, note_text(note))
            missing = self._keep(self._promise(note))
            if missing is not None:
                raise CaptureFailed(missing_sentence(self._root, missing))
        self._root.delete_folder(self.staging(name))

    def abort(self, name: BatchName, files: Sequence[StagedFile]) -> None:
        """For a batch that was never given to `commit`: what tasks have written, also those that were killed."""
        del files
        folder = self.staging(name)
        if not any(folder in move.staged.parents for move in self._promise(self._promised_note()).moves):
            self._root.delete_folder(folder)

    def _promised_note(self) -> dict[str, Any]:
        return read_note(self._root, self._notes / MOVING)

    # -- a promise

    def _promise(self, note: dict[str, Any]) -> Promise:
        """Raises CaptureFailed where it names what is no file of this capture."""
        try:
            sizes = note.get("bytes", {})
            moves = [
                FileMove(PurePosixPath(staged), PurePosixPath(final), sizes.get(final))
                for staged, final in note.get("moves", ())
            ]
            name = BatchName(str(note.get("query")), int(note.get("batch", -1)))
            extents = of_note(note)
            records = noted_records(self._entity, note)
        except (TypeError, ValueError, AttributeError) as error:
            raise CaptureFailed(f"{self._root.full(self._notes / MOVING)} is damaged: {error}.") from error
        for move in moves:
            target = parse_path(move.final)
            if target is None or target.entity != self._entity:
                raise CaptureFailed(
                    f"{self._notes / MOVING} names '{str(move.final)[:200]}', which is no captured file."
                )
            if self._staging not in move.staged.parents or ".." in move.staged.parts:
                raise CaptureFailed(
                    f"{self._notes / MOVING} names '{str(move.staged)[:200]}', which is no staged file."
                )
        return Promise(name, tuple(moves), extents, records)

    def _settle(self) -> None:
        """What was promised is kept or taken back."""
        note = read_note(self._root, self._notes / MOVING)
        if not note:
            return
        promise = self._promise(note)
        if self._noted(promise.name.query) >= promise.name.batch:
            self._forget_promise()
        elif self._keep(promise) is not None:
            self._take_back(promise)

    def _keep(self, promise: Promise) -> PurePosixPath | None:
        """A file that is not where it should be; None when all are, and the batch is noted as done."""
        waiting: list[FileMove] = []
        for move in promise.moves:
            # In this order: what is moved at this very moment is seen in one of both places.
            if self._is_staged(move):
                waiting.append(move)
            elif not self._is_in_place(move):
                return move.staged
        for move in waiting:
            self._root.make_folder(move.final.parent)
            self._root.move(move.staged, move.final)
        for move in waiting:
            if not self._is_in_place(move):
                return move.final
        self._sync_folders(promise)
        done: dict[str, object] = {"query": promise.name.query, "batch": promise.name.batch}
        if promise.extents is not None:
            done["rows"] = to_note(promise.extents)
        noted = noted_records(self._entity, read_note(self._root, self._notes / COMMITTED))
        done.update(records_note(self._root, self._entity, noted, promise.records))
        self._root.write_text(self._notes / COMMITTED, note_text(done))
        self._forget_promise()
        return None

    def _is_staged(self, move: FileMove) -> bool:
        found = self._root.file_size(move.staged)
        return found is not None and move.bytes in (None, found)

    def _is_in_place(self, move: FileMove) -> bool:
        """Raises CaptureFailed when another file has its name."""
        found = self._root.file_size(move.final)
        if found is not None:
            self._check_size(move, found)
        return found is not None

    def _check_size(self, move: FileMove, found: int | None) -> None:
        if move.bytes is None:
            span_of(self._root, move.final)  # raises where it is not whole
        elif found != move.bytes:
            raise CaptureFailed(
                f"{self._root.full(move.final)} has {found:,} bytes, and {move.bytes:,} were captured under that"
                " name: somebody has changed it. Nothing was changed here; move it elsewhere and start again."
            )

    def _take_back(self, promise: Promise) -> None:
        folder = self._taken_back / promise.name.folder
        for move in promise.moves:
            if self._is_in_place(move):
                self._root.make_folder(folder)
                self._root.move(move.final, folder / move.final.name)
        self._sync_folders(promise)
        self._forget_promise()

    def _forget_promise(self) -> None:
        self._root.delete(self._notes / MOVING)
        self._root.sync_folder(self._notes)

    def _sync_folders(self, promise: Promise) -> None:
        """Those of the files, and those that these may have been made in."""
        folders = {parent for move in promise.moves for parent in move.final.parents}
        for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
            if self._root.is_local and self._root.exists(folder):
                self._root.sync_folder(folder)

    def _is_there(self, file: StagedFile) -> bool:
        """The same messages are in place already. Raises CaptureFailed when others are."""
        path = PurePosixPath(file.final)
        if self._root.file_size(path) is None:
            return False
        if span_of(self._root, path) == file.span:
            return True
        raise CaptureFailed(
            f"{file.final} in {self._root.location} holds other messages of '{self._entity}': it was deleted and"
            " made again under its name, or its capture was begun anew. Capture it into another directory."
        )


def is_repeated(name: BatchName, noted: int) -> bool:
    """Spark repeats only the last batch. Raises CaptureFailed for one before it, which may hold other rows now."""
    if name.batch < noted:
        raise CaptureFailed(
            f"The checkpoint is older than what is captured: batch {name.batch} comes again, and {noted} is done."
            " Start with a new checkpoint: a hub then goes on behind its last captured event."
        )
    return name.batch == noted


def check_repeated(name: BatchName, repeated: Extents, captured: Extents | None) -> None:
    """Raises CaptureFailed when a batch that is done comes again with rows that it did not have."""
    if captured is not None and has_more(repeated, captured):
        raise CaptureFailed(
            f"Batch {name.batch} is captured and comes again with other messages: the checkpoint has lost its end."
            " Start with a new checkpoint: a hub then goes on behind its last captured event."
        )


def check_left_out(name: BatchName, left_out: Extents | None) -> None:
    """Raises CaptureFailed when tasks have left out rows of a batch that is not noted after all."""
    if left_out is not None:
        raise CaptureFailed(
            f"The note that batch {name.batch} is captured was there and is gone. Nothing is lost: start the capture"
            " again."
        )


def promise_note(name: BatchName, files: Sequence[StagedFile], moved: Sequence[StagedFile]) -> dict[str, Any]:
    """Of all files of a batch, and of those among them that are not in place yet."""
    return {
        "query": name.query,
        "batch": name.batch,
        "rows": to_note(extents_of_files(files)),
        "moves": [[file.staged, file.final] for file in moved],
        "bytes": {file.final: file.bytes for file in files},
        # As notes hold them (`manifests`).
        "files": {file.final: [file.bytes, *file.span] for file in files},
    }


def promised_files(root: CaptureRoot, entity: str) -> set[str]:
    """Which files a capture is putting in place right now."""
    notes = [read_note(root, notes_of(entity) / MOVING)]
    if root.objects is not None:
        notes.append(read_note(root, notes_of(entity) / COMMITTED).get(MOVING_KEY) or {})
    return {str(final) for note in notes for _, final in note.get("moves", ())}


def missing_sentence(root: CaptureRoot, path: PurePosixPath) -> str:
    return (
        f"{root.full(path)} was written and is not there, or not whole. Nothing is lost: the batch is captured when"
        " the capture is started again. All machines of a cluster must share that place."
    )


def store_sentence(root: CaptureRoot, error: Exception) -> str:
    """What a file store says, to people."""
    text = str(error.strerror) if isinstance(error, OSError) and error.strerror else plain_words(error)
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or _NO_ROOM.search(text):
        return (
            f"There is no room left at {root.location}. Nothing is lost: the batch is captured when there is room and"
            " the capture is started again."
        )
    return f"Captured messages cannot be written to {root.location}: {text[:_WORDS_MAX]}."


def check_source(root: CaptureRoot, entity: str, facts: dict[str, object]) -> None:
    """Notes what is captured; raises JobFailed when it was another one of the same name before."""
    path = notes_of(entity) / SOURCE
    known = read_note(root, path)
    if not known:
        root.write_text(path, note_text(facts))
    elif known != facts:
        raise JobFailed(
            f"{root.location} holds a capture of another '{entity}' ({_words(known)}) than there is now"
            f" ({_words(facts)}): it was deleted and made again. Capture it into another directory."
        )


def _words(facts: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(facts.items()))


_OWNER: Final = "owner"
#: Makes each writing unlike all others: stores tell contents apart by a digest.
_WRITING: Final = "writing"
#: Batches between two looks for what killed tasks have left.
_LOOK_EVERY: Final = 64


@dataclass(frozen=True)
class _State:
    note: dict[str, Any]
    #: Of the object that it was read from; None: there was none.
    tag: Tag | None

    @property
    def promised(self) -> dict[str, Any]:
        found = self.note.get(MOVING_KEY)
        return found if isinstance(found, dict) else {}


def capture_ledger(root: CaptureRoot, entity: str) -> CaptureLedger:
    return CaptureLedger(root, entity) if root.objects is None else ObjectLedger(root, entity, root.objects)


class ObjectLedger(CaptureLedger):
    """The same promises as in a directory (`capture_commit`), where there are objects: few requests, and a
    fence."""

    def __init__(self, root: CaptureRoot, entity: str, objects: ObjectStore) -> None:
        super().__init__(root, entity)
        self._objects = objects

    def recover(self) -> None:
        self._settle()  # what an earlier version has promised
        state = self._state()
        self._root.check_locks()  # or a lock that was lost would be taken back by this
        if self._root.owner is not None:
            state = self._write(state, {**state.note, _OWNER: self._root.owner})
        self._settled(state)
        self._root.delete_folder(self._staging)

    def commit(self, name: BatchName, files: Sequence[StagedFile], left_out: Extents | None = None) -> None:
        state = self._settled(self._owned(self._state()))
        extents = extents_of_files(files)
        noted = int(state.note.get("batch", -1)) if state.note.get("query") == name.query else -1
        if is_repeated(name, noted):
            repeated = extents_of([*extents.items(), *(left_out or {}).items()])
            check_repeated(name, repeated, of_note(state.note))
            self._delete_staged(PurePosixPath(file.staged) for file in files)
            return
        check_left_out(name, left_out)
        promised = promise_note(name, files, self._moves(files))
        state = self._write(state, {**state.note, MOVING_KEY: promised})
        promise = self._promise(promised)
        self._copy(promise.moves)
        self._done(state, promise)
        # What was in place already has a staged twin; and tasks that were killed may have left something.
        self._delete_staged(
            {PurePosixPath(file.staged) for file in files} - {each.staged for each in promise.moves}
        )
        if name.batch % _LOOK_EVERY == _LOOK_EVERY - 1:
            self._root.delete_folder(self._staging)

    # -- the note

    def _state(self) -> _State:
        path = self._notes / COMMITTED
        found = self._objects.get(self._root.key(path))
        return (
            _State({}, None)
            if found is None
            else _State(parsed_note(self._root, path, found.data), found.tag)
        )

    def _owned(self, state: _State) -> _State:
        if self._root.owner is not None and state.note.get(_OWNER) != self._root.owner:
            raise CaptureFailed(self._overtaken_sentence())
        return state

    def _write(self, state: _State, note: dict[str, Any]) -> _State:
        text = note_text({**note, _WRITING: uuid4().hex})
        try:
            tag = self._objects.put_if(self._root.key(self._notes / COMMITTED), text.encode(), state.tag)
        except Overtaken as error:
            raise CaptureFailed(self._overtaken_sentence()) from error
        return _State(note, tag)

    def _overtaken_sentence(self) -> str:
        return (
            f"Another capture of '{self._entity}' into {self._root.location} has taken over, because this one was"
            " silent for too long. Nothing is lost, and nothing of this batch was noted here."
        )

    # -- a promise

    def _promised_note(self) -> dict[str, Any]:
        return self._state().promised

    def _settled(self, state: _State) -> _State:
        """What was promised is kept or taken back."""
        if not state.promised:
            return state
        promise = self._promise(state.promised)
        finals = self._sizes([each.final for each in promise.moves])
        waiting = [each for each in promise.moves if finals[each.final] is None]
        staged = self._sizes([each.staged for each in waiting])
        for each in promise.moves:
            if finals[each.final] is not None:
                self._check_size(each, finals[each.final])
        if any(staged[each.staged] is None or staged[each.staged] != each.bytes for each in waiting):
            taken = [each for each in promise.moves if finals[each.final] is not None]
            folder = self._taken_back / promise.name.folder
            self._root.move_all([(each.final, folder / each.final.name) for each in taken])
            return self._write(state, {name: each for name, each in state.note.items() if name != MOVING_KEY})
        self._copy(waiting)
        return self._done(state, promise)

    def _moves(self, files: Sequence[StagedFile]) -> list[StagedFile]:
        """Those that are not in place yet. Raises CaptureFailed where a name has other messages."""
        finals = self._sizes([PurePosixPath(file.final) for file in files])
        return [
            file for file in files if finals[PurePosixPath(file.final)] is None or not self._is_there(file)
        ]

    def _copy(self, moves: Sequence[Any]) -> None:
        key = self._root.key
        try:
            self._objects.copy([(key(each.staged), key(each.final)) for each in moves])
        except FileNotFoundError as error:
            gone = next((each.staged for each in moves if self._root.file_size(each.staged) is None), None)
            raise CaptureFailed(missing_sentence(self._root, gone or self._staging)) from error

    def _done(self, state: _State, promise: Promise) -> _State:
        self._delete_staged(each.staged for each in promise.moves)
        done: dict[str, Any] = {"query": promise.name.query, "batch": promise.name.batch}
        if promise.extents is not None:
            done["rows"] = to_note(promise.extents)
        if _OWNER in state.note:
            done[_OWNER] = state.note[_OWNER]
        noted = noted_records(self._entity, state.note)
        done.update(records_note(self._root, self._entity, noted, promise.records))
        return self._write(state, done)

    def _sizes(self, paths: Sequence[PurePosixPath]) -> dict[PurePosixPath, int | None]:
        return dict(zip(paths, self._objects.sizes([self._root.key(each) for each in paths]), strict=True))

    def _delete_staged(self, paths: Any) -> None:
        self._root.delete_files(list(paths))
