"""A namespace over memory stores under a manual clock."""

import asyncio
from collections.abc import Awaitable, Callable

from busway.broker.fragment.locks import Attachment, Delivery, Receiver
from busway.broker.namespace.namespace import Namespace
from busway.message.message import Message
from busway.model.descriptions import NewEntity, QueueDescription, with_values
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.harness.quiet_loop import is_quiet
from tests.harness.scene import NamespaceWorld, play


class NamespaceBench(NamespaceWorld):
    """Inside `on_a_bench` only. `restart` begins a new life on the same stores."""

    def __init__(self, store_count: int = 1, limits: Limits | None = None) -> None:
        self.clock = ManualClock()
        self.entropy = SeededEntropy()
        self.limits = limits or Limits()
        self.stores = [MemoryStore(f"store-{number}") for number in range(store_count)]
        self.namespace = self.new_namespace()

    def new_namespace(self, **options: object) -> Namespace:
        key = options.get("root_key")
        return Namespace(
            "bus",
            self.stores,
            self.clock,
            self.entropy,
            self.limits,
            root_key=key if isinstance(key, str) else None,
        )

    async def restart(self, **options: object) -> Namespace:
        await self.namespace.close()
        self.namespace = self.new_namespace(**options)
        await self.namespace.open()
        return self.namespace

    async def create(self, path: str, **values: object) -> QueueDescription:
        made = await self.namespace.create([NewEntity(with_values(QueueDescription(path), values))])
        assert isinstance(made[0], QueueDescription)
        return made[0]

    async def send(self, path: str, count: int = 1, **options: int) -> None:
        """Sends and waits until it is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finished(refused: list[tuple[int, BrokerError]]) -> None:
            if refused:
                done.set_exception(refused[0][1])
            else:
                done.set_result(None)

        messages = [Message(b"", b"x" * 100, **options) for _ in range(count)]
        self.namespace.queue(path).send(messages, finished)
        await done

    async def advance(self, seconds: float, step_s: float = 10.0) -> None:
        """Moves time as a running server would see it: deadline after deadline."""
        while seconds > 0:
            step = min(step_s, seconds)
            self.clock.advance(step)
            seconds -= step
            self.namespace.tick()
            await settle()


class Link(Attachment):
    """Remembers why it was evicted."""

    def __init__(self) -> None:
        self.error: BrokerError | None = None

    def evict(self, error: BrokerError) -> None:
        assert self.error is None, "evicted twice"
        self.error = error


class Reader(Link, Receiver):
    """A receiving link with room for everything."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Delivery] = []

    def room(self) -> int:
        return 100

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        self.taken.extend(deliveries)
        return []


async def settle(turns: int = 30) -> None:
    """Lets everything happen that needs no time."""
    for _ in range(turns):
        await asyncio.sleep(0)
        if is_quiet():
            return


def on_a_bench(
    test: Callable[[NamespaceBench], Awaitable[None]], store_count: int = 1, limits: Limits | None = None
) -> None:
    play(lambda: NamespaceBench(store_count, limits), test)
