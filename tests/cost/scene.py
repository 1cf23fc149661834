"""What a row is given: entities with messages in them, clients, and the moment in which it is measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from busway.amqp.performatives import Close, Properties
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.gateway.amqp.message_mapping import message_of
from busway.message.message import Message
from busway.model.descriptions import (
    Description,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.errors import BrokerError
from busway.rules.rule import Rule
from busway.streams.hub_descriptions import EventHubDescription
from tests.cost.amqp_client import AmqpClient, Desk, WebSocketClient
from tests.cost.http_client import HttpClient
from tests.cost.instruments import Instrument
from tests.cost.row import NOBODY, WEBSOCKET
from tests.harness.frame_factory import make_frame

if TYPE_CHECKING:
    from tests.cost.row import Row
    from tests.cost.world import World

_numbers = count(1)
#: Stored in one go while a scene is set.
_RUN = 2_000
_RUN_BYTES = 4 << 20


def payload(size: int = 1, **sections: Any) -> bytes:
    return encode_message(AmqpMessage([bytes(size)], DATA, **sections))


class Scene:
    def __init__(self, world: World, row: Row, instrument: Instrument) -> None:
        self.world = world
        self.namespace = world.namespace
        self._row = row
        self._instrument = instrument
        self._exits = contextlib.ExitStack()
        self._is_measured = False

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def times(self) -> int:
        return self._instrument.times

    @property
    def reads(self) -> bool:
        return self._instrument.reads

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """What is asked in here is judged, with everything that it causes."""
        self.world.settle()
        self._instrument.begin(self.world)
        try:
            yield
            self.world.settle()
        finally:
            self._instrument.end(self.world)
            self._is_measured = True

    def check(self) -> None:
        assert self._is_measured, "the row measures nothing"

    # -- entities

    def name(self, kind: str = "q") -> str:
        return f"{kind}-{next(_numbers)}"

    def create(self, *descriptions: Description, rules: tuple[Rule, ...] = ()) -> None:
        """`rules`: of each subscription among them."""
        wanted = [
            NewEntity(one, rules if isinstance(one, SubscriptionDescription) else ()) for one in descriptions
        ]
        self.world.run(self.namespace.create(wanted))

    def leave(self, work: Callable[[], object]) -> None:
        """Done when the row has been played."""
        self._exits.callback(work)

    def queue(self, **properties: Any) -> str:
        path = self.name()
        self.create(QueueDescription(path, **properties))
        return path

    def topic(self, subscriptions: int, rules: tuple[Rule, ...] = (), **properties: Any) -> str:
        path = self.name("t")
        below = [SubscriptionDescription(f"{path}/Subscriptions/s{n}") for n in range(subscriptions)]
        self.create(TopicDescription(path, **properties), *below, rules=rules)
        return path

    def hub(self, partitions: int = 1) -> str:
        path = self.name("h")
        self.world.run(self.world.hubs.create(EventHubDescription(path, partition_count=partitions), []))
        return path

    # -- messages

    def fill(
        self,
        path: str,
        number: int,
        size: int = 1,
        *,
        session: str | None = None,
        sessions: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        """So many messages; of one session, or of each of these in turn."""
        run = max(1, min(_RUN, _RUN_BYTES // size))
        for at in range(0, number, run):
            messages = []
            for n in range(at, min(number, at + run)):
                group = sessions[n % len(sessions)] if sessions else session
                properties = None if group is None else Properties(group_id=group)
                messages.append(self.message(payload(size, properties=properties), **fields))
            self.world.run(self._sent(path, messages))

    def message(self, data: bytes, **fields: Any) -> Message:
        made = message_of(data, False, self.namespace.limits)
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    async def _sent(self, path: str, messages: list[Message]) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(refused: list[tuple[int, BrokerError]]) -> None:
            if refused:
                stored.set_exception(refused[0][1])
            else:
                stored.set_result(None)

        self.namespace.sender(path).send(messages, done)
        await stored

    # -- clients

    @property
    def right(self) -> str | None:
        return None if self._row.right == NOBODY else self._row.right

    def client(self, right: str | None = None, *, opens: bool = True) -> AmqpClient:
        """With the row's right, by the row's way; `opens`: through login and open, with a session."""
        kind = WebSocketClient if self._row.way == WEBSOCKET else AmqpClient
        made = kind(self.world, right or self.right, opens=opens)
        self._exits.callback(made.close)
        return made

    def desk(self, path: str) -> tuple[AmqpClient, Desk]:
        client = self.client()
        return client, client.desk(f"{path}/$management")

    def http(self) -> HttpClient:
        made = HttpClient(self.world, self.right)
        self._exits.callback(made.close)
        return made

    def ask(self, path: str, operation: str, body: dict[str, object], *, status: int = 200) -> None:
        """One request on an entity's `$management`, measured."""
        client, desk = self.desk(path)
        self.answered(client, desk.operation(operation, body, times=self.times), status)

    def answered(self, client: AmqpClient, request: bytes, status: int = 200) -> None:
        """The same with links of the caller's own."""
        with self.measured():
            client.write(request)
            if self.reads:
                client.hear(Transfer=1)
                assert client.status == status, f"the answer was {client.status}: {client.answer!r}"

    def flood(self, client: AmqpClient, data: bytes, *, refused: str | None = None) -> None:
        """Frames that need no answer: the client says good-bye behind them, and hears it when they are through.
        `refused`: with this condition, or dropped without a word, before it came to that."""
        with self.measured():
            client.write(data + make_frame(Close()))
            if self.reads:
                client.hear(Close=1)
        if self.reads:
            ended = client.closed_with()
            assert ended == refused, f"the connection ended with {ended!r}"

    def ask_http(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        status: int = 200,
    ) -> None:
        client = self.http()
        request = client.request(method, target, body, headers)
        with self.measured():
            client.write(request)
            if self.reads:
                got = client.hear()
                assert got == status, f"{method} /{target}: {got}"
