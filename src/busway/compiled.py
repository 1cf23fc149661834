"""Finds the compiled twins of the hot modules.

`make setup` compiles HOT_MODULES with mypyc into `busway/_compiled` when a C compiler is there. The same
files run uncompiled; which of the two runs is decided here, once, at import:

  BUSWAY_PURE=1        the Python sources
  a stale source hash  the Python sources (a compiled twin of other code would silently win otherwise)
  else                 the compiled ones

The extensions lie in a folder of their own and are found by a finder on `sys.meta_path`, because an extension
beside its source would win over it without anybody noticing.
"""

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

HOT_MODULES: Final = (
    "busway.message",
    "busway.message_head",
    "busway.bare_message",
    "busway.event_chunk",
    "busway.event_record",
    "busway.amqp.errors",
    "busway.amqp.decode",
    "busway.amqp.encode",
    "busway.amqp.composites",
    "busway.amqp.type_table",
    "busway.amqp.performatives",
    "busway.amqp.sections",
    "busway.amqp.serial_number",
    "busway.amqp.frames",
    "busway.amqp.connection",
    "busway.amqp.session",
    "busway.amqp.deliveries",
    "busway.amqp.link",
    "busway.rules.values",
    "busway.rules.subject",
    "busway.rules.like",
    "busway.rules.comparison",
    "busway.rules.arithmetic",
    "busway.rules.evaluate",
    "busway.rules.correlation",
    "busway.rules.anchors",
    "busway.rules.filters",
    "busway.rules.conversion",
    "busway.rules.actions",
    "busway.rules.match",
    "busway.rules.compiled_rule",
    "busway.rules.correlation_index",
    "busway.rules.anchor_index",
    "busway.rules.selection",
    "busway.store.contract",
    "busway.store.shadow",
    "busway.store.log_contract",
    "busway.store.sqlite.rows",
    "busway.store.sqlite.raw_page",
    "busway.broker.receiver",
    "busway.broker.settlement",
    "busway.broker.admission",
    "busway.broker.flow",
    "busway.broker.journal",
    "busway.broker.commit_runs",
    "busway.broker.intake",
    "busway.broker.numbering",
    "busway.broker.message_subject",
    "busway.broker.copies",
    "busway.broker.distribution",
    "busway.broker.lane",
    "busway.broker.locks",
    "busway.broker.outcomes",
    "busway.broker.ready_window",
    "busway.broker.outlet",
    "busway.broker.fragment",
    "busway.broker.partition_keys",
    "busway.broker.fragment_choice",
    "busway.broker.receiver_share",
    "busway.broker.fragment_group",
    "busway.broker.timers",
    "busway.broker.transaction_claims",
    "busway.broker.transaction_place",
    "busway.broker.transaction_sends",
    "busway.broker.transaction",
    "busway.broker.transactions",
    "busway.streams.key_hash",
    "busway.streams.positions",
    "busway.streams.cursor",
    "busway.streams.readers",
    "busway.streams.producers",
    "busway.streams.partition_log",
    "busway.journal.run_column",
    "busway.journal.recorder",
    "busway.gateway.amqp.message_ids",
    "busway.gateway.amqp.message_mapping",
    "busway.gateway.amqp.outcomes",
    "busway.gateway.amqp.sender_end",
    "busway.gateway.amqp.send_link",
    "busway.gateway.amqp.receive_link",
    "busway.gateway.amqp.transaction_node",
    "busway.gateway.amqp.event_publication",
    "busway.gateway.amqp.event_send_link",
    "busway.gateway.amqp.event_receive_link",
)
#: The shared library that mypyc puts beside the extensions.
GROUP: Final = "busway_hot"

PACKAGE: Final = Path(__file__).parent
FOLDER: Final = PACKAGE / "_compiled"
_SUFFIX: Final = importlib.machinery.EXTENSION_SUFFIXES[0]


def source_of(module: str) -> Path:
    return PACKAGE.parent / (module.replace(".", "/") + ".py")


def source_hash() -> str:
    """Changes with any hot source and with the interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    for module in HOT_MODULES:
        digest.update(_source(module))
    return digest.hexdigest()


def _source(module: str) -> bytes:
    """Also where the sources came out of an archive, as on executors of Spark."""
    file = source_of(module)
    found = None if PACKAGE.is_dir() else pkgutil.get_data("busway", str(file.relative_to(PACKAGE)))
    return file.read_bytes() if found is None else found


def _folder() -> Path:
    """Nothing compiled can be loaded out of an archive, but an installed copy of the same sources may have it."""
    if PACKAGE.is_dir():
        return FOLDER
    installed = (Path(entry) / PACKAGE.name / FOLDER.name for entry in sys.path if entry)
    return next((folder for folder in installed if (folder / "source-hash").is_file()), FOLDER)


def status() -> str:
    """For `busway --version`: what runs and why."""
    if os.environ.get("BUSWAY_PURE") == "1":
        return "pure Python (BUSWAY_PURE=1)"
    recorded = _folder() / "source-hash"
    if not recorded.exists():
        return "pure Python (not compiled)"
    if recorded.read_text() != source_hash():
        return "pure Python (the compiled modules are stale: run make setup)"
    return "compiled"


class _CompiledFinder(importlib.abc.MetaPathFinder):
    """Answers for the hot modules and their shared library, for nothing else."""

    def __init__(self) -> None:
        folder = _folder()
        self._files = {name: folder / (name.replace(".", "/") + _SUFFIX) for name in HOT_MODULES}
        self._files[f"{GROUP}__mypyc"] = folder / f"{GROUP}__mypyc{_SUFFIX}"

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        file = self._files.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


def install() -> None:
    if status() == "compiled":
        sys.meta_path.insert(0, _CompiledFinder())
