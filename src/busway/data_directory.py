"""The directory a server keeps everything in: who may use it, and the few small files beside the stores.

lock          held by the one server that uses the directory
root.key      the key of RootManageSharedAccessKey, owner only
node.json     the node's name, and what the last server here was as a node
server.json   where the last server listened; what `busway connection-string` reads
tls/          the certificate authority and the server's certificate
stores/       one file per store
capture/      captured events of event hubs, where `busway serve --capture` names no other place
busway.log    what the server logs, when its configuration file asks for that
"""

import fcntl
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import IO


class DataDirectoryError(Exception):
    """The data directory cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class NodeIdentity:
    node: str
    #: Of the last server here, which is certainly over; empty when that is not certain.
    last_life: bytes


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def tls(self) -> Path:
        return self.path / "tls"

    @property
    def stores(self) -> Path:
        return self.path / "stores"

    @property
    def capture(self) -> Path:
        return self.path / "capture"

    @property
    def log(self) -> Path:
        return self.path / "busway.log"

    def acquire(self) -> None:
        """Creates the directory and locks it for this process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.stores.mkdir(exist_ok=True, mode=0o700)
            lock = _open_private(self.path / "lock", "a+")
        except OSError as error:
            raise DataDirectoryError(
                f"The data directory {self.path} cannot be used: {error.strerror}."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            lock.close()
            raise DataDirectoryError(
                f"The data directory {self.path} is in use by process {holder}: "
                "stop that server or choose another directory with --data."
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def begin_life(self, node: str | None, life: bytes) -> NodeIdentity:
        """Notes who this server is among others: by the name it was given, else by that of the last one here, else by
        the machine's and something that no other directory has.

        We hold the lock of this directory. So whoever held it before us on this machine, since its last start, is
        dead: if the note was written there. A copy of the directory has another lock, and tells nothing."""
        assert self._lock is not None, "the directory is acquired first"
        file = self.path / "node.json"
        stat = os.fstat(self._lock.fileno())
        place = [_boot_id(), stat.st_dev, stat.st_ino]
        try:
            noted = json.loads(file.read_text())
            last = bytes.fromhex(noted["life"]) if noted["place"] == place and place[0] else b""
            name = str(noted["node"])
        except (OSError, ValueError, KeyError, TypeError):
            last, name = b"", ""
        name = node or name or f"{socket.gethostname()[:40]}-{life[:2].hex()}"
        write_private(file, json.dumps({"node": name, "life": life.hex(), "place": place}) + "\n")
        return NodeIdentity(name, last)

    def read_root_key(self) -> str | None:
        file = self.path / "root.key"
        return file.read_text().strip() if file.exists() else None

    def write_root_key(self, key: str) -> None:
        write_private(self.path / "root.key", key + "\n")

    def read_server(self) -> dict[str, object]:
        file = self.path / "server.json"
        if not file.exists():
            raise DataDirectoryError(
                f"No server has used {self.path} yet: start one with busway serve --data {self.path}."
            )
        loaded: dict[str, object] = json.loads(file.read_text())
        return loaded

    def write_server(self, facts: dict[str, object]) -> None:
        """Without secrets: the key stays in its own file."""
        write_private(self.path / "server.json", json.dumps(facts, indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Replaces a file whole, readable by its owner only at every moment."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with _open_private(draft, "x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _open_private(path: Path, mode: str) -> IO[str]:
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def _boot_id() -> str:
    """Of this machine since it was started; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
