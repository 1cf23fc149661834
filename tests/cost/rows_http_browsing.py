"""Looking at messages without taking them, and handling one that was chosen."""

from __future__ import annotations

import json
from urllib.parse import quote

from busway.gateway.http.messages.browsing import COUNT_MAX, NUMBERS_MAX, SESSIONS_MAX
from busway.model.descriptions import LISTEN
from tests.cost.row import HTTP, row
from tests.cost.scene import Scene


def _filled(scene: Scene, number: int, size: int = 1) -> str:
    path = scene.queue()
    scene.fill(path, number, size)
    return path


@row(LISTEN, HTTP, "Browsing.list", "look at {n} messages of 64 KiB", COUNT_MAX, few=5, unread=1)
def look(scene: Scene, n: int) -> None:
    path = _filled(scene, n, 64 * 1024)
    scene.ask_http("GET", f"{path}/$messages?count={n}")


@row(LISTEN, HTTP, "Browsing.list", "look for nothing among {n} messages", 4_000, few=100)
def look_for_nothing(scene: Scene, n: int) -> None:
    """It ends for the time that it takes, and says where to go on."""
    path = _filled(scene, n, 200)
    hard = " OR ".join(f"sys.MessageId LIKE '%{letter}%x%y%z'" for letter in "abcdefghij")
    scene.ask_http("GET", f"{path}/$messages?filter={quote(hard)}")


@row(LISTEN, HTTP, "Browsing.list", "find an instant among {n} messages", 2_000, few=100)
def find_instant(scene: Scene, n: int) -> None:
    path = _filled(scene, n)
    scene.ask_http("GET", f"{path}/$messages?since=2090-01-01T00:00:00Z")


@row(LISTEN, HTTP, "Browsing.message", "look at a message of 250 KB", unread=10)
def look_at_one(scene: Scene, _: int) -> None:
    path = _filled(scene, 1, 250_000)
    scene.ask_http("GET", f"{path}/$messages/1")


@row(LISTEN, HTTP, "Browsing.delete", "delete {n} messages by number", NUMBERS_MAX, few=50)
def delete(scene: Scene, n: int) -> None:
    path = _filled(scene, n)
    body = json.dumps({"numbers": list(range(1, n + 1))}).encode()
    scene.ask_http("POST", f"{path}/$messages/delete", body)


@row(LISTEN, HTTP, "Browsing.settle", "dead-letter a message that is not locked")
def settle(scene: Scene, _: int) -> None:
    path = _filled(scene, 1)
    token = "00000000-0000-0000-0000-000000000000"
    scene.ask_http("POST", f"{path}/$messages/locked/{token}/deadletter", b"{}", status=410)


@row(LISTEN, HTTP, "Browsing.sessions", "list {n} sessions", SESSIONS_MAX, few=20, unread=1)
def sessions(scene: Scene, n: int) -> None:
    path = scene.queue(requires_session=True)
    scene.fill(path, n, sessions=[f"session-{at}" for at in range(n)])
    scene.ask_http("GET", f"{path}/$sessions?top={n}")
