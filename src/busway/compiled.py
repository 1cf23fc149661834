"""Finds the compiled twins of the hot modules.

`make setup` compiles HOT_MODULES with mypyc into `busway/_compiled` when a C compiler is there. The same
files run uncompiled; which of the two runs is decided here, once, at import:

  BUSWAY_PURE=1        the Python sources
  a stale twin         the Python sources (a compiled twin of other code would silently win otherwise)
  no librt             the Python sources (mypyc's runtime library, which compiled modules load)
  else                 the compiled ones

A twin is a folder of its own below `_compiled`, named by what it was made of; the manifest says which one is the
present one and is replaced in one step, so that a compilation that is broken off leaves what was there, and a process
that runs goes on with the files it began with. The manifest holds a digest of every source that the compiler read:
the hot modules, and what they import, because their types and constants are compiled in.

The extensions are found by a finder on `sys.meta_path`, because an extension beside its source would win over it
without anybody noticing.
"""

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

HOT_MODULES: Final = (
    "busway.message.message",
    "busway.message.bare",
    "busway.message.event_chunk",
    "busway.message.event_record",
    "busway.amqp.decode",
    "busway.amqp.encode",
    "busway.amqp.type_table",
    "busway.amqp.performatives",
    "busway.amqp.sections",
    "busway.amqp.deliveries",
    "busway.amqp.session",
    "busway.amqp.allowance",
    "busway.amqp.connection",
    "busway.amqp.transfer_runs",
    "busway.amqp.link",
    "busway.rules.subject",
    "busway.rules.operators",
    "busway.rules.evaluate",
    "busway.rules.compiled_rule",
    "busway.rules.selection",
    "busway.store.contract",
    "busway.store.shadow",
    "busway.store.rows",
    "busway.store.run_block",
    "busway.broker.fragment.locks",
    "busway.model.settlement",
    "busway.broker.fragment.intake",
    "busway.model.flow",
    "busway.broker.fragment.journal",
    "busway.broker.fragment.message_states",
    "busway.broker.fragment.write",
    "busway.broker.fragment.sent_run",
    "busway.message.message_subject",
    "busway.broker.entity.publication",
    "busway.broker.entity.topic_line",
    "busway.broker.entity.distribution",
    "busway.broker.fragment.lane",
    "busway.broker.fragment.outlet",
    "busway.broker.fragment.settling",
    "busway.broker.fragment.fragment",
    "busway.broker.entity.fragment_choice",
    "busway.broker.entity.group_shares",
    "busway.broker.entity.fragment_group",
    "busway.timers",
    "busway.broker.transaction.gathered",
    "busway.broker.transaction.transactions",
    "busway.streams.key_hash",
    "busway.streams.cursor",
    "busway.streams.producers",
    "busway.streams.partition_log",
    "busway.journal.recorder",
    "busway.gateway.amqp.message_mapping",
    "busway.gateway.amqp.delivery_runs",
    "busway.staging.staged_record",
    "busway.staging.targets",
    "busway.gateway.amqp.links.receive_link",
    "busway.gateway.amqp.links.send_link",
    "busway.gateway.amqp.nodes.transaction_node",
    "busway.gateway.amqp.links.event_send_link",
    "busway.gateway.amqp.links.event_receive_link",
    "busway.gateway.amqp.carrier",
    "busway.gateway.amqp.connection",
)
#: The shared library that mypyc makes of all of them.
GROUP: Final = "busway_hot"

#: What they load of mypyc's runtime library; without it none of them can be imported.
LIBRT: Final = "librt.strings"

PACKAGE: Final = Path(__file__).parent
FOLDER: Final = PACKAGE / "_compiled"
MANIFEST: Final = "manifest.json"
SUFFIX: Final = importlib.machinery.EXTENSION_SUFFIXES[0]


@dataclass(frozen=True)
class Manifest:
    """What was compiled, from what, and where it lies."""

    #: The very one, by `sys.version`. In a wheel, which the next patch of a Python may run too, its kind and platform
    #: as the names of extensions have them (`packaging/wheel_hook.py`).
    interpreter: str
    #: source file, relative to the folder of the package, → its digest
    sources: dict[str, str]
    #: the folder of the twin below the manifest's own
    twin: str
    #: hot module → the library with its entry, without a suffix
    entries: dict[str, str]

    def write(self, folder: Path) -> None:
        """In one step: whoever reads sees the old one or the new one."""
        half = folder / f"{MANIFEST}.{os.getpid()}.half"
        half.write_text(json.dumps(vars(self), indent=1))
        half.replace(folder / MANIFEST)

    @staticmethod
    def read(folder: Path) -> "Manifest | None":
        """None when nothing was compiled, or by a version of Busway that wrote it down in another way."""
        try:
            return Manifest(**json.loads((folder / MANIFEST).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def fits(self) -> bool:
        """Whether it stands for the sources as they are now, and for this interpreter."""
        if self.interpreter not in (sys.version, SUFFIX) or set(self.entries) != set(HOT_MODULES):
            return False
        return self.sources == digests(self.sources)


def digests(files: Iterable[str], package: Path = PACKAGE) -> dict[str, str]:
    """Of sources of the package; one that is missing has an empty one."""
    return {file: _digest(_source(file, package)) for file in files}


def _digest(source: bytes | None) -> str:
    return "" if source is None else hashlib.blake2b(source, digest_size=20).hexdigest()


def _source(file: str, package: Path) -> bytes | None:
    """Also where the sources came out of an archive, as on executors of Spark."""
    try:
        if package.is_dir():
            return (package / file).read_bytes()
        import pkgutil  # slow to load, and hardly ever needed

        return pkgutil.get_data("busway", file)
    except OSError:
        return None


def _folder() -> Path:
    """Nothing compiled can be loaded out of an archive, but an installed copy of the same sources may have it."""
    if PACKAGE.is_dir():
        return FOLDER
    installed = (Path(entry) / PACKAGE.name / FOLDER.name for entry in sys.path if entry)
    return next((folder for folder in installed if (folder / MANIFEST).is_file()), FOLDER)


def _finding() -> tuple[str, Manifest | None]:
    """What runs and why, in words, and the manifest of what is compiled when that is it."""
    if os.environ.get("BUSWAY_PURE") == "1":
        return "pure Python (BUSWAY_PURE=1)", None
    manifest = Manifest.read(_folder())
    if manifest is None or not (_folder() / manifest.twin).is_dir():
        return "pure Python (not compiled)", None
    if not manifest.fits():
        return "pure Python (the compiled modules are stale: run make setup)", None
    if not _has_librt():
        return "pure Python (the compiled modules need the package librt, which is not installed)", None
    return "compiled", manifest


def _has_librt() -> bool:
    try:
        return importlib.util.find_spec(LIBRT) is not None
    except ImportError:
        return False


def status() -> str:
    """For `busway --version`."""
    return _finding()[0]


class _CompiledFinder:
    """Answers for the hot modules and their shared library, for nothing else."""

    def __init__(self, manifest: Manifest) -> None:
        folder = _folder() / manifest.twin
        self._files = {module: folder / (library + SUFFIX) for module, library in manifest.entries.items()}
        self._files[f"{GROUP}__mypyc"] = folder / f"{GROUP}__mypyc{SUFFIX}"

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        file = self._files.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


def install() -> None:
    manifest = _finding()[1]
    if manifest is not None:
        sys.meta_path.insert(0, _CompiledFinder(manifest))
