"""`busway serve`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from busway.cli.verbs import CommandFailed, OptionGroup, WrongCall, verb
from busway.serve_options import ServeOptions, WrongOptions, default_data_directory, store_addresses

_EXAMPLE = "busway serve --data ./bus --port 0 --ready-file ./ready.json"

_DATA = "Where everything is kept; without it ~/.local/share/busway."
_CONFIG = "Entities, rules and keys to create: the emulator's Config.json, or ours."
_HOST = "The address to listen on; beyond loopback it needs --tls-cert, --tls-key and --key-file."
_KEY_FILE = "Holds the key of RootManageSharedAccessKey, instead of a random one."
_READY_FILE = "Written when connections are accepted: JSON with the connection string, so it holds a key."
_STORES = "How many SQLite files to keep in the data directory; 4 for a new one."
_STORE = (
    "A store's address (sqlite:PATH), that of a database with many (postgresql://…), or @FILE with one in each line,"
    " instead of --stores; may be repeated."
)
_PARTITION_COUNT = "Fragments of each partitioned entity that is created from now on."
_NAMESPACE_PARTITIONS = (
    "Make every new entity partitioned, with so many fragments; 0 leaves it to each entity's --partitioned."
)
_FETCH_BYTES_MAX = (
    "Bytes of messages in one answer to a receive by sequence number; above it the request is refused."
)
_CONNECTIONS_BYTES_MAX = (
    "Memory that all connections together may hold; above it the largest holders wait, then are closed."
)
_BULK_BYTES_MAX = (
    "Memory that requests which move data in bulk (for Spark) may hold together; others wait for their turn."
)
_PUBLISH_COPIES_MAX = (
    "Copies that one publish to a topic may make (0.5 KB of memory each); above it an atomic batch or a transaction"
    " is refused, and anything else is published in parts."
)
_STAGING_BYTES_MAX = (
    "Bytes that writers such as Spark may have staged in batches that are not committed yet, all together; they lie"
    " on the disk, not in memory."
)
_STAGING_HOURS = "Staged batches that nobody has committed, or gone on with, for so many hours are dropped."
_DEV_KEY = "Accept the emulator's well-known key SAS_KEY_VALUE too."
_ALLOW_RESET = (
    "Let whoever may Manage the namespace empty the bus (busway reset), for test suites; on loopback only."
)
_STOP_AT_EOF = "Stop when standard input ends, so that the server does not outlive whoever started it."
_NODE = (
    "The name of this server among those that share stores in PostgreSQL; one is drawn, and kept, if not given. One"
    " of them serves, the others take over."
)
_LEASE = "The stores of a node are taken by another one when it was silent for so many seconds."
_TLS_PORT = "AMQP over TLS, beyond loopback; 5671, where the SDKs look, if not given."
_CAPTURE = "Where event hubs with --capture write their files; below the data directory if not given."
_JOURNAL = "Write what happens to each message to Parquet files there; needs pyarrow (busway[arrow])."
_JOURNAL_SECONDS = "A file of the journal is finished, and can be read, so often."
_JOURNAL_KEEP_DAYS = "Remove files of the journal that are older; 0 keeps them all."
_CONSOLE = (
    "The page in the browser: full, read-only (it changes nothing), or off (a plain status page stays)."
)
_LOG_FORMAT = "The form of the log on standard error: text, or json with one object on each line."
_LOG_LEVEL = "What is logged: debug, info, warning or error, and everything above."
_HTTPS_PORT = "HTTPS and WebSocket, beyond loopback; 443, where the SDKs look, if not given."


def register(app: typer.Typer) -> None:
    verb(app, "serve", _EXAMPLE)(start)


def _file(name: str, meaning: str) -> object:
    return typer.Option(name, metavar="FILE", help=meaning)


def _folder(name: str, variable: str, meaning: str) -> object:
    return typer.Option(name, metavar="DIR", envvar=variable, help=meaning)


def _number(name: str, variable: str, meaning: str) -> object:
    return typer.Option(name, metavar="NUMBER", envvar=variable, help=meaning, show_default=True)


def _word(name: str, variable: str, meaning: str) -> object:
    return typer.Option(name, metavar="WORD", envvar=variable, help=meaning, show_default=True)


_Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help=_HOST, show_default=True)]
_PartitionCount = Annotated[int, typer.Option("--partition-count", metavar="NUMBER", help=_PARTITION_COUNT)]
_NamespacePartitions = Annotated[
    int, typer.Option("--namespace-partitions", metavar="NUMBER", help=_NAMESPACE_PARTITIONS)
]
_Port = Annotated[int, _number("--port", "BUSWAY_PORT", "The one port on loopback; 0 takes a free one.")]
_FetchBytesMax = Annotated[int, _number("--fetch-bytes-max", "BUSWAY_FETCH_BYTES_MAX", _FETCH_BYTES_MAX)]
_ConnectionsBytesMax = Annotated[
    int, _number("--connections-bytes-max", "BUSWAY_CONNECTIONS_BYTES_MAX", _CONNECTIONS_BYTES_MAX)
]
_BulkBytesMax = Annotated[int, _number("--bulk-bytes-max", "BUSWAY_BULK_BYTES_MAX", _BULK_BYTES_MAX)]
_PublishCopiesMax = Annotated[
    int, _number("--publish-copies-max", "BUSWAY_PUBLISH_COPIES_MAX", _PUBLISH_COPIES_MAX)
]
_StagingBytesMax = Annotated[
    int, _number("--staging-bytes-max", "BUSWAY_STAGING_BYTES_MAX", _STAGING_BYTES_MAX)
]
_StagingHours = Annotated[int, _number("--staging-hours", "BUSWAY_STAGING_HOURS", _STAGING_HOURS)]


_Node = Annotated[str | None, typer.Option("--node", metavar="NAME", envvar="BUSWAY_NODE", help=_NODE)]
_Lease = Annotated[int, _number("--lease", "BUSWAY_LEASE", _LEASE)]
_JournalSeconds = Annotated[int, _number("--journal-seconds", "BUSWAY_JOURNAL_SECONDS", _JOURNAL_SECONDS)]
_JournalKeepDays = Annotated[
    int, _number("--journal-keep-days", "BUSWAY_JOURNAL_KEEP_DAYS", _JOURNAL_KEEP_DAYS)
]


@dataclass(frozen=True)
class ShownOptions(OptionGroup):
    """What a server shows of itself to people: the console, and the log."""

    console: Annotated[str, _word("--console", "BUSWAY_CONSOLE", _CONSOLE)] = "full"
    log_format: Annotated[str, _word("--log-format", "BUSWAY_LOG_FORMAT", _LOG_FORMAT)] = "text"
    log_level: Annotated[str, _word("--log-level", "BUSWAY_LOG_LEVEL", _LOG_LEVEL)] = "info"


def start(
    context: typer.Context,
    data: Annotated[Path | None, _folder("--data", "BUSWAY_DATA", _DATA)] = None,
    host: _Host = "127.0.0.1",
    port: _Port = 5672,
    config: Annotated[Path | None, _file("--config", _CONFIG)] = None,
    stores: Annotated[int | None, typer.Option("--stores", metavar="NUMBER", help=_STORES)] = None,
    store: Annotated[list[str] | None, typer.Option("--store", metavar="URL", help=_STORE)] = None,
    partition_count: _PartitionCount = 16,
    namespace_partitions: _NamespacePartitions = 0,
    fetch_bytes_max: _FetchBytesMax = 16_777_216,
    connections_bytes_max: _ConnectionsBytesMax = 1_073_741_824,
    bulk_bytes_max: _BulkBytesMax = 33_554_432,
    publish_copies_max: _PublishCopiesMax = 100_000,
    staging_bytes_max: _StagingBytesMax = 8_589_934_592,
    staging_hours: _StagingHours = 24,
    dev_key: Annotated[bool, typer.Option("--dev-key", help=_DEV_KEY)] = False,
    allow_reset: Annotated[bool, typer.Option("--allow-reset", help=_ALLOW_RESET)] = False,
    stop_at_eof: Annotated[bool, typer.Option("--stop-at-eof", help=_STOP_AT_EOF)] = False,
    node: _Node = None,
    lease: _Lease = 2,
    ready_file: Annotated[Path | None, _file("--ready-file", _READY_FILE)] = None,
    tls_cert: Annotated[Path | None, _file("--tls-cert", "The certificate to show, with its chain.")] = None,
    tls_key: Annotated[Path | None, _file("--tls-key", "The certificate's private key.")] = None,
    key_file: Annotated[Path | None, _file("--key-file", _KEY_FILE)] = None,
    tls_port: Annotated[int | None, _number("--tls-port", "BUSWAY_TLS_PORT", _TLS_PORT)] = None,
    https_port: Annotated[int | None, _number("--https-port", "BUSWAY_HTTPS_PORT", _HTTPS_PORT)] = None,
    capture: Annotated[Path | None, _folder("--capture", "BUSWAY_CAPTURE", _CAPTURE)] = None,
    journal: Annotated[Path | None, _folder("--journal", "BUSWAY_JOURNAL", _JOURNAL)] = None,
    journal_seconds: _JournalSeconds = 60,
    journal_keep_days: _JournalKeepDays = 0,
    *,
    shown: ShownOptions,
) -> None:
    """Run the bus. SIGTERM or Ctrl-C stops it."""
    options = ServeOptions(
        data=data or default_data_directory(),
        host=host,
        port=port,
        config=config,
        stores=stores,
        store_urls=_addresses(store or ()),
        partition_count=partition_count,
        namespace_partitions=namespace_partitions,
        fetch_bytes_max=fetch_bytes_max,
        connections_bytes_max=connections_bytes_max,
        bulk_bytes_max=bulk_bytes_max,
        publish_copies_max=publish_copies_max,
        staging_bytes_max=staging_bytes_max,
        staging_hours=staging_hours,
        dev_key=dev_key,
        allow_reset=allow_reset,
        stop_at_eof=stop_at_eof,
        node=node,
        lease=lease,
        ready_file=ready_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        key_file=key_file,
        tls_port=tls_port,
        https_port=https_port,
        capture=capture,
        journal=journal,
        journal_seconds=journal_seconds,
        journal_keep_days=journal_keep_days,
        console=shown.console,
        log_format=shown.log_format,
        log_level=shown.log_level,
    )
    _run(options, _given(context))


def _addresses(given: Sequence[str]) -> tuple[str, ...]:
    try:
        return store_addresses(given)
    except WrongOptions as error:
        raise WrongCall(str(error)) from None


def _given(context: typer.Context) -> set[str]:
    """Fields that the command line or a variable has set: a configuration file does not change them."""
    fields = {"store": "store_urls"}
    set_by = {name: context.get_parameter_source(name) for name in context.params}
    return {
        fields.get(name, name)
        for name, source in set_by.items()
        if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
    }


def _run(options: ServeOptions, given: set[str]) -> None:
    """What keeps a server from starting, as a sentence."""
    from busway import server
    from busway.config.node import ConfigError
    from busway.gateway.listener import ListenError
    from busway.gateway.tls_files import CertificateError
    from busway.model.errors import BrokerError
    from busway.store.contract import StoreError

    try:
        server.slow_the_collector()
        server.keep_freed_memory()
        server.ask_for_short_slices()
        config = None
        if options.config is not None:
            from busway.config.config import read_config  # for those who have such a file

            config = read_config(options.config)
            options = options.completed(config.server, given)
        options.check()
        server.serve(options, config)
    except WrongOptions as error:
        raise WrongCall(str(error)) from error
    except (
        server.ServerFailed,
        ConfigError,
        CertificateError,
        ListenError,
        StoreError,
        BrokerError,
    ) as error:
        raise CommandFailed(str(error)) from error
