"""Clients that send: single messages, runs, batches, schedules; to queues, topics, and into duplicate detection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from busway.message.message import Message
from busway.model.errors import BrokerError
from tests.chaos.history import FAIL, INFO, OK
from tests.simulator.client import Client, Question
from tests.simulator.journal import Act, Call, Ended, Sent
from tests.simulator.topology import (
    ALL_TRAITS,
    BRIEF,
    DEDUPLICATED,
    KEYS,
    PARTITIONED,
    SESSION_IDS,
    SESSIONS,
    TOPICS,
    bare_of,
    fragment_index,
)

#: So many different ids are sent to each entity that detects duplicates; others when it is not the same any more.
_IDS: Final = 120
_ID_RANGE: Final = 1_000
_SCHEDULES_KNOWN_MAX: Final = 40


class SendQuestion(Question):
    """Keeps the numbers that accepted messages were given."""

    __slots__ = ("_messages",)

    def __init__(
        self,
        asker: Client,
        sends: Sequence[Sent],
        messages: list[Message],
        what: str,
        *,
        is_atomic: bool = False,
    ) -> None:
        super().__init__(asker, sends, what, is_atomic=is_atomic)
        self._messages = messages

    def told(self, place: int, call: Call) -> None:
        if not isinstance(call, Sent):
            return
        if call.result == OK and call.path not in TOPICS:
            call.number = self._messages[place].sequence_number
        if call.result != OK and call.path in DEDUPLICATED and isinstance(self._asker, Producer):
            self._asker.refused.append(call)


class Producer(Client):
    #: What it sends to, one of them most of the time.
    paths: tuple[str, ...] = ()
    #: How far ahead it schedules.
    delays_ms: tuple[int, ...] = (500, 5_000, 40_000)

    def begin(self) -> None:
        super().begin()
        self.scheduled: list[Sent] = []
        #: By what detects duplicates: a client that hurries tries again.
        self.refused: list[Sent] = []

    async def act(self) -> None:
        draw = self.chance.random()
        path = self.chance.choice(self.paths)
        if draw < 0.45:
            await self.send(path, 1)
        elif draw < 0.65:
            await self.send(path, self.chance.randint(2, 20))
        elif draw < 0.80:
            await self.send_batch(path)
        elif draw < 0.93:
            await self.schedule(path)
        else:
            await self.cancel()

    # -- messages

    def new_message(self, path: str, key: str | None = None) -> tuple[Sent, Message]:
        """`key`: of the whole batch; else each has its own, or none."""
        if path in DEDUPLICATED:
            return repeatable(self, path, self._again(path))
        value = self.world.new_value()
        traits = self.chance.choice(ALL_TRAITS)
        if key is None:
            key = self._key(path)
        bare = bare_of(value, traits)
        sent = Sent(self.journal.now(), self.journal.life, value, path, key, traits, bare)
        message = Message(b"", bare)
        if path in SESSIONS:
            message.session_id = key
        elif key is not None:
            message.partition_key = key
        if path == BRIEF:
            message.ttl_ms = self.chance.choice((2_000, 10_000, 30_000, -1))
        return sent, message

    def _again(self, path: str) -> int | None:
        """One that was refused before."""
        waiting = [sent for sent in self.refused if sent.path == path] if self.hurries else []
        if not waiting or self.chance.random() < 0.3:
            return None
        self.refused.remove(waiting[0])
        return int(waiting[0].value[1:])

    def _key(self, path: str) -> str | None:
        if path in SESSIONS:
            return self.chance.choice(SESSION_IDS)
        return self.chance.choice(KEYS) if self.chance.random() < 0.6 else None

    # -- sending

    async def send(self, path: str, count: int) -> None:
        made = [self.new_message(path) for _ in range(count)]
        sends = [sent for sent, _ in made]
        messages = [message for _, message in made]
        if self.chance.random() < 0.05:
            self._postpone(sends[0], messages[0])
        self.journal.sends += sends
        question = SendQuestion(self, sends, messages, f"send {path} {_values(sends)}")
        try:
            self.namespace.sender(path).send(messages, question)
        except BrokerError as error:
            question.fail(error)
        await self.heard(question)

    async def send_batch(self, path: str) -> None:
        """All or nothing; with one key, most of the time."""
        key = None if path in DEDUPLICATED or self.chance.random() < 0.1 else self._key(path)
        count = 1 if path in DEDUPLICATED else self.chance.randint(2, 6)
        made = [self.new_message(path, key) for _ in range(count)]
        if key is None and path in PARTITIONED | {"events"} and path not in DEDUPLICATED + SESSIONS:
            for sent, message in made:
                sent.key = message.partition_key = None
        act = Act(self.journal.now(), self.journal.life, "batch")
        act.sends = [sent for sent, _ in made]
        messages = [message for _, message in made]
        self.journal.sends += act.sends
        if path not in DEDUPLICATED:
            self.journal.acts.append(act)
        question = SendQuestion(
            self, act.sends, messages, f"batch {path} {_values(act.sends)}", is_atomic=True
        )
        try:
            self.namespace.sender(path).send_atomically(messages, question)
        except BrokerError as error:
            question.fail(error)
        await self.heard(question)

    def _postpone(self, sent: Sent, message: Message) -> None:
        if sent.path not in DEDUPLICATED:
            sent.due_ms = self.world.clock.wall_ms() + self.chance.choice(self.delays_ms)
            message.scheduled_at_ms = sent.due_ms

    async def schedule(self, path: str) -> None:
        if path in DEDUPLICATED:
            await self.send(path, 1)
            return
        sent, message = self.new_message(path)
        self._postpone(sent, message)
        self.journal.sends.append(sent)
        problem: BrokerError | None = None
        try:
            (number,) = await self.namespace.sender(path).schedule([message])
        except BrokerError as error:
            problem = error
        self.journal.end(sent, problem, f"schedule {path} {sent.value}")
        if problem is None:
            sent.number = number
            self.scheduled = [*self.scheduled[-_SCHEDULES_KNOWN_MAX:], sent]

    async def cancel(self) -> None:
        self.scheduled = [sent for sent in self.scheduled if self.world.is_still_there(sent.path, sent.made)]
        if not self.scheduled:
            return
        path = self.chance.choice(self.scheduled).path
        known = [sent for sent in self.scheduled if sent.path == path]
        chosen = self.chance.sample(known, min(len(known), self.chance.choice((1, 1, 2))))
        self.scheduled = [sent for sent in self.scheduled if sent not in chosen]
        endings: list[Ended] = []
        for sent in chosen:
            sent.is_cancelled = True
            for group in self.world.groups_below(path, sent.traits):
                ended = Ended(self.journal.now(), self.journal.life, "complete", group, sent.value, None)
                endings.append(ended)
        self.journal.endings += endings
        problem: BrokerError | None = None
        try:
            await self.namespace.sender(path).cancel_scheduled([sent.number for sent in chosen])
        except BrokerError as error:
            problem = error
        for ended in endings:
            self.journal.end(ended, problem, f"cancel {path} {ended.value}")
            if ended.result == FAIL and len({fragment_index(sent.number) for sent in chosen}) > 1:
                ended.result = INFO  # one fragment may have done its part


def repeatable(client: Client, path: str, number: int | None = None) -> tuple[Sent, Message]:
    """A message about which everything follows from its id, which may have been sent before."""
    if number is None:
        number = client.chance.randrange(_IDS) + client.world.id_ranges.get(path, 0) * _ID_RANGE
    value = f"{path[0]}{number:07d}"
    traits = ALL_TRAITS[number % len(ALL_TRAITS)]
    bare = bare_of(value, traits)
    partition_key = KEYS[number % len(KEYS)] if number % 2 else None
    key = partition_key or (value if path in PARTITIONED else None)
    sent = Sent(client.journal.now(), client.journal.life, value, path, key, traits, bare)
    return sent, Message(b"", bare, message_id=value, partition_key=partition_key)


def _values(sends: Sequence[Sent]) -> str:
    return sends[0].value if len(sends) == 1 else f"{sends[0].value}+{len(sends) - 1}"
