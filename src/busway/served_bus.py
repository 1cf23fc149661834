"""A bus while it is served: stores, namespace, event hubs and gateways, in the order they are put together.

`start` builds it and `stack` takes it down in reverse. Where several servers share their stores, a server builds one
whenever the stores have become its own, and takes it down when it has lost them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock, Entropy
from busway.data_directory import DataDirectory
from busway.event_loop import Ticker
from busway.gateway.amqp.gateway import AmqpGateway
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.gateway.connection_budget import ConnectionBudget
from busway.gateway.http.entrance import Entrance
from busway.model.descriptions import ROOT_RULE_NAME
from busway.model.limits import Limits
from busway.safekeeping.backup import Backups
from busway.serve_options import ServeOptions
from busway.signals.measured_process import MeasuredDatabase, MeasuredProcess, MeasuredTurns
from busway.signals.rates import RateHistory
from busway.staging.stagings import Stagings
from busway.store.contract import Store
from busway.store.postgres.url import is_postgres, parse
from busway.store.sqlite.store import SqliteStore
from busway.streams.event_hubs import EventHubs

if TYPE_CHECKING:
    from busway.cluster.cluster_node import ClusterNode
    from busway.config.config import Config
    from busway.gateway.http.app import HttpGateway
    from busway.journal.feed import Feed

_log = logging.getLogger("busway.server")

STORES_DEFAULT: Final = 4
#: Of a new data directory whose configuration file names none.
NAMESPACE_DEFAULT: Final = "busway"


class ServerFailed(Exception):
    """The server cannot start; the text is one sentence for the user."""


class ServedBus:
    """See the head of this file."""

    namespace: Namespace
    hubs: EventHubs
    amqp: AmqpGateway
    http: Entrance

    def __init__(
        self,
        options: ServeOptions,
        directory: DataDirectory,
        clock: Clock,
        entropy: Entropy,
        turns: MeasuredTurns,
        readiness: Callable[[], str],
        node: ClusterNode | None = None,
    ) -> None:
        """`readiness`: what GET /ready says. `node`: whose leases stores in PostgreSQL are opened under."""
        self._options = options
        self._clock = clock
        self._entropy = entropy
        self._directory = directory
        self._turns = turns
        self._readiness = readiness
        self._node = node
        self.root_key = ""
        self._journal: Feed | None = None
        self._stagings: Stagings | None = None
        self.backups: Backups | None = None
        self._rates: RateHistory | None = None
        self._databases: list[MeasuredDatabase] = []

    async def start(self, stack: contextlib.AsyncExitStack, config: Config | None) -> None:
        """With what a configuration file describes."""
        name = None if config is None else config.namespace_name
        namespace, hubs = await self._open_namespace(stack, name or NAMESPACE_DEFAULT)
        self.namespace, self.hubs = namespace, hubs
        if config is not None:
            from busway.config.definition import apply_config  # for those who have such a file

            await apply_config(config, namespace, hubs)
        budget = ConnectionBudget(self._options.connections_bytes_max)
        amqp = self.amqp = AmqpGateway(namespace, self._clock, self._entropy, hubs=hubs, budget=budget)
        self.http = Entrance(lambda: self._http_gateway(namespace, hubs, amqp))
        stack.push_async_callback(amqp.close)
        stack.push_async_callback(self.http.close)
        self._rates = RateHistory(namespace.flows)
        self._rates.start()
        stack.callback(self._rates.stop)

    def _http_gateway(self, namespace: Namespace, hubs: EventHubs, amqp: AmqpGateway) -> HttpGateway:
        # Imported here, because most of the cost of a start would be these: the entrance has loaded them.
        from busway.gateway.http.app import HttpGateway, HttpSettings

        return HttpGateway(
            namespace,
            self._clock,
            self._entropy,
            amqp.connect,
            PayloadCodec(self._entropy),
            HttpSettings.for_host(self._options.host, self._options.is_loopback, self._options.console),
            hubs,
            MeasuredProcess(
                self._journal,
                self._turns,
                amqp.shared.budget,
                self._stagings,
                self._node,
                self._databases,
            ),
            amqp.shared.budget,
            self._stagings,
            self._options.bulk_bytes_max,
            partial(self._make_new, namespace, hubs) if self._options.allow_reset else None,
            self.backups,
            self._readiness,
            self._rates,
        )

    async def _make_new(self, namespace: Namespace, hubs: EventHubs) -> None:
        """With what the configuration file describes, as at a first start."""

        await namespace.reset()
        if self._options.config is not None:
            from busway.config.config import read_config
            from busway.config.definition import apply_config

            config = await asyncio.to_thread(read_config, self._options.config, limits_of(self._options))
            await apply_config(config, namespace, hubs)

    async def _open_namespace(
        self, stack: contextlib.AsyncExitStack, name: str
    ) -> tuple[Namespace, EventHubs]:
        options = self._options
        given = _key_of(options.key_file) if options.key_file is not None else None
        stores = self._stores()
        namespace = Namespace(
            name,
            stores,
            self._clock,
            self._entropy,
            limits_of(options),
            root_key=given,
            accepts_development_key=options.dev_key,
        )
        capture_folder = options.capture or self._directory.capture
        hubs = EventHubs(namespace, self._clock, self._entropy, capture_folder)
        self._stagings = Stagings(namespace, hubs, PayloadCodec(self._entropy))
        self._start_journal(stack, namespace)
        self._share(stack, namespace)
        await namespace.open()
        stack.push_async_callback(namespace.close)
        self.backups = Backups(stores, self._directory, self._clock)
        stack.push_async_callback(self.backups.close)
        self.root_key = namespace.access.root_key
        if given is None:
            self._directory.write_root_key(self.root_key)
        stack.callback(namespace.access.watch(lambda: self._note_root_key(namespace.access.root_key)))
        ticker = Ticker(namespace, self._clock)
        ticker.start()
        stack.callback(ticker.stop)
        return namespace, hubs

    def _share(self, stack: contextlib.AsyncExitStack, namespace: Namespace) -> None:
        """Other servers may take the stores: what no commit protects ends with their leases."""
        node = self._node
        if node is None:
            return
        namespace.runtime.leases.update({name: keeper.lease for name, keeper in node.leases().items()})
        node.resumed = namespace.resume
        stack.callback(node.forget_resumed)

    def _start_journal(self, stack: contextlib.AsyncExitStack, namespace: Namespace) -> None:
        """Before the namespace opens; it ends after it, so the last commits are in it."""
        options = self._options
        if options.journal is None:
            return
        # For those who want one: it brings multiprocessing along.
        from busway.journal.feed import Feed, JournalUnavailable, check
        from busway.journal.writer import WriterSettings

        try:
            check(options.journal)
        except JournalUnavailable as error:
            raise ServerFailed(str(error)) from error
        settings = WriterSettings(
            str(options.journal.absolute()),
            file_s=options.journal_seconds,
            keep_days=options.journal_keep_days,
        )
        self._journal = Feed(settings, self._clock)
        self._journal.start()
        stack.push_async_callback(self._journal.stop)
        namespace.runtime.journal = self._journal.recorder

    def _note_root_key(self, key: str) -> None:
        """The root rule's key may have been rotated: `busway connection-string` must follow."""
        if hmac.compare_digest(key.encode(), self.root_key.encode()):
            return
        self.root_key = key
        if self._options.key_file is not None:
            _log.warning(
                "the key of %s was changed, but %s still holds the old one: it will count again at the next start",
                ROOT_RULE_NAME,
                self._options.key_file,
            )
            return
        try:
            self._directory.write_root_key(key)
        except OSError as error:
            _log.error("the new key of %s could not be written to root.key: %s", ROOT_RULE_NAME, error)

    def _stores(self) -> list[Store]:
        """Files in the data directory, or what was asked for; the namespace compares them with the recorded list."""
        if self._options.store_urls:
            return self._stores_at(self._options.store_urls)
        known = len(list(self._directory.stores.glob("store-*.db")))
        count = self._options.stores or known or STORES_DEFAULT
        return [self._store(f"store-{number}", self._directory.stores) for number in range(count)]

    def _stores_at(self, addresses: Sequence[str]) -> list[Store]:
        stores: list[Store] = []
        files = 0
        for address in addresses:
            scheme, _, rest = address.partition(":")
            if is_postgres(address):
                stores += self._stores_of_database(address)
            elif scheme == "sqlite" and rest:
                stores.append(SqliteStore(f"store-{files}", Path(rest.removeprefix("//")), self._clock))
                files += 1
            else:
                # No more of it is shown: it may hold a password.
                kind = f" begins with {scheme!r}, which" if scheme.isalpha() and rest else ""
                raise ServerFailed(
                    f"The address of a store{kind} is not known: there are sqlite:PATH and postgresql://HOST/DATABASE."
                )
        return stores

    def _stores_of_database(self, address: str) -> list[Store]:
        # For those who have one: psycopg need not be there.
        from busway.store.postgres.database import PostgresDatabase
        from busway.store.postgres.store import PostgresStore

        url = parse(address)
        assert self._node is not None, "stores that servers may share are opened under a lease"
        mark = self._directory.stores / f"{url.name}.high-water.json"
        database = PostgresDatabase(url, self._clock, self._entropy, self._node.holder_of(url), mark)
        self._databases.append(database.figures)
        return [PostgresStore(database, number, self._clock) for number in range(database.url.stores)]

    def _store(self, name: str, folder: Path) -> SqliteStore:
        return SqliteStore(name, folder / f"{name}.db", self._clock)


def _key_of(file: Path) -> str:
    try:
        key = file.read_text().strip()
    except OSError as error:
        raise ServerFailed(f"The key file {file} cannot be read: {error.strerror}.") from error
    if len(key) < 32:
        raise ServerFailed(f"The key in {file} is too short: 32 characters or more make a key.")
    return key


def limits_of(options: ServeOptions) -> Limits:
    return Limits(
        partition_count=options.partition_count,
        namespace_partitions=options.namespace_partitions,
        fetch_bytes_max=options.fetch_bytes_max,
        publish_copies_max=options.publish_copies_max,
        staging_bytes_max=options.staging_bytes_max,
        staging_s=options.staging_hours * 3600.0,
    )
