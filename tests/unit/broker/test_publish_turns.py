"""What a large publish takes of one turn of the loop: counted in steps, and in CPU time on a real store."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from time import thread_time

import pytest

from busway.broker.fragment import turns
from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.message.message import Message
from busway.model.descriptions import NewEntity, SubscriptionDescription, TopicDescription
from busway.model.entity_path import subscription_path
from busway.model.errors import BrokerError, QuotaExceeded
from busway.model.limits import Limits
from busway.rules.rule import CorrelationFilter, Rule, SqlAction, SqlFilter, TypedValue
from busway.rules.selection import Selection
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.measured import check_within, measured
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, sql
from tests.unit.rules.property_bag import PropertyBag

MESSAGES, SUBSCRIPTIONS = 1_000, 100
#: What one turn may take. The Python sources on a busy machine are given more than the 20 ms of the compiled ones.
TURN_S = 0.075
#: A share ends with the step that uses it up, and steps are told by the score.
OVERSHOOT = 200

Refused = list[tuple[int, BrokerError]]


class Ledger:
    """The steps of every share, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shares: list[int] = []
        ledger = self

        class Noted(turns.TurnShare):
            def __init__(self, clock: Clock, steps: int) -> None:
                super().__init__(clock, steps)
                ledger.shares.append(0)

            def spend(self, steps: int) -> bool:
                ledger.shares[-1] += steps
                return super().spend(steps)

        monkeypatch.setattr(turns, "TurnShare", Noted)

    def check(self, at_least: int) -> None:
        assert sum(self.shares) >= at_least
        assert max(self.shares) <= turns.SHARE_STEPS + OVERSHOOT


async def fan(bench: TopicBench, count: int, *rules: Rule) -> None:
    await bench.topic("t")
    for number in range(count):
        await bench.subscription("t", f"s{number}", *rules)


async def sent(bench: TopicBench, *payloads: bytes, atomically: bool = True) -> Refused:
    ended: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
    sender = bench.namespace.sender("t")
    send = sender.send_atomically if atomically else sender.send
    send([Message(b"", payload) for payload in payloads], ended.set_result)
    return await ended


def test_steps_are_cut_into_shares_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: copies and rows of a batch to many; every turn has its share and no more."""
    ledger = Ledger(monkeypatch)

    async def test(bench: TopicBench) -> None:
        await fan(bench, 40)
        assert await sent(bench, *[encoded(f"{n}") for n in range(500)]) == []
        assert (await bench.namespace.counts(subscription_path("t", "s39"))).active == 500

    on_a_topic_bench(test)
    ledger.check(2 * 40 * 500 - turns.TURN_STEPS)


@pytest.mark.parametrize("room", [0, 5_000])
def test_what_is_certainly_too_much_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Attack: no copy is made of a full envelope to many."""
    monkeypatch.setattr(turns, "TURN_STEPS", room)
    ledger = Ledger(monkeypatch)

    async def test(bench: TopicBench) -> None:
        await fan(bench, 20)
        payloads = [encoded(f"{n}") for n in range(101)]
        [(_, error)] = await sent(bench, *payloads)
        assert isinstance(error, QuotaExceeded)
        assert sum(ledger.shares) == 0
        assert await sent(bench, *payloads[1:]) == []

    on_a_topic_bench(test, limits=replace(Limits(), publish_copies_max=2_000))


def test_many_topics_share_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: each goes on in its turn; together they take no more of one than a single one does."""
    ledger = Ledger(monkeypatch)

    async def test(bench: TopicBench) -> None:
        answers: list[Refused] = []
        for name in "abcdefghijklmnopqrst":
            await bench.topic(name)
            for number in range(4):
                await bench.subscription(name, f"s{number}")
        for name in "abcdefghijklmnopqrst":
            messages = [Message(b"", encoded(f"{number}")) for number in range(300)]
            bench.namespace.sender(name).send_atomically(messages, answers.append)
        while len(answers) < 20:
            await settle(1)
        assert answers == [[]] * 20

    on_a_topic_bench(test)
    ledger.check(20 * 4 * 300 - turns.TURN_STEPS)


def test_rules_of_one_message_are_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack, B12: 1,500 SQL filters and as many actions, for one message."""
    ledger = Ledger(monkeypatch)

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        for number in range(15):
            name = f"s{number}"
            rules = [sql(f"NOT x < {n}", f"SET y = {n}", name=f"r{n}") for n in range(100)]
            await bench.subscription("t", name, *rules)
        assert await sent(bench, encoded("a", properties={"x": 1_000})) == []
        assert (await bench.namespace.counts(subscription_path("t", "s3"))).active == 100

    on_a_topic_bench(test)
    ledger.check(1_500 * 9)


def test_small_publishes_of_one_turn_share_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a thousand sends of one message each, in one turn, are as much work as one send of a thousand."""
    ledger = Ledger(monkeypatch)

    async def test(bench: TopicBench) -> None:
        await fan(bench, 50)
        sender = bench.namespace.sender("t")
        answers: list[Refused] = []
        for number in range(1_000):
            sender.send([Message(b"", encoded(f"{number}"))], answers.append)
        at_once = len(bench.stores[0].batch().puts)
        assert at_once <= turns.TURN_STEPS + 50
        while len(answers) < 1_000:
            await settle(10)
        assert answers == [[]] * 1_000
        last = await bench.namespace.queue(subscription_path("t", "s7")).main.peek(996, 10)
        assert [message.bare for message in last] == [encoded(f"{n}") for n in range(995, 1_000)]

    on_a_topic_bench(test)
    ledger.check(1_000 * 50 - turns.TURN_STEPS)


def test_what_is_small_needs_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """T-1: it joins in the step in which it came; turn after turn there is room again."""
    ledger = Ledger(monkeypatch)

    async def test(bench: TopicBench) -> None:
        await fan(bench, 5)
        store = bench.stores[0]
        for number in range(200):
            answers: list[Refused] = []
            messages = [Message(b"", encoded(f"{number}")) for _ in range(100)]
            bench.namespace.sender("t").send(messages, answers.append)
            assert len(store.batch().puts) == 500
            while not answers:
                await settle(1)
            assert answers == [[]]

    on_a_topic_bench(test)
    assert ledger.shares == []


def test_rules_that_walk_over_little_need_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """T-1: what counts is how far they really walk, not how far they might in a long message."""
    ledger = Ledger(monkeypatch)

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", sql("kind LIKE 'a%' OR x = 1"))
        answers: list[Refused] = []
        messages = [Message(b"", encoded("x" * 1_000, properties={"kind": "abc"})) for _ in range(200)]
        bench.namespace.sender("t").send(messages, answers.append)
        assert len(bench.stores[0].batch().puts) == 200
        await settle()
        assert answers == [[]]

    on_a_topic_bench(test)
    assert ledger.shares == []


def test_rules_that_walk_far_use_a_turn_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack, B13: each message alone is short enough to be asked about at once; all of them are not."""
    ledger = Ledger(monkeypatch)

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", sql("kind LIKE '%zz%' OR x = 1"))
        payload = encoded("", properties={"kind": "ab" * 10_000, "x": 1})
        assert await sent(bench, *[payload] * 100, atomically=False) == []

    on_a_topic_bench(test)
    ledger.check(100 * 5_000 // 64 - turns.TURN_STEPS)


def test_a_clock_ends_a_share_as_well() -> None:
    """Attack: a step that costs more than it should; a clock that stands still ends nothing."""
    clock = ManualClock()
    share = turns.TurnShare(clock, 1_000)
    assert not share.spend(10)
    clock.advance(turns.SHARE_S)
    assert share.spend(10)
    assert share.left <= 0


def test_matching_in_steps_gives_the_same_answer() -> None:
    """T-1, T-4, T-60: rules of all kinds, alone and together."""
    selection = Selection(lambda: pytest.fail("no rule asks for an id"))
    filters = {
        "fixed": SqlFilter("1=1"),
        "never": SqlFilter("1=0"),
        "label": CorrelationFilter(label="a"),
        "both": CorrelationFilter(label="a", properties=(("x", TypedValue("int", 1)),)),
        "anchored": SqlFilter("x = 1 AND y > 2"),
        "scanned": SqlFilter("NOT x = 2"),
        "bad": SqlFilter("y / z = 1"),
    }
    subjects = [
        PropertyBag({"x": x, "y": y, "z": z}, {"Label": label})
        for x in (1, 2)
        for y in (1, 3)
        for z in (0, 1)
        for label in ("a", "b")
    ]
    for number in range(90):
        for name, filter_ in filters.items():
            if (number + len(name)) % 3:
                action = SqlAction("SET w = 1") if number % 5 == 0 else None
                selection.add(f"s{number % 30}", Rule(f"{name}{number}", filter_, action))
        for subject in subjects[number % 4 :: 4]:
            assert _walked(selection, subject) == _told(selection.matching(subject))


def _walked(selection: Selection, subject: PropertyBag) -> object:
    walk = selection.matching_in_steps(subject)
    while True:
        try:
            assert next(walk) > 0
        except StopIteration as end:
            return _told(end.value)


def _told(matches: list[object]) -> object:
    return [
        (m.owner, m.is_plain, [acting.name for acting in m.acting], [str(error) for error in m.errors])  # type: ignore[attr-defined]
        for m in matches
    ]


@measured
def test_no_turn_is_long_while_a_full_batch_is_published(tmp_path: Path) -> None:
    """Attack, S-20: 1,000 messages to 100 subscriptions are accepted, stored in one commit, and stall nobody."""

    async def run() -> None:
        store = SqliteStore("store-0", Path(mkdtemp(dir=tmp_path)) / "s.db", Clock())
        namespace = Namespace("bus", [store], Clock(), SeededEntropy(), Limits())
        await namespace.open()
        await namespace.create([NewEntity(TopicDescription("t"))])
        for number in range(SUBSCRIPTIONS):
            path = subscription_path("t", f"s{number}")
            await namespace.create([NewEntity(SubscriptionDescription(path))])
            namespace.queue(path)
        commits = store._spans.commit_number
        answers: list[Refused] = []
        messages = [Message(b"", encoded(f"{number}")) for number in range(MESSAGES)]
        gc.collect()
        gc.disable()  # how often and how long it collects is the process's own
        try:
            longest = [0.0]
            began = thread_time()
            namespace.sender("t").send_atomically(messages, answers.append)
            while not answers:
                longest.append(thread_time() - began)
                began = thread_time()
                await asyncio.sleep(0)
        finally:
            gc.enable()
        assert answers == [[]]
        check_within(max(longest), TURN_S, f"turn {longest.index(max(longest))}")
        assert store._spans.commit_number == commits + 1
        for number in (0, SUBSCRIPTIONS - 1):
            path = subscription_path("t", f"s{number}")
            assert (await namespace.counts(path)).active == MESSAGES
            last = await namespace.queue(path).main.peek(MESSAGES, 5)
            assert [message.bare for message in last] == [encoded(f"{MESSAGES - 1}")]
        await namespace.close()

    asyncio.run(run())
