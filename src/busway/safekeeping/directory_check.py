"""What is whole in a data directory, and what is damaged: each store by itself, then all of them together.

Nothing is written, and a directory that somebody serves is refused. What a store can tell alone is told by
`busway.store.sqlite.file_check`. Here the stores are laid side by side: whether one is missing, whether they are of
one namespace, whether each row of the catalogue can be read, whether what the catalogue names is there.

Damage is what no crash can leave: bytes that are not what was written, something that is missing, books that do not
agree. What a crash may leave, and the next start mends, is told as a note and is no damage: a store whose copy of the
catalogue is behind, a fragment that no row names because its queue was about to be made or had just been deleted.

Messages are read one after the other and forgotten, findings are kept up to FINDINGS_MAX of a kind and counted
beyond. What stays in memory is a few numbers for each fragment and the catalogue, as in a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from busway.broker.namespace.namespace import COPYING_KEY, NAMESPACE_KEY, fragments_named, namespace_id
from busway.data_directory import DataDirectory
from busway.safekeeping.stopped_copy import StoreFile
from busway.staging.decisions import DECISION_PREFIX, Decision
from busway.staging.stage_table import NOTE_PREFIX, read_note
from busway.store.contract import Counters, FragmentKey, StoreError, StoreTooNew
from busway.store.sqlite.file_check import FileCheck, FileReport, Findings, Tell
from busway.streams.hub_table import GROUP_PREFIX, HUB_PREFIX, GroupRow, HubRow

#: That are told.
NOTES_MAX: Final = 20


class NothingToCheck(Exception):
    """There is no bus; the text is a sentence for people."""


@dataclass
class DirectoryReport:
    path: Path
    stores: list[FileReport] = field(default_factory=list)
    #: Of the directory as a whole.
    findings: Findings = field(default_factory=Findings)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not any(self.every_finding())

    def every_finding(self) -> list[Findings]:
        return [self.findings, *(store.findings for store in self.stores)]

    def every_note(self) -> list[str]:
        return [*self.notes, *(note for store in self.stores for note in store.notes)]

    def told(self) -> dict[str, object]:
        """For programs."""
        return {
            "whole": self.is_whole,
            "data": str(self.path),
            "stores": [_told(store) for store in self.stores],
            "damage": _damage(self.findings),
            "notes": self.every_note(),
        }


def _told(store: FileReport) -> dict[str, object]:
    return {
        "name": store.name,
        "file": str(store.path),
        "whole": not store.findings,
        "messages": store.messages,
        "events": store.events,
        "fragments": max(0, len(store.fragments) - 1),
        "commits": store.commit_number,
        "damage": _damage(store.findings),
    }


def _damage(findings: Findings) -> list[dict[str, object]]:
    return [
        {"kind": kind, "count": count, "first": findings.told[kind]}
        for kind, count in findings.counts.items()
    ]


class _Named:
    """What the rows of a catalogue name, by store."""

    def __init__(self) -> None:
        self.queues: dict[str, set[int]] = {}
        self.logs: dict[str, set[int]] = {}

    def add(self, known: dict[str, set[int]], store_name: str, *keys: int) -> None:
        known.setdefault(store_name, set()).update(keys)


class DirectoryCheck:
    """Of a data directory and its stores, which are held (`stopped_copy.held`)."""

    def __init__(self, directory: DataDirectory, files: Sequence[StoreFile], tell: Tell) -> None:
        self._directory = directory
        self._files = files
        self._tell = tell
        self._report = DirectoryReport(directory.path)
        self._named = _Named()

    def run(self) -> DirectoryReport:
        """Raises NothingToCheck, and StoreTooNew where a newer version knows better."""
        if not self._files:
            raise NothingToCheck(
                f"There is no bus in {self._directory.path}: no server has used it yet, or it is another folder."
            )
        checks = []
        for file in self._files:
            if file.is_missing:
                self._report.findings.add(
                    "stores", f"The store {file.name} is missing: {file.path} is not there."
                )
                continue
            check = FileCheck(file.name, file.path, self._tell)
            self._report.stores.append(check.run())
            checks.append(check)
        self._compare(checks)
        return self._report

    def _compare(self, checks: list[FileCheck]) -> None:
        """The stores side by side."""
        reports = [check.report for check in checks]
        for report in reports:
            self._read_notes(report)
        self._check_ids(reports)
        if not reports:
            return
        newest = max(reports, key=lambda report: report.catalogue_version)
        for report in reports:
            self._read_rows(report, is_newest=report is newest)
            if report.catalogue_version < newest.catalogue_version:
                self._note(
                    f"The catalogue in {report.name} is of version {report.catalogue_version}, that in {newest.name}"
                    f" of {newest.catalogue_version}: the next start brings it up to date."
                )
        for check in checks:
            self._check_fragments(check)

    def _check_ids(self, reports: list[FileReport]) -> None:
        ids: dict[str, str] = {}
        for report in reports:
            text = report.catalogue.get(NAMESPACE_KEY)
            try:
                if text is not None:
                    ids[namespace_id(text)] = report.name
            except StoreError:
                continue  # told with its row
        if len(ids) > 1:
            self._report.findings.add(
                "stores", f"The stores {' and '.join(ids.values())} belong to different namespaces."
            )

    # -- rows

    def _read_rows(self, report: FileReport, *, is_newest: bool) -> None:
        for key, text in report.catalogue.items():
            if key.startswith((NOTE_PREFIX, DECISION_PREFIX)):
                continue
            try:
                self._read_row(key, text, self._named if is_newest else _Named())
            except StoreTooNew as error:
                self._note(f"{report.name}: {error}")
            except (StoreError, ValueError, KeyError, LookupError, TypeError):
                report.findings.add(
                    "catalogue", f"The row {key!a} of the catalogue in {report.name} cannot be read."
                )

    def _read_row(self, key: str, text: str, named: _Named) -> None:
        """Raises StoreError, and whatever a row may cause that nobody could have written."""
        named_here = fragments_named(key, text)
        if named_here is not None:
            for store_name, fragments in named_here:
                named.add(named.queues, store_name, *fragments)
        elif key.startswith(HUB_PREFIX):
            for log in HubRow.parse(key, text).shares:
                named.add(named.logs, log.store_name, log.log)
        elif key.startswith(GROUP_PREFIX):
            GroupRow.parse(key, text)
        elif key == COPYING_KEY:
            self._note("This is a part of a bus that is being copied: busway stores copy goes on with it.")
        else:
            self._note(f"This version does not know the catalogue's row {key!a}.")

    def _read_notes(self, report: FileReport) -> None:
        """What lies beside a store's copy of the catalogue, and is its own."""
        counters: dict[FragmentKey, Counters] = {
            FragmentKey(key): row[2] for key, row in report.fragments.items()
        }
        for key, text in report.catalogue.items():
            try:
                if key.startswith(DECISION_PREFIX):
                    Decision.parse(key, text)
                elif key.startswith(NOTE_PREFIX):
                    _, note = read_note(key, text, counters)
                    self._named.add(self._named.logs, report.name, *(log.key for log in note.logs))
            except (StoreError, ValueError, KeyError, LookupError, TypeError):
                report.findings.add("catalogue", f"The row {key!a} in {report.name} cannot be read.")

    # -- fragments

    def _check_fragments(self, check: FileCheck) -> None:
        report = check.report
        logs = self._named.logs.get(report.name, set())
        queues = self._named.queues.get(report.name, set())
        if report.findings.counts.keys() & {"file", "fragments"} or not report.fragments:
            return
        for key in sorted((logs | queues) - report.fragments.keys()):
            report.findings.add(
                "fragments", f"{report.name} lacks the fragment {key}, which the catalogue names."
            )
        for key in sorted(report.fragments.keys() - logs - queues - {0}):
            owner, _, counters = report.fragments[key]
            self._note(
                f"No row of the catalogue names the fragment {key} of {report.name}, made for {owner}, with"
                f" {counters.active} messages: the next start drops it."
            )
        check.compare_counters(logs, queues)

    def _note(self, sentence: str) -> None:
        if len(self._report.notes) < NOTES_MAX:
            self._report.notes.append(sentence)
