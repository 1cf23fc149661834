"""Every refusal of partitioned entities and of transactions: its exact condition and sentence on the wire, and that
nothing was changed by what was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import pytest

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Properties, Rejected
from busway.amqp.types import Array, Symbol
from busway.broker.entity.fragment_choice import fragment_of_key
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.namespace import Namespace
from busway.client.messages import encode_batch
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.errors import ServerBusy
from busway.model.limits import Limits
from tests.harness.manual_clock import SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.unit.gateway.amqp_peer import KEY as ROOT_KEY
from tests.unit.gateway.amqp_peer import Peer, Room, payload
from tests.unit.gateway.amqp_transactions import Controller, asked_in, sent_in, settled_in

NOT_ALLOWED = "amqp:not-allowed"
UNKNOWN = "amqp:transaction:unknown-id"
FULL = "amqp:resource-limit-exceeded"
BUSY = "com.microsoft:server-busy"
BATCH_FORMAT = 0x80013700
OTHER_ENTITY = "Local transactions cannot span multiple top-level entities such as queue or topic."
OTHER_FRAGMENT = "Local transactions cannot span multiple entities or partitions."
SAME_KEY = "all messages sent to it in one transaction must have the same"
NEEDS_KEY = "a message sent to it in a transaction needs a PartitionKey"
#: Of sixteen fragments: the first two keys share one, the third lies in another one, and in another store.
KEY = "a"
NEIGHBOUR = next(str(n) for n in range(1000) if fragment_of_key(str(n), 16) == fragment_of_key(KEY, 16))
STRANGER = next(str(n) for n in range(1000) if (fragment_of_key(str(n), 16) + fragment_of_key(KEY, 16)) % 2)
ENTITIES = (
    QueueDescription("q"),
    QueueDescription("other"),
    QueueDescription("p", enable_partitioning=True),
    QueueDescription("d", enable_partitioning=True, requires_duplicate_detection=True),
    QueueDescription("s", enable_partitioning=True, requires_session=True),
    TopicDescription("t", enable_partitioning=True),
    SubscriptionDescription("t/Subscriptions/a"),
)
LIMITS = Limits(transaction_bytes_per_connection_max=100_000)


def keyed(
    body: bytes = b"m",
    *,
    key: str | None = None,
    session_id: str | None = None,
    message_id: str | None = None,
    via_key: str | None = None,
) -> bytes:
    annotations: dict[object, object] = {}
    if key is not None:
        annotations[Symbol("x-opt-partition-key")] = key
    if via_key is not None:
        annotations[Symbol("x-opt-via-partition-key")] = via_key
    properties = Properties(message_id=message_id, group_id=session_id)
    return payload(body, properties=properties, message_annotations=annotations or None)


class Told(NamedTuple):
    condition: str
    sentence: str


class Stage:
    """A namespace over two stores with one of everything, a client, and one message locked in each of two places."""

    def __init__(self) -> None:
        self.room = Room(limits=LIMITS)
        self.second_store = MemoryStore("b")
        stores = [self.room.store, self.second_store]
        self.room.namespace = Namespace(
            "ns.local", stores, self.room.clock, SeededEntropy(), LIMITS, root_key=ROOT_KEY
        )
        self.peer: Peer
        self.controller: Controller
        self.txn_id = b""

    async def open(self) -> None:
        await self.room.open()
        for description in ENTITIES:
            await self.room.namespace.create([NewEntity(description)])
        await self.room.namespace.transfer_queues.prepare("p")
        self.peer = await self.room.client()
        await self.peer.sender("q")  # so that the session is not for one entity alone (TX-4)
        self.controller = await Controller.attached(self.peer)
        self.txn_id = await self.controller.declare()

    # -- what a client does

    async def sender(self, address: str, *, on_another_session: bool = False, via: str | None = None) -> Link:
        own = self.peer.session
        if on_another_session:
            self.peer.session = self.peer.engine.begin()
        wish = Symbol("com.microsoft:transfer-destination-address")
        if via is None:
            link = await self.peer.sender(address)
        else:
            link = await self.peer.sender(via, properties={wish: address})
        self.peer.session = own
        return link

    async def send(self, address: str, message: bytes, message_format: int = 0) -> object:
        (outcome,) = await self.peer.sent(await self.sender(address), message, message_format=message_format)
        return outcome

    async def send_in(self, address: str, message: bytes, *, via: str | None = None) -> object:
        return await sent_in(self.peer, await self.sender(address, via=via), self.txn_id, message)

    async def locked(self, address: str, *messages: bytes) -> tuple[Link, list[IncomingDelivery]]:
        for message in messages:
            assert isinstance(await self.send(address, message), Accepted)
        receiver = await self.peer.receiver(address)
        receiver.grant_credit(len(messages))
        return receiver, await self.peer.received(receiver, len(messages))

    async def settle_in(self, link: Link, delivery: IncomingDelivery) -> object:
        (outcome,) = await settled_in(self.peer, link, self.txn_id, [delivery], Accepted())
        return outcome

    async def ask_in(self, address: str, operation: str, body: dict[str, object]) -> object:
        links = await self.peer.request_links(f"{address}/$management")
        status, _, condition = await asked_in(self.peer, links, self.txn_id, operation, body)
        return Told(f"{status} {condition}", "")

    # -- what can be seen of it

    def everything(self) -> dict[str, object]:
        """All counts, what waits for commits, and the rules."""
        namespace = self.room.namespace
        found: dict[str, object] = {}
        for key, row in namespace.contents.entities.rows.items():
            counts = replace(namespace.contents.entities.counts.of(row), accessed_at_ms=0)
            found[key] = (counts, self._waiting_bytes(row))
        found["rules"] = [rule.name for rule in namespace.rules.of("t/Subscriptions/a")]
        return found

    def _waiting_bytes(self, row: EntityRow) -> int:
        try:
            outlets = self.room.namespace.contents.entities.entity(row).outlets()
        except ServerBusy:  # a plain entity without its store
            return 0
        fragments = [fragment for outlet in outlets for fragment in outlet.fragments()]
        return sum(fragment.intake.pending_bytes for fragment in fragments)


Act = Callable[[Stage], Awaitable[object]]
Refused = Callable[[Stage], Awaitable[Callable[[], Awaitable[object]]]]


def told(outcome: object) -> Told:
    if isinstance(outcome, Told):
        return outcome
    assert isinstance(outcome, Rejected), outcome
    assert outcome.error is not None
    return Told(str(outcome.error.condition), outcome.error.description or "")


# -- each act prepares what it needs, and returns the step that is refused


def sends(address: str, message: bytes) -> Refused:
    async def prepare(stage: Stage) -> Callable[[], Awaitable[object]]:
        return lambda: stage.send(address, message)

    return prepare


def sends_batch(address: str, *messages: bytes) -> Refused:
    async def prepare(stage: Stage) -> Callable[[], Awaitable[object]]:
        return lambda: stage.send(address, encode_batch(list(messages)), BATCH_FORMAT)

    return prepare


def joins(address: str, *messages: bytes, via: str | None = None) -> Refused:
    """The last of the messages is refused in a transaction that has taken the others."""

    async def prepare(stage: Stage) -> Callable[[], Awaitable[object]]:
        link = await stage.sender(address, via=via)
        for message in messages[:-1]:
            outcome = await sent_in(stage.peer, link, stage.txn_id, message)
            assert not isinstance(outcome, Rejected), outcome
        return lambda: sent_in(stage.peer, link, stage.txn_id, messages[-1])

    return prepare


async def sends_from_another_session(stage: Stage) -> Callable[[], Awaitable[object]]:
    await stage.send_in("q", payload())
    link = await stage.sender("other", on_another_session=True)
    return lambda: sent_in(stage.peer, link, stage.txn_id, payload())


def without_a_store(act: Callable[[Stage, bytes], Awaitable[object]]) -> Refused:
    """`act` sends a message whose fragment lies there."""

    async def prepare(stage: Stage) -> Callable[[], Awaitable[object]]:
        shares = stage.room.namespace.contents.entities.rows["p"].shares
        key = next(key for key in (KEY, STRANGER) if shares[fragment_of_key(key, 16)].store_name == "b")
        await stage.room.namespace.stores.disable("b")
        return lambda: act(stage, keyed(key=key))

    return prepare


async def a_fragment_is_full(stage: Stage) -> Callable[[], Awaitable[object]]:
    member = stage.room.namespace.queue("p").inlet.member(fragment_of_key(KEY, 16))
    member.counters.bytes = 1024 * 1024 * 1024
    return lambda: stage.send("p", keyed(key=KEY))


async def settles_elsewhere(stage: Stage) -> Callable[[], Awaitable[object]]:
    receiver, (delivery,) = await stage.locked("other", payload(b"job"))
    await stage.send_in("q", payload(b"m"))
    return lambda: stage.settle_in(receiver, delivery)


async def settles_another_fragment(stage: Stage) -> Callable[[], Awaitable[object]]:
    receiver, (delivery,) = await stage.locked("p", keyed(key=STRANGER))
    await stage.send_in("p", keyed(key=KEY))
    return lambda: stage.settle_in(receiver, delivery)


async def settles_two_fragments(stage: Stage) -> Callable[[], Awaitable[object]]:
    _, deliveries = await stage.locked("p", keyed(key=STRANGER), keyed(key=KEY))
    tokens: list[object] = [UUID(bytes_le=delivery.tag) for delivery in deliveries]
    body: dict[str, object] = {"disposition-status": "completed", "lock-tokens": Array(tokens, 0x98)}
    return lambda: stage.ask_in("p", "update-disposition", body)


async def settles_in_an_unknown_one(stage: Stage) -> Callable[[], Awaitable[object]]:
    receiver, (delivery,) = await stage.locked("q", payload(b"job"))
    stage.txn_id = b"unknown"
    return lambda: stage.settle_in(receiver, delivery)


def in_an_unknown_one(act: Act) -> Refused:
    async def prepare(stage: Stage) -> Callable[[], Awaitable[object]]:
        stage.txn_id = b"unknown"
        return lambda: act(stage)

    return prepare


def after_two_minutes(act: Act) -> Refused:
    async def prepare(stage: Stage) -> Callable[[], Awaitable[object]]:
        await stage.send_in("q", payload(b"m"))
        await stage.room.pass_time(121)
        return lambda: act(stage)

    return prepare


def changes_rules(operation: str) -> Refused:
    name = "r" if operation == "add-rule" else "$Default"
    body = {"rule-name": name, "rule-description": {"sql-filter": {"expression": "1=1"}}}

    async def prepare(stage: Stage) -> Callable[[], Awaitable[object]]:
        return lambda: stage.ask_in("t/Subscriptions/a", operation, dict(body))

    return prepare


BOTH_KEYS = keyed(session_id=KEY, key=STRANGER)
REFUSALS: dict[str, tuple[Refused, str, str]] = {
    "P-10 a full fragment": (a_fragment_is_full, FULL, ""),
    "P-21 two keys that differ": (sends("p", BOTH_KEYS), NOT_ALLOWED, "PartitionKey"),
    "P-21 in a batch": (sends_batch("p", BOTH_KEYS), NOT_ALLOWED, "PartitionKey"),
    "P-25 a fragment without its store": (
        without_a_store(lambda stage, message: stage.send("p", message)),
        BUSY,
        "not available",
    ),
    "P-25 the same in a transaction": (
        without_a_store(lambda stage, message: stage.send_in("p", message)),
        BUSY,
        "not available",
    ),
    "S-23 a batch of two keys": (
        sends_batch("p", keyed(key=KEY), keyed(key=STRANGER)),
        NOT_ALLOWED,
        "distinct SessionId or PartitionKey",
    ),
    "S-24 a batch of two ids": (
        sends_batch("d", keyed(message_id="1"), keyed(message_id="2")),
        NOT_ALLOWED,
        "distinct SessionId, PartitionKey, or MessageId",
    ),
    "TX-2 a settlement on a second entity": (settles_elsewhere, NOT_ALLOWED, OTHER_ENTITY),
    "TX-2 a send from another session": (sends_from_another_session, NOT_ALLOWED, OTHER_ENTITY),
    "TX-5 a send": (in_an_unknown_one(lambda s: s.send_in("q", payload())), UNKNOWN, "declared yet"),
    "TX-5 a settlement": (settles_in_an_unknown_one, UNKNOWN, "declared yet"),
    "TX-5 a request": (
        in_an_unknown_one(lambda s: s.ask_in("q", "schedule-message", {"messages": []})),
        f"400 {UNKNOWN}",
        "",
    ),
    "TX-5 a commit": (in_an_unknown_one(lambda s: s.controller.discharge(s.txn_id)), UNKNOWN, "declared yet"),
    "TX-5 a rollback": (
        in_an_unknown_one(lambda s: s.controller.discharge(s.txn_id, fail=True)),
        UNKNOWN,
        "declared yet",
    ),
    "TX-6 a send": (
        after_two_minutes(lambda s: s.send_in("q", payload())),
        "amqp:transaction:timeout",
        "",
    ),
    "TX-6 a commit": (
        after_two_minutes(lambda s: s.controller.discharge(s.txn_id)),
        "amqp:transaction:timeout",
        "",
    ),
    "TX-7 the message after a hundred": (
        joins("q", *[payload()] * 101),
        NOT_ALLOWED,
        "Cannot send more than 100 messages in a single transaction",
    ),
    "TX-12 no key": (joins("p", keyed()), NOT_ALLOWED, NEEDS_KEY),
    "TX-13 two keys": (joins("p", keyed(key=KEY), keyed(key=STRANGER)), NOT_ALLOWED, SAME_KEY),
    "TX-14 no session": (joins("s", keyed(key=KEY)), NOT_ALLOWED, ""),
    "TX-14 a key that differs": (joins("s", BOTH_KEYS), NOT_ALLOWED, "PartitionKey"),
    "TX-15 two sessions": (
        joins("s", keyed(session_id=KEY), keyed(session_id=STRANGER)),
        NOT_ALLOWED,
        SAME_KEY,
    ),
    "TX-16 an id is no key": (joins("p", keyed(message_id="m")), NOT_ALLOWED, NEEDS_KEY),
    "TX-16 ids that differ": (
        joins("d", keyed(message_id="1"), keyed(message_id="2")),
        NOT_ALLOWED,
        SAME_KEY,
    ),
    "TX-17 a settlement in another fragment": (settles_another_fragment, NOT_ALLOWED, OTHER_FRAGMENT),
    "TX-17 settlements in two fragments": (settles_two_fragments, f"400 {NOT_ALLOWED}", ""),
    "TX-18 no key for the via entity": (joins("q", keyed(), via="p"), NOT_ALLOWED, "needs a ViaPartitionKey"),
    "TX-18 a key for another fragment of it": (
        joins("q", keyed(via_key=KEY), keyed(via_key=STRANGER), via="p"),
        NOT_ALLOWED,
        OTHER_FRAGMENT,
    ),
    "TX-19 neighbours": (joins("p", keyed(key=KEY), keyed(key=NEIGHBOUR)), NOT_ALLOWED, SAME_KEY),
    "TX-20 a rule is added": (changes_rules("add-rule"), f"400 {NOT_ALLOWED}", ""),
    "TX-20 a rule is removed": (changes_rules("remove-rule"), f"400 {NOT_ALLOWED}", ""),
    "TX-24 too many bytes": (joins("q", payload(b"x" * 60_000), payload(b"x" * 60_000)), FULL, "at most"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_told_by_name_and_changes_nothing(name: str) -> None:
    """P-10, P-21, P-25, S-23, S-24, TX-2, TX-5, TX-6, TX-7, TX-12…TX-20, TX-24: condition and sentence; the same
    counts, rules and room as before; the transaction, if it still is one, can be rolled back."""
    prepare, condition, sentence = REFUSALS[name]

    async def run() -> None:
        stage = Stage()
        await stage.open()
        try:
            step = await prepare(stage)
            before = stage.everything()
            found = told(await step())
            assert (found.condition, sentence in found.sentence) == (condition, True), found
            await stage.room.turns()
            assert stage.everything() == before
            await stage.controller.discharge(stage.txn_id, fail=True)
            await stage.room.turns()
            assert stage.everything() == {key: _without_waiting(value) for key, value in before.items()}
        finally:
            await stage.room.close()

    asyncio.run(run())


def _without_waiting(value: object) -> object:
    return (value[0], 0) if isinstance(value, tuple) else value


#: What is no send: a client that is told so may go on.
SETTLEMENTS = ("TX-17 a settlement in another fragment", "TX-17 settlements in two fragments")


@pytest.mark.parametrize(
    "name", [name for name in REFUSALS if name.startswith("TX-1") or name.startswith("TX-7")]
)
def test_a_refused_send_takes_its_transaction_along(name: str) -> None:
    """TX-7, TX-12…TX-19: what a client commits without it would be half of what it wanted."""
    prepare, _, _ = REFUSALS[name]

    async def run() -> None:
        stage = Stage()
        await stage.open()
        try:
            told(await (await prepare(stage))())
            ended = await stage.controller.discharge(stage.txn_id)
            assert isinstance(ended, Accepted) == (name in SETTLEMENTS), ended
        finally:
            await stage.room.close()

    asyncio.run(run())
