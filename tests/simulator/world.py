"""One run: a namespace on four simulated stores, its clients, its faults, and the end.

Theory of operation. `play` opens the namespace, creates the entities, lets clients and faults loose until the
operations are used up, then heals everything and drains what is left (`finale`). A crash takes everything that is not
on the disks: all tasks are ended, the old stores never write again, a new namespace is opened on their heirs, and the
clients connect anew.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from random import Random
from typing import Any, Final

from busway.broker.namespace.namespace import Namespace
from busway.event_loop import Ticker
from busway.message.message import Message
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.store.contract import StoreError
from tests.harness.manual_clock import SeededEntropy
from tests.simulator.client import Client
from tests.simulator.consumers import Consumer
from tests.simulator.faults import Faults, out_of_service
from tests.simulator.journal import Journal, Seen
from tests.simulator.operated import (
    TARGETS,
    all_receivable,
    all_sendable,
    chosen_subjects,
    entities_besides,
)
from tests.simulator.operators import Operator
from tests.simulator.producers import Producer
from tests.simulator.session_consumers import Deleter, SessionConsumer
from tests.simulator.simulated_store import Mood, SimulatedStore
from tests.simulator.timeline import Timeline
from tests.simulator.topology import (
    DROPS,
    FORWARDING,
    LOCK_S,
    PARTITION_COUNT,
    RECEIVABLE,
    SENDABLE,
    SESSIONS,
    STORE_COUNT,
    TOPICS,
    TRANSACTIONAL,
    Traits,
    destinations,
    entities,
    group_of,
    value_of,
)
from tests.simulator.transactors import Transactor
from tests.simulator.virtual_time import VirtualClock, VirtualLoop

#: A client that has nothing left to do must come to its end within this time.
_CLIENT_S_MAX: Final = 400.0
_OPENINGS_MAX: Final = 200
#: Of all seeds so many have an operator, who changes so many entities.
_OPERATED_SHARE: Final = 0.6
SUBJECT_COUNT: Final = 3


class World:
    """See the head of this file."""

    def __init__(self, seed: int, operations: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.chance = Random(f"{seed}:world")
        self.clock = VirtualClock(loop)
        self.journal = Journal(self.clock)
        self.operations_left = operations
        self._used_up = asyncio.Event()
        #: Deferred messages by (path, dead-letter queue or not): clients keep their numbers.
        self.deferred: dict[tuple[str, bool], list[Seen]] = {}
        self.stores = [self._store(f"store-{number}") for number in range(STORE_COUNT)]
        self._loop = loop
        self.entropy = SeededEntropy(seed)
        self._limits = _limits(self.chance)
        self._values = 0
        self._client_tasks: list[asyncio.Task[None]] = []
        self._protected: list[asyncio.Task[Any]] = []
        #: Of what detects duplicates: which of its ids are used.
        self.id_ranges: dict[str, int] = {}
        chance = Random(f"{seed}:operator")
        self.has_operator = has_operator(chance)
        self.entities = [*entities(), *(entities_besides() if self.has_operator else ())]
        self.timeline = Timeline(self.entities, self.journal.changes, self.journal.outages)
        self.receivable = all_receivable(self.has_operator)
        self.operator: Operator | None = None
        #: Right now, by the operator.
        self.is_changing = False
        self.clients = self._new_clients()
        if self.has_operator:
            self._add_operator(chance)
        self.namespace = self._new_namespace()
        self._ticker = Ticker(self.namespace, self.clock)

    def _store(self, name: str) -> SimulatedStore:
        return SimulatedStore(
            name,
            Random(f"{self.seed}:{name}"),
            Mood(),
            lambda store, is_up: self.journal.store_changed(store, is_up),
        )

    def _new_namespace(self) -> Namespace:
        return Namespace("bus", self.stores, self.clock, self.entropy, self._limits)

    # -- what clients need

    def take_operation(self) -> bool:
        if self.operations_left == 0:
            self._used_up.set()
            return False
        self.operations_left -= 1
        return True

    def new_value(self) -> str:
        self._values += 1
        return f"{self._values:08d}"

    def has_usual_locks(self, path: str) -> bool:
        """At this moment; else nobody can say how long they last."""
        now = self.journal.now()
        return all(
            state is not None and state.lock_ms == LOCK_S * 1000
            for state in self.timeline.during(path, now, now)
        )

    def is_still_there(self, path: str, since: float) -> bool:
        """The entity is the one that it was then: its numbers mean the same."""
        return self.timeline.incarnation(path, since) == self.timeline.incarnation(path, self.journal.now())

    def groups_below(self, path: str, traits: Traits) -> list[str]:
        """Where a message sent to `path` may turn up; perhaps more than it does, with an operator."""
        if not self.has_operator or path not in TOPICS:
            return destinations(path, traits)
        return [group_of(each) for each in self.timeline.paths() if each.startswith(f"{path}/")]

    def see(self, path: str, is_dead: bool, how: str, message: Message, who: str) -> Seen:
        """A message was shown to somebody."""
        seen = Seen(value_of(message.bare), path, is_dead, how, self.journal.now(), message.sequence_number)
        seen.count = message.delivery_count
        seen.enqueued_ms = message.enqueued_at_ms
        seen.key = message.partition_key if message.session_id is None else message.session_id
        seen.bare = message.bare
        seen.has_changes = message.changes is not None
        seen.high_ms = self.clock.high_ms()
        self.journal.seen.append(seen)
        self.journal.count(f"seen: {how}")
        self.journal.note(f"{who} {how} {path}{'$' if is_dead else ''} {seen.value} #{seen.number:x}")
        return seen

    def _new_clients(self) -> list[Client]:
        """Each seed has its own crowd, around a few entities."""
        chance = self.chance
        centre = chance.sample(SENDABLE, 4)
        clients: list[Client] = []
        for number in range(3):
            producer = Producer(self, f"producer-{number}")
            producer.paths = tuple(centre) if number < 2 else SENDABLE
            clients.append(producer)
        for number in range(3):
            consumer = Consumer(self, f"consumer-{number}")
            near = [(path, False) for path in RECEIVABLE if path.split("/")[0] in centre]
            consumer.places = tuple(near) if near and number < 2 else _all_places()
            clients.append(consumer)
        for number in range(2):
            session_consumer = SessionConsumer(self, f"speaker-{number}")
            session_consumer.places = tuple((path, False) for path in SESSIONS)
            clients.append(session_consumer)
        deleter = Deleter(self, "deleter")
        deleter.places = ((DROPS, False),)
        clients.append(deleter)
        for number in range(2):
            transactor = Transactor(self, f"transactor-{number}")
            transactor.places = tuple((path, False) for path in TRANSACTIONAL)
            clients.append(transactor)
        return clients

    def _add_operator(self, chance: Random) -> None:
        """With a crowd of its own around what it changes."""
        subjects = chosen_subjects(chance, SUBJECT_COUNT)
        self.operator = Operator(self, subjects)
        sent_to = {path.split("/")[0] for path in subjects} & set(all_sendable(True))
        producer = Producer(self, "producer-near")
        producer.paths = tuple(sorted(sent_to))
        producer.delays_ms = (50, 200, 500)
        crowd: list[Client] = [self.operator, producer]
        for number in range(2):
            consumer = Consumer(self, f"consumer-near-{number}")
            near = [path for path in self.receivable if path.split("/")[0] in sent_to]
            consumer.places = tuple((path, False) for path in (*near, *TARGETS))
            crowd.append(consumer)
        if DROPS in subjects:
            deleter = Deleter(self, "deleter-near")
            deleter.places = ((DROPS, False),)
            crowd.append(deleter)
        for client in crowd:
            client.hurries = True
        self.clients += crowd

    # -- the run

    async def play(self) -> None:
        current = asyncio.current_task()
        assert current is not None
        self._protected.append(current)
        self._loop.set_exception_handler(self._unhandled)
        await self._open()
        await self.namespace.create(self.entities)
        faults = Faults(self)
        hurting = asyncio.create_task(faults.run())
        hurting.add_done_callback(lambda _: self._used_up.set())  # should it fail, so does the run
        self._protected.append(hurting)
        self._start_clients()
        await self._used_up.wait()
        faults.is_over = True
        self.heal()
        await hurting
        await faults.outages_over()
        await self._await_clients()

    def _start_clients(self) -> None:
        self._client_tasks = [asyncio.create_task(client.run(), name=client.name) for client in self.clients]

    async def _await_clients(self) -> None:
        await asyncio.wait(self._client_tasks, timeout=_CLIENT_S_MAX)
        for task in self._client_tasks:
            if not task.done():
                self.journal.find("client waits for ever", f"{task.get_name()} {_where(task)}")
                task.cancel()
            elif task.exception() is not None:
                error = task.exception()
                self.journal.find("client failed", f"{task.get_name()}: {error!r} {_raised_at(error)}")

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        error = context.get("exception")
        where = _raised_at(error) if isinstance(error, BaseException) else ""
        self.journal.find("unhandled error", f"{context.get('message')} {error!r} {where}")

    # -- the broker's life

    async def _open(self) -> None:
        """A supervisor starts the server again as long as it does not come up."""
        for _ in range(_OPENINGS_MAX):
            self.namespace = self._new_namespace()
            try:
                await self.namespace.open()
            except StoreError as error:
                self.journal.note(f"cannot open: {error}")
                await asyncio.sleep(1.0)
                continue
            self._ticker = Ticker(self.namespace, self.clock)
            self._ticker.start()
            return
        self.journal.find("cannot be opened", f"after {_OPENINGS_MAX} attempts")

    async def crash(self, chance: Random) -> None:
        self.journal.crashed()
        self._ticker.stop()
        self.stores = [store.after_crash() for store in self.stores]
        dead = [task for task in self._loop.live_tasks() if task not in self._protected]
        for task in dead:
            task.cancel()
        if dead:
            await asyncio.wait(dead, timeout=30.0)
        for task in dead:
            if not task.done():
                self.journal.find("task survives its end", _where(task))
            elif not task.cancelled() and task.exception() is not None:
                self.journal.note(f"died with {task.exception()!r}")
        await asyncio.sleep(chance.random() * 2)
        await self._open()
        self.journal.restarted()
        self._start_clients()

    # -- faults and their end

    def set_full(self, name: str, is_full: bool) -> None:
        for store in self.stores:
            if store.name == name:
                store.accepts_new_payload = not is_full

    def heal(self) -> None:
        self.journal.note("heal")
        for store in self.stores:
            store.mood.settle_down()
            store.accepts_new_payload = True

    async def out_of_service(self, name: str, seconds: float) -> None:
        await out_of_service(self, name, seconds)

    async def back_in_service(self, name: str) -> None:
        while True:
            try:
                await self.namespace.stores.enable(name)
            except BrokerError as error:
                self.journal.note(f"enable {name} {type(error).__name__}")
                await asyncio.sleep(0.5)
            else:
                self.journal.count("enable ok")
                return


def has_operator(chance: Random) -> bool:
    return chance.random() < _OPERATED_SHARE


def _limits(chance: Random) -> Limits:
    """Small ones, so that windows run dry, numbers are forgotten and sweeps come in slices."""
    return Limits(
        partition_count=PARTITION_COUNT,
        window_messages_max=chance.choice((4, 16, 4_096)),
        window_bytes_max=chance.choice((2_000, 20_000, 64 << 20)),
        returned_numbers_max=chance.choice((2, 10, 10_000)),
        locks_per_fragment_max=chance.choice((8, 100_000)),
        sweep_rows_max=chance.choice((2, 10, 1_000)),
        peek_messages_max=chance.choice((5, 250)),
    )


def _all_places() -> tuple[tuple[str, bool], ...]:
    paths = [path for path in (*RECEIVABLE, *FORWARDING) if path != DROPS]
    living = [(path, False) for path in RECEIVABLE]
    # What died in `brief` moves on to the graves.
    return (*living, *((path, True) for path in paths if path != "brief"))


def _where(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=3)
    return " ".join(f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}" for frame in frames)


def _raised_at(error: BaseException | None) -> str:
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    return " ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames)


class LoudLog(logging.Handler):
    """Background work that failed is told to a log only; here it is an error."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.name}: {record.getMessage()}"
        if record.exc_info:
            self._journal.find("logged error", f"{text} {record.exc_info[1]!r}")
        else:
            self._journal.note(f"log {text}")
