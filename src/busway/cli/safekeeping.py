"""`busway backup` and `busway check`: a bus is copied, running or not, and a data directory is looked at.

A backup of a running bus is made by its server, into a folder that is made here (`busway.safekeeping.draft`), so both
must be on one machine. Here is asked how far it is. Whoever is stopped meanwhile stops the server's work, too.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json, print_table, progress, shown
from busway.cli.verbs import CommandFailed, DataOption, JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient
    from busway.data_directory import DataDirectory
    from busway.safekeeping.directory_check import DirectoryReport
    from busway.safekeeping.draft import Draft
    from busway.store.sqlite.file_check import Findings, Tell

_LOOK_EVERY_S: Final = 0.1
StoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="A store as busway serve was given it (sqlite:PATH), where nobody serves it; repeatable, in that order.",
    ),
]
_BACKUP_HELP: Final = """Copy a bus to the folder TO, while clients work. What they were told before is in it.

The running server makes the copy; of a data directory that nobody serves the files are copied. TO must not be there
yet, or be empty; it is there when the copy is whole and synced. To restore, serve it: busway serve --data TO.

The keys of the bus are in the copy: it is made readable for you alone. Captured files and the
journal are not in it."""
_CHECK_HELP: Final = """Look at everything in a data directory that nobody serves, or in a copy of one.

What is whole is told, what is damaged, and where. Nothing is written.

Exit status 0: all is whole; 1: something is damaged; 2: there is nothing to check, or a server works with it."""


def register(app: typer.Typer) -> None:
    verb(app, "backup", "busway backup /mnt/backups/monday --data ./bus", about=_BACKUP_HELP)(backup)
    verb(app, "check", "busway check --data /mnt/backups/monday", about=_CHECK_HELP)(check)


def backup(
    to: Annotated[Path, typer.Argument(metavar="TO", help="The folder to make.")],
    store: StoreOption = None,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """See `_BACKUP_HELP`."""
    from busway.data_directory import DataDirectory
    from busway.safekeeping.draft import BackupRefused, Draft
    from busway.safekeeping.stopped_copy import DirectoryInUse
    from busway.serve_options import default_data_directory

    draft = Draft(to.absolute())
    directory = DataDirectory(server.data or default_data_directory())
    try:
        try:
            facts = None if server.connection_string else _of_stopped(directory, store or [], draft)
        except DirectoryInUse:
            facts = None
        if facts is None:
            with server.administration() as client:
                facts = _of_running(client, draft)
    except BackupRefused as error:
        raise CommandFailed(str(error)) from error
    if as_json:
        print_json(facts)
        return
    held = f" Commits waited {facts['heldMs']} ms for it." if "heldMs" in facts else ""
    typer.echo(
        f"{draft.target} is a backup of {facts['stores']} stores, {int(str(facts['bytes'])):,} bytes.{held}"
    )


def _of_running(client: "ServiceBusAdministrationClient", draft: "Draft") -> dict[str, object]:
    from busway.safekeeping.draft import BackupRefused

    note = draft.make()
    try:
        told = client.begin_backup(str(draft.target), note)
        with progress("Copying", int(str(told["bytesTotal"]))) as bar:
            copied = 0
            while told["state"] == "copying":
                time.sleep(_LOOK_EVERY_S)
                told = client.backup()
                bar.advance(int(str(told["bytes"])) - copied)
                copied = int(str(told["bytes"]))
    except KeyboardInterrupt:
        client.stop_backup()
        raise
    finally:
        draft.discard()
    if told["state"] != "done" or told["to"] != str(draft.target):
        raise BackupRefused(str(told.get("error") or "The server has forgotten the backup."))
    stores = told["stores"]
    return {
        "to": str(draft.target),
        "stores": len(stores) if isinstance(stores, list) else 0,
        "bytes": told["bytes"],
        "heldMs": told["heldMs"],
    }


def _of_stopped(directory: "DataDirectory", urls: list[str], draft: "Draft") -> dict[str, object]:
    """Raises DirectoryInUse, BackupRefused."""
    from busway.safekeeping.backup import write_facts
    from busway.safekeeping.draft import BackupRefused
    from busway.safekeeping.stopped_copy import copy_stopped, held

    with held(directory, urls) as stores:
        if not stores:
            raise BackupRefused(f"There is no bus in {directory.path}.")
        draft.take(draft.make())
        try:
            copied = 0
            with progress("Copying", sum(store.size_bytes() for store in stores)) as bar:
                for count in copy_stopped(directory, stores, draft.path):
                    copied += count
                    bar.advance(count)
            write_facts(draft.path, time.time_ns() // 1_000_000, [{"name": store.name} for store in stores])
            draft.finish()
        finally:
            draft.discard()
    return {"to": str(draft.target), "stores": len(stores), "bytes": copied}


def check(data: DataOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """See `_CHECK_HELP`."""
    from busway.data_directory import DataDirectory
    from busway.safekeeping.directory_check import DirectoryCheck, NothingToCheck
    from busway.safekeeping.stopped_copy import DirectoryInUse, held
    from busway.serve_options import default_data_directory
    from busway.store.contract import StoreTooNew

    directory = DataDirectory(data or default_data_directory())
    try:
        with (
            held(directory, store or []) as files,
            _progress(sum(2 * file.size_bytes() for file in files)) as tell,
        ):
            report = DirectoryCheck(directory, files, tell).run()
    except DirectoryInUse as error:
        raise WrongCall(f"{error}: stop that server, or check a backup (busway backup).") from error
    except (NothingToCheck, StoreTooNew) as error:
        raise WrongCall(str(error)) from error
    if as_json:
        print_json(report.told())
    else:
        _print(report)
    if not report.is_whole:
        raise typer.Exit(1)


@contextmanager
def _progress(total: int) -> Iterator["Tell"]:
    with progress("Checking", total) as bar:
        yield lambda _what, count: bar.advance(count)


def _print(report: "DirectoryReport") -> None:
    rows = [
        (
            store.name,
            "damaged" if store.findings else "whole",
            store.messages,
            store.events,
            max(0, len(store.fragments) - 1),
            store.commit_number,
            store.path,
        )
        for store in report.stores
    ]
    print_table(("STORE", "STATE", "MESSAGES", "EVENTS", "FRAGMENTS", "COMMITS", "FILE"), rows)
    for findings in report.every_finding():
        _print_findings(findings)
    for note in report.every_note():
        typer.echo(f"note: {shown(note)}")
    count = sum(sum(each.counts.values()) for each in report.every_finding())
    typer.echo(
        f"{report.path} is whole." if report.is_whole else f"{report.path} is damaged: {count:,} findings."
    )


def _print_findings(findings: "Findings") -> None:
    for kind, count in findings.counts.items():
        told = findings.told[kind]
        for sentence in told:
            typer.echo(f"{kind}: {shown(sentence)}")
        if count > len(told):
            typer.echo(f"{kind}: and {count - len(told):,} more.")
