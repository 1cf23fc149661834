"""Publishes over several turns of the loop: a room so small that everything is large, and sends to look at."""

from __future__ import annotations

import asyncio

import pytest

from busway.broker.fragment import turns
from busway.gateway.amqp.message_mapping import message_of
from busway.model.entity_path import subscription_path
from busway.model.errors import BrokerError
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.topic_bench import TopicBench, encoded

A, B, C = (subscription_path("t", name) for name in "abc")
Refused = list[tuple[int, BrokerError]]
#: More turns than any of these publishes takes.
LONG = 400


def make_turns_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn has room for nothing: everything is published over several, about a message in each."""
    monkeypatch.setattr(turns, "TURN_STEPS", 0)
    monkeypatch.setattr(turns, "SHARE_STEPS", 1)


class Sent:
    """A send that was begun, and what became of it."""

    def __init__(self, bench: TopicBench, count: int, first: int = 0, **options: object) -> None:
        self.answers: list[Refused] = []
        sender = bench.namespace.sender("t")
        send = sender.send_atomically if options.pop("atomically", False) else sender.send
        detects = sender.settings.detects_duplicates
        bodies = [f"{number}" for number in range(first, first + count)]
        send(
            [message_of(encoded(body, message_id=body, **options), detects) for body in bodies],
            self.answers.append,
        )

    @property
    def refused(self) -> Refused:
        """The one answer."""
        [answer] = self.answers
        return answer

    def errors(self) -> list[tuple[int, type[BrokerError]]]:
        return [(place, type(error)) for place, error in self.refused]


async def three_subscriptions(bench: TopicBench, **values: object) -> None:
    await bench.topic("t", **values)
    for name in "abc":
        await bench.subscription("t", name)


async def active(bench: TopicBench, *paths: str) -> list[int]:
    return [(await bench.namespace.counts(path)).active for path in paths]


def begun(bench: TopicBench) -> int:
    """Bytes that wait in the topic's line."""
    return bench.namespace.sender("t").inlet.member(0).intake.pending_bytes


async def schedule(bench: TopicBench, count: int, after_s: float = 10, **fields: object) -> list[int]:
    messages = [message_of(encoded(f"{number}", **fields), False) for number in range(count)]
    for message in messages:
        message.scheduled_at_ms = bench.clock.wall_ms() + round(after_s * 1000)
    asked = asyncio.ensure_future(bench.namespace.sender("t").schedule(messages))  # type: ignore[union-attr]
    await settle(LONG)
    return await asked
