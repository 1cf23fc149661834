"""The same promises as in a directory (`capture_commit`), where there are objects: few requests, and a fence.

    ROOT/_capture/entity=orders/committed.json      the last batch that is done; in it "moving", the promise of the
                                                    next one, and "owner", whose capture it is

Theory of operation. A request to a store of objects takes much longer than a call of a file system, and nothing
there can be moved or locked. But an object appears whole, and can be written on the condition that it is still what
one has read. So promise and note are one object, `committed.json`; each writing of it is conditional, and unlike all
others:

1. It is read. It must name our owner: a start that takes the lock over writes its own name first, and from then on
   whatever an earlier owner does is refused, also if it sleeps between any two of these steps.
2. Names that files will have must be free, or hold the same messages.
3. It is written with the promise.
4. Staged objects are copied to their names, inside of the store and many at a time. The store's answer is the proof.
5. Staged objects are deleted, before anybody is told: whoever comes late has nothing left to copy, so a file that
   `compact` has put together with others since cannot come back.
6. It is written without the promise, and with the batch as done.

That is eight requests for a batch of one file: the task looks whether the batch is done, and writes; the driver has
one for each step. A promise that is found is kept or taken back as in a directory. `moving.json` of earlier versions
is settled at the start. What tasks that were killed have left is removed at the start and now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

from busway_spark.pipeline.capture.capture_commit import (
    BatchName,
    CaptureFailed,
    CaptureLedger,
    Promise,
    check_left_out,
    check_repeated,
    is_repeated,
    missing_sentence,
    promise_note,
)
from busway_spark.pipeline.capture.captured_writer import (
    Extents,
    StagedFile,
    extents_of,
    extents_of_files,
    of_note,
    to_note,
)
from busway_spark.pipeline.captured.manifests import noted_records, records_note
from busway_spark.pipeline.captured.notes import COMMITTED, MOVING_KEY, note_text, parsed_note
from busway_spark.pipeline.places.capture_root import CaptureRoot
from busway_spark.pipeline.places.object_store import ObjectStore, Overtaken, Tag

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
