"""The scene of one cell: a namespace on two simulated stores under virtual time, the subject of the change, and what
stands around it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Final

from busway.broker.namespace.namespace import Namespace
from busway.event_loop import Ticker
from busway.model.descriptions import (
    ALL_RIGHTS,
    AuthorizationRule,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.entity_path import subscription_path
from busway.model.limits import Limits
from busway.rules.rule import DEFAULT_RULE_NAME, Rule, TrueFilter
from busway.staging.stagings import Stagings
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import EventHubDescription
from tests.changes.change import Made, Subject
from tests.changes.changes import WATCHED
from tests.changes.in_process import InProcess
from tests.changes.kinds import HUB, is_partitioned, is_queue, is_session_queue, is_topic
from tests.changes.matrix import Cell
from tests.changes.messages import VALUE_CHARACTERS, Draft
from tests.changes.record import Record
from tests.changes.stagers import DraftCodec
from tests.harness.manual_clock import SeededEntropy
from tests.simulator.simulated_store import Mood, SimulatedStore
from tests.simulator.virtual_time import VirtualClock, VirtualLoop

STORE_COUNT: Final = 2
LOCK_MS: Final = 10_000
SESSION_IDS: Final = ("s0", "s1", "s2")
KEYS: Final = ("k0", "k1", "k2", "k3")
#: From its beginning on no client of a cell needs longer, whatever is disabled meanwhile.
PATIENCE_S: Final = 240.0

_MANY: Final = 200

_SUBJECT: Final = "subject"
_SOURCE: Final = "source"
_TARGETS: Final = ("target-0", "target-1")
_ELSEWHERE: Final = "elsewhere"
_MOVING: Final = ("ForwardTo", "ForwardDead", "entity re-created")
_MOVING_TRAFFIC: Final = ("forwarding in", "forwarding out")
#: Numbers are given out in another order than messages were sent in.
_NUMBERED_LATER: Final = ("transactions", "staging")


class World:
    """See the head of this file. `is_over`: clients come to an end."""

    def __init__(self, cell: Cell, seed: int, loop: VirtualLoop) -> None:
        self.cell = cell
        self.chance = Random(f"{seed}:{cell.name}")
        self.clock = VirtualClock(loop)
        moves = cell.change.name.startswith(_MOVING) or cell.traffic.name in _MOVING_TRAFFIC
        self.record = Record(
            self.clock, has_one_entity=not moves and cell.traffic.name not in _NUMBERED_LATER
        )
        self.is_over = False
        self.deadline = loop.time() + PATIENCE_S
        self.limits = Limits(
            sku=cell.change.sku,
            partition_count=STORE_COUNT,
            window_messages_max=self.chance.choice((6, 64, 4_096)),
            sweep_rows_max=self.chance.choice((4, 1_000)),
        )
        self.stores = [self._store(f"store-{number}") for number in range(STORE_COUNT)]
        self.entropy = SeededEntropy(seed)
        self.namespace = Namespace("bus", self.stores, self.clock, self.entropy, self.limits)
        self.hubs = EventHubs(self.namespace, self.clock, self.entropy)
        self.codec = DraftCodec()
        self.stagings = Stagings(self.namespace, self.hubs, self.codec)
        self.administrator = InProcess(self.namespace, self.hubs, self.entropy)
        self._ticker = Ticker(self.namespace, self.clock)
        self._values = 0
        #: By session id what its state may be.
        self.states: dict[str, list[bytes | None]] = {}
        self.detects_duplicates = cell.traffic.name == "duplicates" or (
            cell.traffic.name == "forwarding in"
            and "requires_duplicate_detection" not in cell.change.needs
            and self.chance.random() < 0.5
        )
        self._is_second = self.chance.random() < 0.5
        self.subject = self._new_subject()

    def _store(self, name: str) -> SimulatedStore:
        return SimulatedStore(name, Random(f"{self.chance.random()}"), Mood(), _unheard)

    # -- what there is

    @property
    def has_sessions(self) -> bool:
        return is_session_queue(self.cell.kind) or self.cell.traffic.name == "sessions"

    @property
    def forwards_out(self) -> bool:
        return self.cell.traffic.name == "forwarding out"

    @property
    def send_path(self) -> str:
        return _SOURCE if self.cell.traffic.name == "forwarding in" else _SUBJECT

    @property
    def receive_path(self) -> str:
        return _SUBJECT if is_queue(self.cell.kind) else subscription_path(_SUBJECT, WATCHED)

    def receivable(self) -> list[str]:
        """Everything that may hold a message that somebody counts."""
        source = [_SOURCE] if self.cell.traffic.name == "forwarding in" else []
        return [self.receive_path, *_TARGETS, *source]

    def _new_subject(self) -> Subject:
        kind = self.cell.kind
        made = self._made()
        path = self.receive_path if kind.endswith("subscription") else _SUBJECT
        names = [store.name for store in self.stores]
        here = names[self._is_second]
        has_targets = kind != HUB and not is_topic(kind)
        return Subject(path, kind, self._targets if has_targets else (), here, made, _ELSEWHERE)

    @property
    def _targets(self) -> tuple[str, ...]:
        """The first one in another store than the subject, the second one beside it."""
        return _TARGETS if self._is_second else _TARGETS[::-1]

    def _made(self) -> tuple[Made, ...]:
        kind = self.cell.kind
        rules = (AuthorizationRule("all", ALL_RIGHTS, "", ""),)
        if kind == HUB:
            return (Made(EventHubDescription(_SUBJECT, partition_count=2, authorization_rules=rules)),)
        forward_to = self._targets[0] if self.forwards_out else None
        if is_queue(kind):
            queue = replace(
                self._queue(_SUBJECT),
                requires_duplicate_detection=self.detects_duplicates,
                requires_session=self.has_sessions,
                enable_partitioning=is_partitioned(kind),
                forward_to=forward_to,
                authorization_rules=rules,
            )
            return (Made(queue),)
        topic = TopicDescription(
            _SUBJECT,
            max_message_size_in_kilobytes=self._message_kb,
            requires_duplicate_detection=self.detects_duplicates,
            enable_partitioning=is_partitioned(kind),
            authorization_rules=rules,
        )
        watched = SubscriptionDescription(
            subscription_path(_SUBJECT, WATCHED),
            lock_duration_ms=LOCK_MS,
            requires_session=self.has_sessions,
            dead_lettering_on_message_expiration=True,
            forward_to=forward_to,
        )
        default = (Rule(DEFAULT_RULE_NAME, TrueFilter()),)
        subscription = Made(watched, default)
        self._topic = Made(topic)
        return (Made(topic), subscription) if is_topic(kind) else (subscription,)

    @property
    def _message_kb(self) -> int:
        return 1_024 if self.limits.sku == "Premium" else 256

    def _queue(self, path: str) -> QueueDescription:
        return QueueDescription(
            path,
            lock_duration_ms=LOCK_MS,
            max_message_size_in_kilobytes=self._message_kb,
            dead_lettering_on_message_expiration=True,
        )

    # -- life

    async def open(self) -> None:
        await self.namespace.open()
        self._ticker.start()
        around = [*_TARGETS, _ELSEWHERE]
        if not self._is_second:  # a new entity goes where there are fewer
            around.append("filler")
        await self.namespace.create([NewEntity(self._queue(path)) for path in around])
        if self.cell.kind.endswith("subscription"):
            await self.administrator.create(self._topic.description)
        for made in self.subject.made:
            await self.administrator.create(made.description, made.rules)
        if self.send_path == _SOURCE:
            await self.namespace.create([NewEntity(replace(self._queue(_SOURCE), forward_to=_SUBJECT))])

    async def close(self) -> None:
        self._ticker.stop()
        await self.namespace.close()
        # What the loop was told to do in a moment.
        await asyncio.sleep(0)

    # -- for clients

    def has_much(self) -> bool:
        """Something takes long: nobody needs thousands of messages."""
        return self._values > _MANY

    def draft(self) -> Draft:
        self._values += 1
        draft = Draft(f"{self._values:0{VALUE_CHARACTERS}d}", is_repeatable=self.detects_duplicates)
        if self.has_sessions:
            draft.session_id = self.chance.choice(SESSION_IDS)
        elif self.cell.traffic.name == "transactions" or self.chance.random() < 0.6:
            draft.partition_key = self.chance.choice(KEYS)
        return draft


def _unheard(store: str, is_up: bool) -> None:
    """The administrator knows when a store is out of service."""
