"""How a server is asked to start: the options of `busway serve` as plain values.

The command line checks what can be checked without touching disk or network, besides asking what a host name means
and reading the files that `--store @FILE` names (a wrong call exits with 2); everything else is the server's to find
out. Addresses of stores may hold a password where nobody else reads along, so no sentence repeats one.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from busway import host_addresses

if TYPE_CHECKING:
    from busway.store.postgres.url import PostgresUrl

PORT_MAX: Final = 65_535
PARTITIONS_MAX: Final = 256
FETCH_BYTES_MIN: Final = 64 * 1024
FETCH_BYTES_MAX: Final = 1024 * 1024 * 1024
CONNECTIONS_BYTES_MIN: Final = 64 * 1024 * 1024
CONNECTIONS_BYTES_MAX: Final = 1 << 40
#: The largest body of a bulk request.
BULK_BYTES_MIN: Final = 8 * 1024 * 1024
BULK_BYTES_MAX: Final = 1 << 40
#: One message for each of the subscriptions that a topic may have (L-9).
PUBLISH_COPIES_MIN: Final = 2_000
PUBLISH_COPIES_MAX: Final = 10_000_000
STAGING_BYTES_MIN: Final = 16 * 1024 * 1024
STAGING_BYTES_MAX: Final = 1 << 44
STAGING_HOURS_MAX: Final = 24 * 365
JOURNAL_SECONDS_MAX: Final = 3_600
JOURNAL_DAYS_MAX: Final = 36_500
LEASE_S_MIN: Final = 1
LEASE_S_MAX: Final = 60
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CONSOLES: Final = ("full", "read-only", "off")
LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
#: Keys of a configuration file's `Server` section: an option in PascalCase.
_FIELD_OF_KEY: Final = {"Store": "store_urls"}
_PATH_KEYS: Final = frozenset({"Data", "ReadyFile", "TlsCert", "TlsKey", "KeyFile", "Capture", "Journal"})


def default_data_directory() -> Path:
    """The same for `serve` and for the verbs that look for a running server: BUSWAY_DATA, else the user's
    own data folder, so that a second terminal finds the bus wherever it was opened."""
    configured = os.environ.get("BUSWAY_DATA")
    if configured:
        return Path(configured)
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "busway"


class WrongOptions(ValueError):
    """The options contradict each other; the text says which and what to do."""


@dataclass(frozen=True)
class ServeOptions:
    data: Path = field(default_factory=default_data_directory)
    host: str = "127.0.0.1"
    port: int = 5672  # 0 takes a free one
    config: Path | None = None
    stores: int | None = None  # number of SQLite files in the data directory
    store_urls: tuple[str, ...] = field(default=(), repr=False)  # instead of `stores`
    partition_count: int = 16  # P-9: fragments of a partitioned entity made from now on
    namespace_partitions: int = 0  # C-1: every new entity has so many fragments; 0: those that ask for it
    fetch_bytes_max: int = 16 * 1024 * 1024  # messages of one answer to a receive by sequence number
    connections_bytes_max: int = 1024 * 1024 * 1024  # memory that all connections together may hold
    bulk_bytes_max: int = 32 * 1024 * 1024  # memory that bulk requests together may hold
    publish_copies_max: int = 100_000  # that one publish may make in the subscriptions of a topic
    staging_bytes_max: int = 8 * 1024 * 1024 * 1024  # of all batches that are staged and not committed
    staging_hours: int = 24  # then what nobody has committed is dropped
    dev_key: bool = False  # accept the emulator's placeholder key, loopback only
    allow_reset: bool = False  # whoever may Manage may make the bus as new, loopback only
    stop_at_eof: bool = False  # the server ends with its standard input
    node: str | None = None  # its name among servers that share stores; None: one is drawn, and kept
    lease: int = 2  # seconds after which the stores of a silent node are taken
    ready_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    key_file: Path | None = None  # the root key, instead of a random one
    tls_port: int | None = None  # AMQP over TLS off loopback; None: 5671
    https_port: int | None = None  # HTTPS and WebSocket off loopback; None: 443
    capture: Path | None = None  # where captured events are written; None: below the data directory
    journal: Path | None = None  # where the operation journal is written; None: nowhere
    journal_seconds: int = 60  # a file of it appears so often
    journal_keep_days: int = 0  # then they are removed; 0: never
    console: str = "full"  # the page in the browser; or "read-only", or "off"
    log_format: str = "text"  # or "json"
    log_level: str = "info"

    @property
    def is_loopback(self) -> bool:
        """A-11: by every address that the host has, which are also the ones that the server binds."""
        return host_addresses.is_loopback(self.host)

    def completed(self, section: Mapping[str, object], given: Collection[str]) -> "ServeOptions":
        """With what a configuration file's `Server` section says, except for the fields in `given`: whoever
        starts a server has the last word."""
        values: dict[str, object] = {}
        for key, value in section.items():
            field_name = _FIELD_OF_KEY.get(key) or re.sub(r"(?<!^)([A-Z])", r"_\1", key).lower()
            if field_name not in given:
                values[field_name] = Path(str(value)) if key in _PATH_KEYS else value
        if isinstance(urls := values.get("store_urls"), list):
            values["store_urls"] = tuple(str(url) for url in urls)
        merged = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return ServeOptions(**{**merged, **values})

    def check(self) -> None:
        """Raises WrongOptions."""
        _check_ports(self)
        _check_stores(self)
        _check_partitions(self)
        _check_sizes(self)
        _check_tls(self)
        _check_words(self)
        _check_journal(self)
        _check_node(self)
        if self.dev_key and not self.is_loopback:
            raise WrongOptions(
                "--dev-key is a key that everybody knows: it works on a loopback address only."
            )
        if self.allow_reset and not self.is_loopback:
            raise WrongOptions("--allow-reset is for test suites: it works on a loopback address only.")


def store_addresses(given: Sequence[str]) -> tuple[str, ...]:
    """What a command line gives with --store; @FILE stands for the addresses in that file, one in a line. A password
    may stand there, not here. Raises WrongOptions."""
    found: list[str] = []
    for address in given:
        if address.startswith("@"):
            found += _addresses_in(Path(address[1:]))
        else:
            _read_address(address, is_argument=True)
            found.append(address)
    return tuple(found)


def _addresses_in(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise WrongOptions(f"--store @{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise WrongOptions(f"--store @{file} is not UTF-8 text.") from error
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise WrongOptions(f"--store @{file} holds no address: write one in each line.")
    return found


def _read_address(address: str, *, is_argument: bool = False) -> "PostgresUrl | None":
    """None: it is not a PostgreSQL database's."""
    from busway.store.contract import StoreError
    from busway.store.postgres.url import is_postgres, parse  # for those who have one

    if not is_postgres(address):
        return None
    try:
        return parse(address, is_argument=is_argument)
    except StoreError as error:
        raise WrongOptions(str(error)) from None  # what led to it shows the address


def _check_partitions(options: ServeOptions) -> None:
    bounds = {
        "--partition-count": (options.partition_count, 1),
        "--namespace-partitions": (options.namespace_partitions, 0),
    }
    for name, (count, least) in bounds.items():
        if not least <= count <= PARTITIONS_MAX:
            raise WrongOptions(f"{name} must be between {least} and {PARTITIONS_MAX}, not {count}.")


def _check_sizes(options: ServeOptions) -> None:
    bounds = {
        "--fetch-bytes-max": (options.fetch_bytes_max, FETCH_BYTES_MIN, FETCH_BYTES_MAX),
        "--connections-bytes-max": (
            options.connections_bytes_max,
            CONNECTIONS_BYTES_MIN,
            CONNECTIONS_BYTES_MAX,
        ),
        "--bulk-bytes-max": (options.bulk_bytes_max, BULK_BYTES_MIN, BULK_BYTES_MAX),
        "--publish-copies-max": (options.publish_copies_max, PUBLISH_COPIES_MIN, PUBLISH_COPIES_MAX),
        "--staging-bytes-max": (options.staging_bytes_max, STAGING_BYTES_MIN, STAGING_BYTES_MAX),
        "--staging-hours": (options.staging_hours, 1, STAGING_HOURS_MAX),
    }
    for name, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise WrongOptions(f"{name} must be between {least} and {most}, not {value}.")


def _check_ports(options: ServeOptions) -> None:
    ports = {"--port": options.port, "--tls-port": options.tls_port, "--https-port": options.https_port}
    for name, port in ports.items():
        if port is not None and not 0 <= port <= PORT_MAX:
            raise WrongOptions(f"{name} must be between 0 and {PORT_MAX}, not {port}.")


def _check_stores(options: ServeOptions) -> None:
    if options.stores is not None and options.store_urls:
        raise WrongOptions(
            "--stores and --store exclude each other: give a number of stores or their addresses."
        )
    if options.stores is not None and options.stores < 1:
        raise WrongOptions(f"--stores must be at least 1, not {options.stores}.")
    places: set[str] = set()
    names = {"store"}  # of files
    for address in options.store_urls:
        if (url := _read_address(address)) is None:
            continue
        if url.place in places:
            raise WrongOptions(
                f"The database at {url.shown} is given twice: one --store holds all of its stores."
            )
        if url.name in names:
            raise WrongOptions(
                f"Other stores are called {url.name}-0, {url.name}-1, …, too: write name=… into the address of each"
                " database, and into no two the same; store is the name of files."
            )
        places.add(url.place)
        names.add(url.name)


def _check_node(options: ServeOptions) -> None:
    if not LEASE_S_MIN <= options.lease <= LEASE_S_MAX:
        raise WrongOptions(
            f"--lease must be between {LEASE_S_MIN} and {LEASE_S_MAX} seconds, not {options.lease}."
        )
    if options.node is None:
        return
    if not _NODE.fullmatch(options.node):
        raise WrongOptions(
            "--node must be a name of at most 64 letters, digits, and . _ or - behind the first, such as east-1."
        )
    if not options.store_urls or not all(_read_address(each) is not None for each in options.store_urls):
        raise WrongOptions(
            "--node is for servers that share stores in PostgreSQL: a store in a file belongs to one server, on one"
            " machine. Give --store postgresql://… and no other store."
        )


def _check_journal(options: ServeOptions) -> None:
    bounds = {
        "--journal-seconds": (options.journal_seconds, 1, JOURNAL_SECONDS_MAX),
        "--journal-keep-days": (options.journal_keep_days, 0, JOURNAL_DAYS_MAX),
    }
    for name, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise WrongOptions(f"{name} must be between {least} and {most}, not {value}.")


def _check_words(options: ServeOptions) -> None:
    for name, value, known in (
        ("--console", options.console, CONSOLES),
        ("--log-format", options.log_format, LOG_FORMATS),
        ("--log-level", options.log_level, LOG_LEVELS),
    ):
        if value not in known:
            raise WrongOptions(f"{name} must be {_or(known)}, not {value[:40]!r}.")


def _or(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _check_tls(options: ServeOptions) -> None:
    """A-11: nothing plain and no key made for convenience beyond this machine."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise WrongOptions("--tls-cert and --tls-key belong together: give both or none.")
    if options.is_loopback:
        return
    if options.tls_cert is None or options.key_file is None:
        raise WrongOptions(
            f"Serving on {options.host} needs --tls-cert FILE --tls-key FILE --key-file FILE: "
            "off loopback nothing is plain and the key must be your own."
        )
