"""The socket by which a page watches: who may open one, what it is told, and what it costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.gateway.http.app import HttpGateway, HttpSettings
from busway.gateway.http.console import live, overview
from busway.gateway.listener import Listener
from busway.model.descriptions import (
    LISTEN,
    SEND,
    AuthorizationRule,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.limits import Limits
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.unit.gateway.http_exchange import ROOT_KEY, sas_token
from tests.unit.gateway.test_websocket import PLAIN

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "LOOK_EVERY_S", 0.01)


class Watcher:
    """A page, as far as its socket goes."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.hello: Json = {}
        self.rows: dict[str, list[Any]] = {}
        self.looks = 0

    async def say(self, text: str) -> None:
        await self._socket.send_str(text)

    async def sign_in(self, token: str, below: str = "") -> None:
        await self.say(json.dumps({"token": token, "below": below}) + "\n")

    async def hear(self) -> Json:
        """The next that it is told; `{}` when the socket is closed."""
        message = await asyncio.wait_for(self._socket.receive(), 10)
        if message.type is not aiohttp.WSMsgType.TEXT:
            return {}
        told: Json = json.loads(message.data)
        if told["type"] == "hello":
            self.hello = told
        elif told["type"] == "rows":
            self.looks += 1
            if told["whole"]:
                self.rows.clear()
            self.rows.update({row[0]: row for row in told["rows"]})
            for path in told["gone"]:
                self.rows.pop(path, None)
        return told

    async def hear_until(self, *kinds: str) -> Json:
        while (told := await self.hear()).get("type", "closed") not in kinds:
            pass
        return told


@dataclass
class Room:
    namespace: Namespace
    gateway: HttpGateway
    clock: ManualClock
    session: aiohttp.ClientSession
    port: int
    sockets: list[aiohttp.ClientWebSocketResponse] = field(default_factory=list)

    def token(self, path: str = "", expiry: int = 4_000_000_000) -> str:
        return sas_token(f"http://127.0.0.1:{self.port}/{path}", expiry=expiry)

    async def watcher(self, **headers: str) -> Watcher:
        address = f"http://127.0.0.1:{self.port}/$console/live"
        socket = await self.session.ws_connect(address, headers=headers)
        self.sockets.append(socket)
        return Watcher(socket)

    async def signed_in(self, token: str = "", below: str = "") -> Watcher:
        watcher = await self.watcher()
        await watcher.sign_in(token or self.token(below), below)
        await watcher.hear_until("hello", "refused")
        return watcher

    async def create(self, *descriptions: Any) -> None:
        await self.namespace.create([NewEntity(each) for each in descriptions])


@contextlib.asynccontextmanager
async def room(settings: HttpSettings | None = None) -> AsyncIterator[Room]:
    clock = ManualClock()
    stores = [MemoryStore("store-0")]
    namespace = Namespace("busway-test", stores, clock, SeededEntropy(), Limits(), root_key=ROOT_KEY)
    await namespace.open()
    codec = PayloadCodec(SeededEntropy())
    gateway = HttpGateway(namespace, clock, SeededEntropy(), _no_amqp, codec, settings)
    listener = Listener(asyncio.Protocol, gateway.protocol, None)
    port = await listener.start("127.0.0.1", 0, PLAIN)
    try:
        async with aiohttp.ClientSession() as session:
            made = Room(namespace, gateway, clock, session, port)
            yield made
            for socket in made.sockets:
                await socket.close()
    finally:
        await listener.close()
        await gateway.close()
        await namespace.close()


def _no_amqp(transport: object, peer: str) -> Any:
    raise AssertionError(f"no AMQP was asked for: {transport!r} {peer}")


def test_a_page_is_told_everything_and_then_what_changes(run) -> None:
    """E-100: rows of all entities, then only those that differ."""

    async def work() -> None:
        async with room() as bus:
            await bus.create(*(QueueDescription(f"queue-{n}") for n in range(3)))
            page = await bus.signed_in()
            assert page.hello["rights"] == ["Manage", "Listen", "Send"]
            assert (page.hello["namespace"], page.hello["mode"]) == ("busway-test", "full")
            await page.hear_until("rows")
            assert sorted(page.rows) == ["queue-0", "queue-1", "queue-2"]
            await bus.create(QueueDescription("queue-3"))
            told = await page.hear_until("rows")
            assert ([row[0] for row in told["rows"]], told["whole"]) == (["queue-3"], False)
            await bus.namespace.delete("queue-0")
            told = await page.hear_until("rows")
            assert (told["rows"], told["gone"]) == ([], ["queue-0"])

    run(work())


def test_a_bus_at_rest_says_nothing(run) -> None:
    """Speed: a look that finds nothing new is a digest, and no row is made."""

    async def work() -> None:
        async with room() as bus:
            await bus.create(QueueDescription("orders"))
            page = await bus.signed_in()
            await page.hear_until("rows")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(page.hear(), 0.2)

    run(work())


def test_many_rows_come_in_pieces(run) -> None:
    """Memory: no frame grows with the number of entities."""

    async def work() -> None:
        async with room() as bus:
            await bus.create(*(QueueDescription(f"queue-{n}") for n in range(overview.PIECE_ROWS + 1)))
            page = await bus.signed_in()
            first, second = await page.hear_until("rows"), await page.hear_until("rows")
            assert (first["whole"], first["last"], len(first["rows"])) == (True, False, overview.PIECE_ROWS)
            assert (second["whole"], second["last"], len(second["rows"])) == (False, True, 1)

    run(work())


@pytest.mark.parametrize(
    "words",
    [
        "{}\n",
        "[]\n",
        "hello\n",
        '{"token": 1}\n',
        '{"token": "SharedAccessSignature x"}\n',
        '{"token": "x", "below": 1}\n',
        "[" * 20_000 + "\n",
        "x" * (live.LINE_BYTES_MAX + 1),
    ],
)
def test_whoever_begins_with_something_else_is_sent_away(run, words: str) -> None:
    """Attack: one sentence and the end, whatever is said first."""

    async def work() -> None:
        async with room() as bus:
            page = await bus.watcher()
            await page.say(words)
            told = await page.hear()
            assert (told["type"], told["status"] in (400, 401)) == ("refused", True)
            assert told["sentence"]
            assert await page.hear() == {}

    run(work())


def test_whoever_says_nothing_is_sent_away(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a socket without a token is held for seconds."""
    monkeypatch.setattr(live, "FIRST_WORDS_S", 0.05)

    async def work() -> None:
        async with room() as bus:
            page = await bus.watcher()
            assert (await page.hear())["type"] == "refused"

    run(work())


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
def test_a_page_of_another_site_watches_nothing(run, origin: str) -> None:
    """Attack: browsers let any page open a WebSocket; only one of this very host and port is let in."""

    async def work() -> None:
        async with room() as bus:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await bus.watcher(Origin=origin)
            assert refusal.value.status == 403
            await bus.watcher(Origin=f"http://127.0.0.1:{bus.port}")

    run(work())


def test_another_sites_name_for_this_machine_is_refused(run) -> None:
    """A-11: DNS rebinding carries that name in Host."""

    async def work() -> None:
        async with room() as bus:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await bus.watcher(Host="evil.example", Origin="http://evil.example")
            assert refusal.value.status == 403

    run(work())


def test_off_has_no_socket(run) -> None:
    """A-11: --console off closes this way, too."""

    async def work() -> None:
        async with room(HttpSettings(console="off")) as bus:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await bus.watcher()

    run(work())


def test_a_key_that_only_sends_sees_nothing(run) -> None:
    """A-9: it is told what it may, and no row."""

    async def work() -> None:
        async with room() as bus:
            rule = AuthorizationRule("sender", frozenset({SEND}), "key-1", "key-2")
            await bus.namespace.access.set((*bus.namespace.access.rules(), rule))
            await bus.create(QueueDescription("orders"))
            page = await bus.signed_in(sas_token(f"http://127.0.0.1:{bus.port}/", "sender", "key-1"))
            assert (page.hello["rights"], page.hello["watches"]) == (["Send"], False)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(page.hear(), 0.1)

    run(work())


def test_a_key_of_one_topic_sees_that_topic(run) -> None:
    """A-2: its subscriptions with it, and no other entity; nothing of the server."""

    async def work() -> None:
        async with room() as bus:
            rule = AuthorizationRule("reader", frozenset({LISTEN}), "key-1", "key-2")
            await bus.create(
                TopicDescription("events", authorization_rules=(rule,)),
                SubscriptionDescription("events/Subscriptions/a"),
                TopicDescription("events-2"),
                QueueDescription("orders"),
            )
            token = sas_token(f"http://127.0.0.1:{bus.port}/events", "reader", "key-1")
            stranger = await bus.signed_in(token, "orders")
            assert stranger.hello == {}
            page = await bus.signed_in(token, "events")
            assert page.hello["rights"] == ["Listen"]
            assert (await page.hear())["type"] == "rows"
            assert sorted(page.rows) == ["events", "events/Subscriptions/a"]

    run(work())


def test_rights_that_end_are_told_and_end_the_socket(run) -> None:
    """A-10: a rule that is taken away takes its pages along, before they are told anything more."""

    async def work() -> None:
        async with room() as bus:
            rules = bus.namespace.access.rules()
            rule = AuthorizationRule("reader", frozenset({LISTEN}), "key-1", "key-2")
            await bus.namespace.access.set((*rules, rule))
            page = await bus.signed_in(sas_token(f"http://127.0.0.1:{bus.port}/", "reader", "key-1"))
            await page.hear_until("rows")
            await bus.namespace.access.set(rules)
            await bus.create(QueueDescription("orders"))
            told = await page.hear_until("refused")
            assert told["status"] == 401
            assert "orders" not in page.rows

    run(work())


def test_a_fresh_token_takes_over_before_the_old_one_ends(run) -> None:
    """A-8: a page that stays open signs again."""

    async def work() -> None:
        async with room() as bus:
            now_s = bus.clock.wall_ms() // 1000
            page = await bus.signed_in(bus.token(expiry=now_s + 60))
            await page.sign_in(bus.token(expiry=now_s + 7200))
            await page.hear_until("hello")
            bus.clock.advance(120)
            await bus.create(QueueDescription("orders"))
            told = await page.hear_until("rows")
            while not told["rows"]:
                told = await page.hear_until("rows")
            assert "orders" in page.rows
            bus.clock.advance(7200)
            assert (await page.hear_until("refused"))["status"] == 401

    run(work())


def test_ten_pages_are_looked_at_once(run) -> None:
    """Speed: what is told is made once for all who have seen the same."""

    async def work() -> None:
        async with room() as bus:
            await bus.create(*(QueueDescription(f"queue-{n}") for n in range(50)))
            pages = [await bus.signed_in() for _ in range(10)]
            for page in pages:
                await page.hear_until("rows")
            seen = bus.gateway._console.overview
            await bus.create(QueueDescription("new"))
            for page in pages:
                assert [row[0] for row in (await page.hear_until("rows"))["rows"]] == ["new"]
            assert len(seen._told) <= 2

    run(work())


class Unread:
    """A WebSocket whose peer takes nothing."""

    def __init__(self, line: str) -> None:
        self.headers = {"host": "localhost"}
        self.closed: list[int] = []
        self._lines = [line]

    async def accept(self) -> None: ...

    async def receive(self) -> Json:
        if not self._lines:
            await asyncio.Event().wait()
        return {"type": "websocket.receive", "text": self._lines.pop()}

    async def send_text(self, _: str) -> None:
        await asyncio.Event().wait()

    async def close(self, code: int) -> None:
        self.closed.append(code)


def test_a_page_that_reads_nothing_is_left_alone(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: whoever watches and takes nothing holds one frame, and that for seconds."""
    monkeypatch.setattr(live, "READ_S", 0.02)

    async def work() -> None:
        async with room() as bus:
            socket = Unread(json.dumps({"token": bus.token(), "below": ""}) + "\n")
            pages = bus.gateway._console.live
            await asyncio.wait_for(pages.serve(socket), 5)  # type: ignore[arg-type]
            assert (socket.closed, pages.count) == ([1008], 0)

    run(work())


def test_more_pages_than_there_are_places_are_refused(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: sockets are counted."""
    monkeypatch.setattr(live, "PAGES_MAX", 2)

    async def work() -> None:
        async with room() as bus:
            first, _ = await bus.signed_in(), await bus.signed_in()
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await bus.watcher()
            assert refusal.value.status == 503
            await first.say("{}\n")
            await first.hear_until("closed")
            await asyncio.sleep(0)
            await bus.watcher()

    run(work())


def test_pages_that_say_nothing_keep_nobody_out(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: the oldest of those without a token gives way to a newcomer; who has shown one stays."""
    monkeypatch.setattr(live, "PAGES_MAX", 2)

    async def work() -> None:
        async with room() as bus:
            await bus.signed_in()
            silent = await bus.watcher()
            await bus.signed_in()
            assert await silent.hear_until("closed") == {}
            assert bus.gateway._console.live.count == 2

    run(work())


def test_a_server_that_stops_ends_its_sockets(run) -> None:
    """Change under traffic: pages are told at once, and nothing is left of them."""

    async def work() -> None:
        async with room() as bus:
            page = await bus.signed_in()
            await page.hear_until("rows")
            await bus.gateway.close()
            assert await page.hear_until("closed") == {}
            assert bus.gateway._console.live.count == 0

    run(work())
