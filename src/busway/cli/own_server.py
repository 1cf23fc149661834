"""What a program needs that uses the bus: to know where it is and whom to trust, and perhaps a server of its own.

Every family of clients has its own variable for extra authorities. Those that replace the built-in list get a
bundle (the usual roots and ours), so that the program's other https calls keep working.

A server of one's own is a process on a free port with a folder of its own, which ends with whoever started it: that
of `busway exec --serve` and of the pytest plug-in. The server's standard input is a pipe that only we hold:
should we be killed, it ends, and the server with it (`serve --stop-at-eof`). It has a session of its own, so that
Ctrl-C in a terminal reaches whoever works with it first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final

import certifi

from busway.cli.verbs import CommandFailed, connection_string_of
from busway.data_directory import DataDirectory

CONNECTION_VARIABLES: Final = (
    "BUSWAY_CONNECTION_STRING",
    "AZURE_SERVICEBUS_CONNECTION_STRING",
    "SERVICEBUS_CONNECTION_STRING",
)
#: OpenSSL and Go; requests and azure-core; curl.
BUNDLE_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
#: Any text does: the store holds public certificates only, but Java wants a password.
_TRUST_STORE_PASSWORD: Final = "changeit"
_PEM_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


def environment_of(
    present: Mapping[str, str], connection_string: str, ca_file: Path | None
) -> dict[str, str]:
    environment = dict(present)
    for name in CONNECTION_VARIABLES:
        environment[name] = connection_string
    if ca_file is None:
        return environment
    if not ca_file.is_file():
        raise CommandFailed(f"The certificate authority {ca_file} does not exist.")
    bundle = str(_bundle(ca_file, _roots(present)))
    for name in BUNDLE_VARIABLES:
        environment[name] = bundle
    environment["NODE_EXTRA_CA_CERTS"] = str(ca_file.resolve())
    environment["BUSWAY_CA_FILE"] = str(ca_file.resolve())
    if shutil.which("java", path=present.get("PATH")) is not None:
        options = _java_options(Path(bundle))
        environment["JAVA_TOOL_OPTIONS"] = f"{present.get('JAVA_TOOL_OPTIONS', '')} {options}".strip()
    return environment


def _roots(present: Mapping[str, str]) -> Path:
    """The list the program would have used: its own variable's, else the usual one."""
    own = present.get("SSL_CERT_FILE")
    return Path(own) if own is not None and Path(own).is_file() else Path(certifi.where())


def _bundle(ca_file: Path, roots: Path) -> Path:
    return _cached(roots.read_bytes().rstrip() + b"\n" + ca_file.read_bytes(), "pem")


def _java_options(bundle: Path) -> str:
    """Java reads no PEM list; a PKCS#12 store with the same certificates does."""
    store = bundle.with_suffix(".p12")
    if not store.exists():
        _replace(store, _trust_store(bundle.read_bytes()))
    return (
        f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=PKCS12 "
        f"-Djavax.net.ssl.trustStorePassword={_TRUST_STORE_PASSWORD}"
    )


def _trust_store(pem: bytes) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    trusted = []
    for number, block in enumerate(_PEM_BLOCK.findall(pem)):
        # Old roots of the usual list bend the rules of certificates: they are taken quietly, or left out.
        with warnings.catch_warnings(), contextlib.suppress(ValueError):
            warnings.simplefilter("ignore")
            certificate = x509.load_pem_x509_certificate(block)
            trusted.append(pkcs12.PKCS12Certificate(certificate, f"root-{number}".encode()))
    encryption = BestAvailableEncryption(_TRUST_STORE_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(trusted, encryption)


def _cached(content: bytes, suffix: str) -> Path:
    """A file named after its content in the user's cache: it must outlive this process, which is replaced."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "busway"
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = cache / f"trust-{hashlib.sha256(content).hexdigest()[:16]}.{suffix}"
    if not file.exists():
        _replace(file, content)
    return file


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(file)


_PROGRAM: Final = "from busway.cli import main; main()"
_START_S_MAX: Final = 120.0
_STOP_S_MAX: Final = 20.0
_LOOK_EVERY_S: Final = 0.01
#: Of the log, when it did not start.
_SHOWN_CHARACTERS: Final = 2_000


class OwnServer:
    """`with OwnServer(folder) as server:`. `options`: more of `busway serve`."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.data = folder / "data"
        self.log = folder / "server.log"
        self._ready_file = folder / "ready.json"
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._facts: dict[str, object] = {}

    def __enter__(self) -> OwnServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- where it is

    @property
    def connection_string(self) -> str:
        """As of now: the root key may have been rotated."""
        return connection_string_of(DataDirectory(self.data))

    @property
    def host(self) -> str:
        return str(self._facts["host"])

    @property
    def port(self) -> int:
        return int(str(self._facts["port"]))

    @property
    def ca_file(self) -> Path:
        return Path(str(self._facts["ca_file"]))

    @property
    def environment(self) -> dict[str, str]:
        """What `busway exec` adds to a program's environment, but for Java's options."""
        return {
            **self._trust,
            **{name: self.connection_string for name in self._trust if name.endswith("CONNECTION_STRING")},
        }

    @cached_property
    def _trust(self) -> dict[str, str]:
        found = environment_of({"PATH": ""}, self.connection_string, self.ca_file)
        del found["PATH"]
        return found

    # -- what it does

    def reset(self) -> None:
        """An empty bus. Raises ClientError."""
        from busway.client.administration import ServiceBusAdministrationClient

        text = self.connection_string
        with ServiceBusAdministrationClient.from_connection_string(text, self.ca_file) as client:
            client.reset()

    def start(self) -> None:
        """Returns when it accepts connections. Raises CommandFailed with what it said."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-c", _PROGRAM, "serve", "--data", str(self.data), "--port", "0"]
        guards = ["--allow-reset", "--stop-at-eof", "--ready-file", str(self._ready_file)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *guards, *self._options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait(self._process)
        except BaseException:
            self.stop()
            raise
        self._facts = json.loads(self._ready_file.read_text())

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _START_S_MAX
        while not self._ready_file.exists():
            if process.poll() is not None:
                raise CommandFailed(f"The server did not start:\n{self._last_words()}")
            if time.monotonic() > until:
                raise CommandFailed(
                    f"The server did not start within {_START_S_MAX:.0f} seconds:\n{self._last_words()}"
                )
            time.sleep(_LOOK_EVERY_S)

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-_SHOWN_CHARACTERS:].strip()

    def stop(self) -> None:
        """Cleanly; what does not end in time is killed. Told again it does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            if process.stdin is not None:
                process.stdin.close()
