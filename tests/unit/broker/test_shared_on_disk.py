"""What a broker tells its store about copies: bodies that several rows hold are written once (T-4, S-4)."""

import asyncio
from pathlib import Path

import apsw
import pytest

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.message.message import Message
from busway.model.descriptions import NewEntity, SubscriptionDescription, TopicDescription
from busway.model.entity_path import subscription_path
from busway.model.limits import Limits
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import SeededEntropy
from tests.unit.broker.topic_bench import encoded

BODY = "x" * 10_000


async def _published(folder: Path, *, messages: int) -> tuple[int, int]:
    """(bodies that are shared, rows of all subscriptions) of a publish to three subscriptions."""
    store = SqliteStore("a", folder / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)
    namespace = Namespace("bus", [store], Clock(), SeededEntropy(), Limits())
    await namespace.open()
    await namespace.create([NewEntity(TopicDescription("t"))])
    held: list[str] = []
    for number in range(3):
        path = subscription_path("t", f"s{number}")
        await namespace.create([NewEntity(SubscriptionDescription(path))])
        held.append(path)
    answers: list[object] = []
    sent = [Message(b"", encoded(f"{number}{BODY}")) for number in range(messages)]
    namespace.sender("t").send(sent, answers.append)
    rows = 0
    while not answers or rows < 3 * messages:
        await asyncio.sleep(0)
        rows = sum([(await namespace.counts(path)).active for path in held])
    await store.flush()
    [(bodies,)] = apsw.Connection(str(folder / "a.db")).execute("SELECT count(*) FROM payloads")
    await namespace.close()
    assert isinstance(bodies, int)
    return bodies, rows


@pytest.mark.parametrize("messages", [1, 400])
def test_copies_of_a_publish_share_their_body(tmp_path: Path, messages: int) -> None:
    """T-4: one row of bytes for each message, however many subscriptions take it; few at once, and many."""
    assert asyncio.run(_published(tmp_path, messages=messages)) == (messages, 3 * messages)
